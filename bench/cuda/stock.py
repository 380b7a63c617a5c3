#!/usr/bin/env python3
"""The same work through stock PyTorch, eager and compiled: stock.py [--quick] [-n ELEMENTS] [NAME]…

GB/s of fp32 input, median of events around one call. What PyTorch cannot express in its own operators (packing 4-bit codes into
the wire's order, one random number a pair) is left out in PyTorch's favour.
"""

import argparse
import statistics

import torch


def timed(run, repeats):
    stream = torch.cuda.current_stream()
    times = []
    for i in range(repeats + 3):  # four in a row, as bench/cuda/time.cu does
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(stream)
        for k in range(4):
            run(4 * i + k)
        end.record(stream)
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) / 4)
    return statistics.median(times)


def cast_bf16(x, r):
    return x.to(torch.bfloat16)


def cast_f16(x, r):
    return x.to(torch.float16)


def natural(x, r):
    bits = x.view(torch.int32)
    noise = torch.randint_like(bits, 0, 1 << 23)
    exponent = ((bits & 0x7FFFFFFF) + noise) >> 23
    return (exponent | ((bits >> 24) & 0x80)).to(torch.uint8)


def dither(x, r, levels):
    rows = x.view(-1, 512)
    scale = rows.abs().amax(1, keepdim=True)
    code = torch.floor(rows.abs() * (levels / scale) + torch.rand_like(rows)).clamp_(max=levels).to(torch.uint8)
    return code | (rows < 0).to(torch.uint8) << 7, scale


def dither4(x, r):
    return dither(x, r, 7)


def dither8(x, r):
    return dither(x, r, 127)


def dither4_feedback(x, r):
    rows = (x + r).view(-1, 512)
    scale = rows.abs().amax(1, keepdim=True)
    code = torch.floor(rows.abs() * (7 / scale) + torch.rand_like(rows)).clamp_(max=7)
    return code.to(torch.uint8) | (rows < 0).to(torch.uint8) << 7, rows - torch.copysign(code * (scale / 7), rows)


def sign(x, r):
    rows = x.view(-1, 4096)
    return rows < 0, rows.abs().mean(1)


def topk(x, r):
    return torch.topk(x.abs(), x.numel() // 100, sorted=False)


def matrix_of(x):
    """A square if it can be, and the start of a power iteration of rank 4."""
    m = x.view(-1, 1 << (x.numel().bit_length() // 2))
    if m.shape not in starts:
        starts[m.shape] = torch.randn(m.shape[1], 4, device=x.device)
    return m, starts[m.shape]


starts = {}


def powersgd(x, r):
    m, start = matrix_of(x)
    p = torch.linalg.qr(m @ start)[0]  # as torch.distributed's powerSGD_hook does for ranks above 2
    return p, m.t() @ p


def powersgd_feedback(x, r):
    m, start = matrix_of(x + r)
    p = torch.linalg.qr(m @ start)[0]
    q = m.t() @ p
    return p, q, m - p @ q.t()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-n", type=int, default=64 << 20)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    repeats = 5 if args.quick else 15
    sets = [torch.randn(args.n, device="cuda") * 1e-3 for _ in range(2)]
    residual = torch.randn(args.n, device="cuda") * 1e-3
    out = torch.empty_like(residual)
    copy = timed(lambda i: out.copy_(sets[i % 2]), repeats)
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, copy {8 * args.n / copy * 1e-6:.0f} GB/s both ways")
    print(f"{'GB/s of fp32 input':<24} {'eager':>8} {'compiled':>9}")
    works = (cast_bf16, cast_f16, natural, dither4, dither4_feedback, dither8, sign, topk, powersgd, powersgd_feedback)
    for work in [w for w in works if not args.names or w.__name__ in args.names]:
        figures = []
        for run in (work, torch.compile(work)):
            try:
                ms = timed(lambda i: run(sets[i % 2], residual), repeats)
                figures.append(f"{4 * args.n / ms * 1e-6:.0f}")
            except Exception as error:  # a compiler that is not there is no reason to lose the rest
                figures.append(type(error).__name__)
        print(f"{work.__name__:<24} {figures[0]:>8} {figures[1]:>9}", flush=True)


if __name__ == "__main__":
    main()
