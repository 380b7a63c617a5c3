#!/usr/bin/env python3
"""At which link speed does each job stop profiting from compression? The table of docs/plan.md.

    bench/stops.py ../shared/data/jobs [--cluster FILE] [--build FOLDER]

Asks `gradwire advise` about every job of the folder on 8 nodes of 8 ranks and of 1, with the specs it looks at by itself and with
natural:bits=8 alone. "Profits": the step is at least 5 % shorter. None of it is measured but what the cluster file says is.
"""

import argparse
import json
import math
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHAPES = ((8, 8), (8, 1))
SPECS = ((), ("-c", "natural:bits=8"))


def advise(args, job, nodes, ranks, specs):
    command = [args.build / "cli" / "gradwire", "advise", job, "--cluster", args.cluster, "--nodes", str(nodes),
               "--ranks-per-node", str(ranks), *specs, "--json", "-q"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def stop(advice):
    """The rate in words; null stands for an answer that is the same at the end of the range."""
    if advice["changes_at_gbit"] is None:
        return "beyond 3200" if advice["answer"] == "yes" else "below 0.01"
    rate = advice["changes_at_gbit"]
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=pathlib.Path)
    parser.add_argument("--cluster", type=pathlib.Path, default=ROOT / "examples" / "clusters" / "h200-100g.json")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    args = parser.parse_args()
    link = json.loads(args.cluster.read_text())["inter"]["gbit_per_s"]
    shapes = [f"{nodes} × {ranks}" for nodes, ranks in SHAPES]
    print(f"| job | MB of fp32 | backward, ms | dense and planned step at {link:g} Gbit/s, ms ({shapes[0]}) | "
          + " | ".join(f"stops at, Gbit/s ({shape})" for shape in shapes) + " | "
          + " | ".join(f"natural:bits=8 alone ({shape})" for shape in shapes) + " |")
    print("|---" * (4 + len(SHAPES) * len(SPECS)) + "|")
    for path in sorted(args.jobs.glob("*.json")):
        job = json.loads(path.read_text())
        megabytes = sum(math.prod(tensor["shape"]) for tensor in job["tensors"]) * 4e-6
        asked = [advise(args, path, *shape, specs) for specs in SPECS for shape in SHAPES]
        print(f"| {path.stem} | {megabytes:.0f} | {job['backward_ms']:.1f} | {asked[0]['dense_ms']:.1f}, {asked[0]['step_ms']:.1f} | "
              + " | ".join(map(stop, asked)) + " |", flush=True)


if __name__ == "__main__":
    main()
