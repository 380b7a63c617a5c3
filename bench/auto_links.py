#!/usr/bin/env python3
"""bench/auto_links.py FOLDER: what bench/auto_links.sh left: after how many steps each change of the links had a new plan, and the step time it came
to, beside that of a run which had the rate from the start. Metrics are written every ten steps: the step of a change is up to ten (and a
second's) later than said."""
import json
import statistics
import sys

import runs as run_folders

LAST = 60  # steps that a rate is judged by


def median(run, first, last):
    return 1e3 * statistics.median(s["seconds"] for s in run["steps"] if first < s["step"] <= last)


def main(folder):
    runs = {name: run_folders.load(f"{folder}/{name}") for name in ("1gbit", "100mbit", "changing")}
    changing = runs["changing"]
    steps = len(changing["steps"])
    changes = [("1gbit", 0)] + [(rate, int(step)) for rate, step in (line.split() for line in open(f"{folder}/shaped"))]
    print(f"{'link':8} {'from step':>9} {'new plan after':>14} {'why':>9} {'ms/step':>9} {'from the start':>14} {'off':>7}")
    for i, (rate, at) in enumerate(changes):
        end = changes[i + 1][1] if i + 1 < len(changes) else steps
        plan = next((d for d in changing["auto"] if d["outcome"] == "switched" and d["bound_at"] > at), None)
        alone = runs[rate]
        here, there = median(changing, end - LAST, end), median(alone, len(alone["steps"]) - LAST, len(alone["steps"]))
        after = f"{plan['bound_at'] - at:14}" if plan and plan["bound_at"] <= end else f"{'none':>14}"
        print(f"{rate:8} {at:9} {after} {plan['reason'] if plan else '-':>9} {here:9.1f} {there:14.1f} {100 * (here / there - 1):+6.1f}%")
    print(f"{steps} steps of {changing['config']['steps']}, {sum(s['non_finite'] for s in changing['steps'])} not finite, state: {changing['state']}")
    for d in changing["auto"]:
        print(f"  step {d['step']:4} -> {d['bound_at']:4} {d['reason']:9} {d['outcome']:10} {d['words']}")


if len(sys.argv) != 2:
    sys.exit(__doc__)
main(sys.argv[1])
