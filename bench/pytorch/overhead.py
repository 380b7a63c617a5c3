#!/usr/bin/env python3
"""What the hook itself costs: DDP alone beside our dense route, ranks on this machine, as a share of the step.

    bench/pytorch/overhead.py [--python PYTHON] [--ranks 1,2] [--rounds 5] [--steps 12]

Rounds take turns, since the machine's speed drifts; a round's figure is its median step, the table's the median of rounds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

STEP = pathlib.Path(__file__).resolve().parent / "step.py"


def step_ms(options, ranks, way, port):
    processes = [subprocess.Popen([options.python, str(STEP), way, str(options.steps)], stdout=subprocess.PIPE, text=True,
                                  env=dict(os.environ, RANK=str(r), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                                           OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"))
                 for r in range(ranks)]
    said = [p.communicate(timeout=300)[0] for p in processes]
    return json.loads(next(line for line in said[0].splitlines() if line.startswith("{")))["ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    port = 29600
    print(f"{'ranks':>5} {'DDP ms':>8} {'range':>11} {'dense through us':>16} {'range':>11} {'more':>7}")
    for ranks in map(int, options.ranks.split(",")):
        found = {"ddp": [], "dense": []}
        for _ in range(options.rounds):
            for way, times in found.items():
                port += 1
                times.append(step_ms(options, ranks, way, port))
                print(f"  {ranks} ranks, {way}: {times[-1]:.0f} ms", file=sys.stderr, flush=True)
        a, b = (statistics.median(found[way]) for way in ("ddp", "dense"))
        print(f"{ranks:5} {a:8.0f} {min(found['ddp']):5.0f}-{max(found['ddp']):<5.0f} {b:16.0f} "
              f"{min(found['dense']):5.0f}-{max(found['dense']):<5.0f} {100 * (b / a - 1):+6.1f} %", flush=True)


if __name__ == "__main__":
    main()
