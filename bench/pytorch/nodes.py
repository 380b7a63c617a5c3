#!/usr/bin/env python3
"""Bytes on a node's network card and step times, default route against named ones: NETLAB run by bench/pytorch/nodes.sh.

    nodes.py RANK RANKS STORE INTERFACE [--spec SPEC]... [--steps N] [--elements N]

Every rank is one process. The first rank of a node reads the interface's counter of sent bytes around the steps. All is in
units of the fp32 gradient, per step. DDP in fp32 and in bf16 are measured in the same run.
"""

import argparse
import hashlib
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import gradwire  # noqa: E402

SPECS = ("natural:bits=8", "dither:bits=4", "topk:density=0.01", "adacomp", "lowrank:rank=4")
FLAT = {"natural:bits=8": ("gather", "sra", "star"), "dither:bits=4": ("gather", "sra", "star"), "topk:density=0.01": ("gather", "sra", "star"),
        "adacomp": ("gather", "sra", "star"), "lowrank:rank=4": ("sum",)}


def routes_of(spec):
    flat = FLAT[spec]
    return (None, *flat, *(f"hier-{name}" for name in flat if name != "star"))


def sent(interface):
    return int(pathlib.Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def digest(model):
    words = (p.grad.view(torch.int32 if p.grad.dtype == torch.float32 else torch.int16).numpy().tobytes() for p in model.parameters())
    return hashlib.blake2b(b"".join(words), digest_size=8).hexdigest()


def measure(ddp, x, steps, interface):
    """ms per step, bytes sent by this node's card per step."""
    def step():
        ddp.zero_grad()
        ddp(x).square().mean().backward()
    step()
    step()
    times, before = [], None
    for _ in range(steps):
        dist.barrier()
        before = sent(interface) if before is None else before
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    dist.barrier()
    return 1e3 * statistics.median(times), (sent(interface) - before) / steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rank", type=int)
    parser.add_argument("ranks", type=int)
    parser.add_argument("store")
    parser.add_argument("interface")
    parser.add_argument("--spec", action="append")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--elements", type=int, default=4 << 20)
    o = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = o.interface
    dist.init_process_group("gloo", init_method=f"file://{o.store}", rank=o.rank, world_size=o.ranks)
    side = int((o.elements / 4) ** 0.5) // 64 * 64
    contestants = [("DDP fp32", None, torch.float32), ("DDP bf16", None, torch.bfloat16), ("dense", None, torch.float32), ("dense", None, torch.bfloat16)]
    contestants += [(spec, route, torch.float32) for spec in o.spec or SPECS for route in routes_of(spec)]
    if o.rank == 0:
        print(f"{'what':20} {'route':16} {'ms/step':>8} {'card, x gradient':>17}   replicas", flush=True)
    for spec, route, dtype in contestants:
        torch.manual_seed(1)
        model = torch.nn.Sequential(*(torch.nn.Linear(side, side, bias=False) for _ in range(4))).to(dtype)
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
        if not spec.startswith("DDP"):
            gradwire.attach(ddp, spec, route=route, quiet=True)
        torch.manual_seed(100 + o.rank)
        ms, card = measure(ddp, torch.randn(4, side).to(dtype), o.steps, o.interface)
        said = [None] * o.ranks
        dist.all_gather_object(said, (card, digest(model)))
        name = "default " + gradwire.stats(layers=True)["layers"][0]["route"] if route is None and not spec.startswith("DDP") else route or ""
        if not spec.startswith("DDP"):
            gradwire.detach(ddp)
        if o.rank == 0:
            elements = sum(p.numel() for p in model.parameters())
            label = spec + (" bf16 model" if dtype == torch.bfloat16 and spec == "dense" else "")
            print(f"{label:20} {name:16} {ms:8.1f} {max(c for c, _ in said) / (4 * elements):17.3f}   "
                  f"{'equal' if len({d for _, d in said}) == 1 else 'DIFFER'}", flush=True)
    dist.destroy_process_group()


main()
