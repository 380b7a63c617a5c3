#!/usr/bin/env python3
"""Seconds a step of PyTorch DDP by one way of exchanging gradients after the other, on slow links, as one table.

    sudo bench/pytorch/table.py NETLAB [--python PYTHON] [--nodes 4] [--rates 1gbit,200mbit,100mbit] [--delay 1us] [--steps 8] [--rounds 1] [--views] [--deep] [WAY]...

NETLAB is the tool that makes the links. Every way runs in processes of its own, one rank a node, one thread a rank; one that does
not end is "hung". Times are the median of STEPS after 4 more, on rank 0 (of compute and copies: on the slowest rank, for which an exchange would wait); with several
rounds, in which the ways take turns, the median of theirs.

limit     bytes that rank 0's interface sent, over the link's rate
beyond    step minus compute minus limit: negative where the wire is hidden behind computing
cpu       processor time of rank 0 a step, over that of compute alone
copies    DDP that exchanges nothing: what it does itself beyond computing
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WAYS = ["compute", "copies", "ddp", "fp16", "bf16hook", "powersgd:1", "powersgd:2", "powersgd:4", "powersgd-1bucket:1", "powersgd-1bucket:2",
        "powersgd-1bucket:4", "cast:to=bf16", "natural:bits=8", "dither:bits=4", "topk:density=0.01", "adacomp", "lowrank:rank=4"]


def netlab(tool, *arguments, timeout=60):
    """Its output, and whether it ended. What it started ends with it."""
    process = subprocess.Popen([tool, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        return process.communicate(timeout=timeout)[0], True
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            return process.communicate(timeout=10)[0], False
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[0], False


def measure(tool, python, way, steps, words, patience):
    text, ended = netlab(tool, "run", python, str(HERE / "step.py"), way, str(steps), *words, timeout=patience)
    for line in text.splitlines():
        at = line.find('{"way"')
        if at >= 0:
            return json.loads(line[at:])
    if not ended:
        return {"way": way, "said": "hung"}
    said = [line for line in text.splitlines() if "Error" in line or "error" in line]
    return {"way": way, "said": (said[-1] if said else text[-100:]).split("Error: ")[-1][:60]}


def middle(rounds):
    """Of one way: each figure's median, the widest range; what it said if it ever failed."""
    failed = [f for f in rounds if "ms" not in f]
    if failed or len(rounds) == 1:
        return (failed or rounds)[0]
    found = {name: statistics.median(f[name] for f in rounds) for name in ("ms", "cpu_ms", "megabytes")}
    return dict(rounds[0], **found, least_ms=min(f["least_ms"] for f in rounds), most_ms=max(f["most_ms"] for f in rounds))


def bits(rate):
    number, unit = (rate[:-4], rate[-4:]) if rate.endswith("gbit") or rate.endswith("mbit") else (rate, "")
    return float(number) * {"gbit": 1e9, "mbit": 1e6}[unit]


def show(rate, found):
    compute = next((f for f in found if f["way"] == "compute" and "ms" in f), None)
    dense = next((f for f in found if f["way"] == "ddp" and "ms" in f), None)
    print(f"\n{rate}")
    print(f"{'way':22} {'ms/step':>9} {'range':>11} {'of ddp':>6} {'MB sent':>8} {'limit ms':>8} {'beyond ms':>9} {'cpu ms':>6}")
    for f in found:
        if "ms" not in f:
            print(f"{f['way']:22} {f['said']}")
            continue
        limit = 8e3 * f["megabytes"] * 1e6 / bits(rate)
        beyond = f"{f['ms'] - compute['ms'] - limit:9.0f}" if compute else ""
        print(f"{f['way']:22} {f['ms']:9.0f} {f['least_ms']:5.0f}-{f['most_ms']:<5.0f} "
              f"{f['ms'] / dense['ms'] if dense else float('nan'):6.2f} {f['megabytes']:8.2f} {limit:8.0f} {beyond:>9} "
              f"{f['cpu_ms'] - (compute['cpu_ms'] if compute else 0):6.0f}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("netlab")
    parser.add_argument("ways", nargs="*", default=WAYS)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--nodes", default="4")
    parser.add_argument("--rates", default="1gbit,200mbit,100mbit")
    parser.add_argument("--delay", help="one way; without it links let 128 KiB through for free after a pause")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--views", action="store_true", help="DDP with gradient_as_bucket_view, which saves it two copies")
    parser.add_argument("--deep", action="store_true", help="a network of 47 matrices, instead of one of 4")
    parser.add_argument("--json", action="store_true", help="lines of JSON too")
    options = parser.parse_intermixed_args()
    words = [word for word in ("views", "deep") if getattr(options, word)]
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    for rate in options.rates.split(","):
        netlab(options.netlab, "down")
        said, _ = netlab(options.netlab, "up", options.nodes, rate, *([options.delay] if options.delay else []))
        found = {way: [] for way in options.ways}
        patience = 60 + 60 * 1e9 / bits(rate) / 4 + 0.06 * options.steps * 1e9 / bits(rate) * 30
        try:
            for way in options.ways * options.rounds:
                found[way].append(measure(options.netlab, options.python, way, options.steps, words, patience))
                print(json.dumps(dict(found[way][-1], rate=rate)) if options.json else f"  {rate} {way} done", file=sys.stderr, flush=True)
        finally:
            netlab(options.netlab, "down")
        show(rate, [middle(rounds) for rounds in found.values()])


if __name__ == "__main__":
    main()
