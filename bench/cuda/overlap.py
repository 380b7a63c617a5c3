#!/usr/bin/env python3
"""Does the exchange run beside backward? ResNet-18 on a GPU under PyTorch's profiler, gradients through gradwire.

    python3 bench/cuda/overlap.py --ranks 2 --codec natural:bits=8 --trace trace.json

Prints, of rank 0 and the mean of three steps: how long backward's kernels ran, how long gradwire's did, how much of that beside backward,
and when the first layer was coded. The trace is for ui.perfetto.dev or chrome://tracing.
"""

import argparse
import re

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import resnet  # also finds the package

STEPS = 3
OURS = re.compile(r"gw_|gradwire|stream_kernel|encode_kernel|decode\d*_kernel|survey|settle|weigh|collect_kernel|digit_kernel|gather_kernel")
BACKWARD = re.compile(r"dgrad|wgrad|bn_bw|backward")


def union(spans):
    """Sorted, without overlaps."""
    out = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def length(spans):
    return sum(end - begin for begin, end in spans)


def common(a, b):
    total, i, j = 0, 0, 0
    while i < len(a) and j < len(b):
        total += max(0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return total


def tell(profiler):
    kernels = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA and not e.name.startswith("backward-")]
    steps = [e for e in profiler.events() if e.name.startswith("backward-") and e.device_type == torch.autograd.DeviceType.CPU]
    figures = []
    for step in steps:
        until = min((s.time_range.start for s in steps if s.time_range.start > step.time_range.start), default=float("inf"))
        mine = union([(e.time_range.start, e.time_range.end) for e in kernels
                      if OURS.search(e.name) and step.time_range.start <= e.time_range.start < until])
        others = union([(e.time_range.start, e.time_range.end) for e in kernels if BACKWARD.search(e.name)
                        and step.time_range.start <= e.time_range.start <= step.time_range.end])
        if mine and others:
            figures.append((length(others), length(mine), common(mine, [[others[0][0], others[-1][1]]]), mine[0][0] - others[0][0],
                            others[-1][1] - others[0][0], mine[-1][1] - others[-1][1]))
    mean = [sum(f[i] for f in figures) / len(figures) / 1e3 for i in range(6)]
    print(f"backward: kernels {mean[0]:.2f} ms of {mean[4]:.2f} ms; gradwire's kernels {mean[1]:.2f} ms, {mean[2]:.2f} ms of it before backward ended "
          f"({100 * mean[2] / mean[1]:.0f} %); the first {mean[3]:.2f} ms after backward began, the last {mean[5]:.2f} ms after it ended")


def run(rank, ranks, options):
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group(options.backend, rank=rank, world_size=ranks)
    import gradwire

    torch.manual_seed(0)
    x, y = torch.randn(options.batch, 1, 28, 28, device=device), torch.randint(10, (options.batch,), device=device)
    ddp = DistributedDataParallel(resnet.resnet18().to(device), gradient_as_bucket_view=True, bucket_cap_mb=4)
    gradwire.attach(ddp, options.codec, quiet=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)

    def step(number):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(ddp(x), y)
        torch.cuda.synchronize()
        with torch.profiler.record_function(f"backward-{number}"):
            loss.backward()
            torch.cuda.synchronize()
        optimizer.step()
        torch.cuda.synchronize()

    for i in range(8):
        step(i)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for i in range(STEPS):
            step(i)
    if rank == 0:
        if options.trace:
            profiler.export_chrome_trace(options.trace)
        print(f"{options.codec}, {ranks} ranks, {options.backend}: ", end="")
        tell(profiler)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--codec", default="natural:bits=8")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--trace", help="write the profiler's trace there")
    options = parser.parse_args()
    resnet.spawn(run, options)


if __name__ == "__main__":
    main()
