#!/usr/bin/env python3
"""bench/auto.py FOLDER: of the runs that `gradwire train --compare dense,... --seeds N` left in FOLDER, quality of the last test, and seconds of
training until a test was as good as the worst uncompressed run's last one, beside it. "within": the mean last test is no worse than the uncompressed
ones' mean less their range; only such ways compete. Times are means over the seeds that got there."""
import collections
import pathlib
import statistics
import sys

import runs as runs_of


def main(folder):
    ways = collections.defaultdict(list)
    for path in sorted(pathlib.Path(folder).glob("*/run.json")):
        run = runs_of.load(path.parent)
        ways[run["config"]["spec"]].append(run)
    bits = ways["dense"][0]["config"]["model"] == "lstm"

    def good(test):  # the higher the better
        return -test["bits"] if bits else 100 * test["accuracy"]

    last = {way: [good(run["tests"][-1]) for run in runs] for way, runs in ways.items()}
    dense = last["dense"]
    target, least = min(dense), statistics.mean(dense) - (max(dense) - min(dense))
    rows = []
    for way, runs in ways.items():
        reached = [next((t["seconds"] for t in run["tests"] if good(t) >= target), None) for run in runs]
        known = [t for t in reached if t is not None]
        step = statistics.median(s["seconds"] for run in runs for s in run["steps"][20:])
        total = statistics.mean(run["tests"][-1]["seconds"] for run in runs)
        rows.append((way, abs(statistics.mean(last[way])), max(last[way]) - min(last[way]), statistics.mean(last[way]) >= least, 1e3 * step, total,
                     len(known), statistics.mean(known) if known else float("nan")))
    to_dense = next(row[7] for row in rows if row[0] == "dense")
    print(f"{'way':20} {'bits' if bits else 'accuracy':>8} {'range':>6} {'within':>6} {'ms/step':>9} {'all, s':>7} {'to target':>9} {'seeds':>5} {'faster':>6}")
    for way, quality, spread, within, step, total, n, seconds in sorted(rows, key=lambda row: row[5]):
        print(f"{way:20} {quality:8.3f} {spread:6.3f} {'yes' if within else 'no':>6} {step:9.1f} {total:7.1f} {seconds:9.1f} {n:3}/{len(ways[way])} "
              f"{to_dense / seconds:6.2f}")
    print(f"target {abs(target):.3f}")


if len(sys.argv) != 2:
    sys.exit(__doc__)
main(sys.argv[1])
