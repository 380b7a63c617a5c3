#!/usr/bin/env python3
"""One rank's step with payloads through host memory and with payloads that stay on the GPU, by NCCL: what the way through the host costs before
any wire. bench/cuda/stay.py [--route ROUTE] [SPEC]…  Prints ms from the first gradient to the last mean, the minimum of 12 steps; one rank is all that NCCL takes of one device."""

import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import gradwire

LAYERS, SIDE, STEPS = 16, 2048, 12  # 64 Mi numbers


class Given(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.randn(SIDE, SIDE)) for _ in range(LAYERS))

    def forward(self, scale):
        return sum((w * scale).square().sum() for w in self.weights)


def least_ms(spec, payloads, route):
    ddp = DistributedDataParallel(Given().cuda())
    gradwire.attach(ddp, spec, route=route, payloads=payloads, quiet=True)
    least, told = float("inf"), gradwire.stats()
    for step in range(STEPS):
        ddp.zero_grad()
        ddp(1.0 + step).backward()
        torch.cuda.synchronize()
        now = gradwire.stats()
        least = min(least, now["exchange_seconds"] - told["exchange_seconds"])
        told = now
    gradwire.detach(ddp)
    return 1e3 * least


def main():
    torch.cuda.set_device(0)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("cpu:gloo,cuda:nccl", init_method=f"file://{os.path.join(folder, 'store')}", rank=0, world_size=1)
        specs, route = sys.argv[1:], None
        if specs[:1] == ["--route"]:
            specs, route = specs[2:], specs[1]
        for spec in specs or ["dense", "natural:bits=8", "dither:bits=4", "topk:density=0.01", "adacomp"]:
            print(f"{spec:20} host {least_ms(spec, 'host', route):8.2f} ms   nccl {least_ms(spec, 'nccl', route):8.2f} ms", flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
