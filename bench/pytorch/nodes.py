#!/usr/bin/env python3
"""Bytes on a node's network card and step times, default route against named ones: NETLAB run by bench/pytorch/nodes.sh.

    nodes.py RANK RANKS STORE INTERFACE [--spec SPEC]... [--warm N] [--steps N]

Every rank is one process and trains step.py's network on its data: what adacomp sends depends on the gradients. The first rank
of a node reads the interface's counter of sent bytes around the steps. All is in units of the fp32 gradient, per step. DDP in
fp32 and in bf16 are measured in the same run; torch 1 on gloo has no bf16. The two compressions are of a ring in the model's
dtype through that card: over what the interface counted, and by the stats() of its ranks.
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
import step as training  # noqa: E402

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


def of_stats(said):
    """The compression of the busiest node's card, from its ranks' own statistics."""
    if not said[0][2]:
        return ""
    node_of, found = said[0][3], []
    for node in set(node_of):
        mine = [s[2] for s, of in zip(said, node_of) if of == node]
        found.append(sum(s["far_dense_bytes"] for s in mine) / sum(s["far_bytes_sent"] for s in mine))
    return f"{min(found):.3f}"


def measure(ddp, data, dtype, warm, steps, interface, counters):
    """ms per step, bytes sent by this node's card per step, and what the rank's own counters say of the same steps."""
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)

    def step():
        x, y = next(data)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(x.to(dtype)), y).backward()
        optimizer.step()
    for _ in range(warm):
        step()
    counted = counters()
    times, before = [], None
    for _ in range(steps):
        dist.barrier()
        before = sent(interface) if before is None else before
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    dist.barrier()
    return 1e3 * statistics.median(times), (sent(interface) - before) / steps, {key: n - counted[key] for key, n in counters().items()}


def no_counters():
    return {}


def far_bytes():
    stats = gradwire.stats()
    return {key: stats[key] for key in ("far_bytes_sent", "far_dense_bytes")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rank", type=int)
    parser.add_argument("ranks", type=int)
    parser.add_argument("store")
    parser.add_argument("interface")
    parser.add_argument("--spec", action="append")
    parser.add_argument("--warm", type=int, default=100, help="steps of adacomp before those that are measured: its residuals have to grow")
    parser.add_argument("--steps", type=int, default=20)
    o = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = o.interface
    dist.init_process_group("gloo", init_method=f"file://{o.store}", rank=o.rank, world_size=o.ranks)
    half = [] if torch.__version__.startswith("1.") else [("DDP bf16", None, torch.bfloat16), ("dense", None, torch.bfloat16)]
    contestants = [("DDP fp32", None, torch.float32), ("dense", None, torch.float32), *half]
    contestants += [(spec, route, torch.float32) for spec in o.spec or SPECS for route in routes_of(spec)]
    if o.rank == 0:
        print(f"{'what':20} {'route':22} {'ms/step':>8} {'card, x gradient':>17} {'compression':>12} {'stats()':>8}   replicas", flush=True)
    best = {}
    for spec, route, dtype in contestants:
        torch.manual_seed(1)
        model = training.network().to(dtype)
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
        if not spec.startswith("DDP"):
            gradwire.attach(ddp, spec, route=route, quiet=True)
        ours = not spec.startswith("DDP")
        warm = o.warm if spec == "adacomp" else 2
        ms, card, counted = measure(ddp, training.batches(o.rank), dtype, warm, o.steps, o.interface, far_bytes if ours else no_counters)
        said = [None] * o.ranks
        dist.all_gather_object(said, (card, digest(model), counted, gradwire._attached[0].session.node_of if ours else None))
        name = "default " + max(gradwire.stats(layers=True)["layers"], key=lambda layer: layer["elements"])["route"] if route is None and not spec.startswith("DDP") else route or ""
        if not spec.startswith("DDP"):
            gradwire.detach(ddp)
        if o.rank == 0:
            elements = sum(p.numel() for p in model.parameters())
            label = spec + (" bf16 model" if dtype == torch.bfloat16 and spec == "dense" else "")
            sent = max(s[0] for s in said)
            ring = 2 * (o.ranks - 1) / o.ranks * elements * dtype.itemsize if hasattr(dtype, "itemsize") else 8 * (o.ranks - 1) / o.ranks * elements
            print(f"{label:20} {name:22} {ms:8.1f} {sent / (4 * elements):17.4f} {ring / sent:12.3f} {of_stats(said):>8}   "
                  f"{'equal' if len({s[1] for s in said}) == 1 else 'DIFFER'}", flush=True)
            if not spec.startswith("DDP") and route is None:
                best[label] = [sent, None, name]
            elif route is not None and (best[label][1] is None or sent < best[label][1][0]):
                best[label][1] = (sent, route)
    for label, (own, named, name) in best.items() if o.rank == 0 else ():
        if named is not None:
            print(f"{label}: {100 * (own / named[0] - 1):+.1f} % bytes by the default, {name.split()[-1]}, against the best named route, {named[1]}")
    dist.destroy_process_group()


main()
