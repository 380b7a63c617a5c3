#!/usr/bin/env python3
"""bench/adapt_cost.py RUN...: what choosing levels costs a run that `gradwire train -c adapt/...` left: steps from a period's begin
until its choice binds, beside those of the rest of the period, where nothing is measured, sent or switched. A RUN without choices shows the
same steps of a run in which nothing is chosen: what they take anyway."""
import statistics
import sys

import runs as run_folders

FIRST = 5  # steps left out: caches and the allocator warm up


def main(folders):
    print(f"{'spec':32} {'choices':>7} {'median, ms':>10} {'cost':>7} {'longest step, medians: choosing':>32} {'else':>5}")
    runs = [run_folders.load(folder) for folder in folders]
    chosen = [[(d["step"], d["bound_at"]) for d in run.get("adapt", [])] for run in runs]
    for run, own in zip(runs, chosen):
        spans = own or max(chosen, key=len)
        seconds = {s["step"]: s["seconds"] for s in run["steps"][FIRST:]}
        median = statistics.median(seconds.values())
        choosing = [t for n, t in seconds.items() if any(a <= n <= b for a, b in spans)]
        rest = [t for n, t in seconds.items() if not any(a <= n <= b for a, b in spans)]
        cost = (statistics.mean(choosing) - statistics.mean(rest)) * len(choosing) / sum(seconds.values())
        print(f"{run['config']['spec']:32} {len(own):7} {1e3 * median:10.1f} {100 * cost:5.1f} % "
              f"{max(choosing) / median:32.2f} {max(rest) / median:5.2f}")


if len(sys.argv) < 2:
    sys.exit(__doc__)
main(sys.argv[1:])
