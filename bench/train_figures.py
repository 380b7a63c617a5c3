#!/usr/bin/env python3
"""What docs/train.md says of runs beyond their table: bench/train_figures.py RUN SPEC

RUN is the folder of a comparison with several seeds. Prints how far SPEC's loss lies from dense's, and what each layer of SPEC sent
over time. Of a route that sends every payload to all others, the payload is what was sent over ranks - 1.
"""

import glob
import itertools
import json
import os
import statistics
import sys

import runs as run_folders

WINDOWS = 24


def runs_of(folder, spec):
    runs = [run_folders.load(os.path.dirname(path)) for path in sorted(glob.glob(os.path.join(folder, "*", "run.json")))]
    found = [run for run in runs if run["config"]["spec"] == spec and run["state"] == "finished"]
    assert found, f"{folder}: no finished run of {spec}"
    return found


def windows(run):
    losses = [step["loss"] for step in run["steps"]]
    size = len(losses) // WINDOWS
    return [statistics.mean(losses[i * size:(i + 1) * size]) for i in range(WINDOWS)]


def loss(dense, other):
    a, b = [windows(run) for run in dense], [windows(run) for run in other]
    inside = [min(x) <= statistics.mean(y) <= max(x) for x, y in zip(zip(*a), zip(*b))]
    beyond = max(statistics.mean(y) - max(x) for x, y in zip(zip(*a), zip(*b)))
    same = statistics.mean(abs(x - y) for s, t in zip(a, b) for x, y in zip(s, t))
    seeds = statistics.mean(abs(x - y) for s, t in itertools.combinations(a, 2) for x, y in zip(s, t))
    print(f"training loss, {WINDOWS} windows: the mean over seeds within dense's seeds in {sum(inside)}, above them by {max(beyond, 0):.4f} at most")
    print(f"  difference to dense of the same seed {same:.4f}, between seeds of dense {seeds:.4f}")


def ratios(runs):
    others = runs[0]["config"]["ranks"] - 1
    alone = [i for i, layer in enumerate(runs[0]["layers"]) if not layer["fused"]]
    print(f"{'layer':16} {'elements':>9} {'links':>7} {'payload':>8}   payload over time, mean of seeds (at steps "
          + ", ".join(str(s["step"]) for s in runs[0]["samples"][::4]) + ")")
    for i in alone:
        layers = [run["layers"][i] for run in runs]
        sent, dense = sum(x["bytes_sent"] for x in layers), sum(x["dense_bytes"] for x in layers)
        elements = layers[0]["elements"]
        steps = sum(len(run["steps"]) for run in runs)
        over_time = [4 * elements * others * len(runs) / sum(run["samples"][k]["layers"][i]["bytes_sent"] for run in runs)
                     for k in range(0, len(runs[0]["samples"]), 4)]
        print(f"{layers[0]['name']:16} {elements:9} {dense / sent:7.1f} {4 * elements * others * steps / sent:8.1f}   "
              + " ".join(f"{x:.0f}" for x in over_time))


def main():
    folder, spec = sys.argv[1:]
    dense, other = runs_of(folder, "dense"), runs_of(folder, spec)
    loss(dense, other)
    ratios(other)


if __name__ == "__main__":
    main()
