#!/usr/bin/env python3
"""Does following `gradwire advise` word for word keep the quality? The table of docs/plan.md.

    bench/advise.py [--model cnn] [--link 200mbit] [--steps 300] [--seeds 3] [--build FOLDER] [--out FOLDER]

Profiles a job, asks for advice, runs the commands that the advice prints, and trains with the plan and uncompressed
from the same seeds. Ranks are threads joined by a virtual link; steps and seeds are all that is added to the commands.
Exit status 1 if the mean of the plan's runs is outside the uncompressed runs' range, or the plan sent more than a third
of their bytes.
"""

import argparse
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

import runs

ROOT = pathlib.Path(__file__).resolve().parents[1]
MOST_OF_DENSE = 1 / 3


def call(args, words):
    """Runs `gradwire WORDS` in the folder of the runs, so that files have the names of the advice."""
    words = [args.build / "cli" / "gradwire" if word == "gradwire" else word for word in words]
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd=args.out).stdout


def advised(args):
    """The `gradwire` commands behind "Next:", as lists of words."""
    text = call(args, ["gradwire", "advise", "job.json", "--nodes", str(args.ranks), "--link", args.link, "-q"])
    print(text)
    if not text.startswith("Yes"):
        sys.exit("the answer is no: there is nothing to follow")
    lines = [line.split() for line in text.split("Next:\n")[1].splitlines()]
    return [line for line in lines if line[0] == "gradwire"]


def train(args, command, name, seed):
    """Accuracy in per cent, megabytes sent by a rank, milliseconds a step."""
    folder = f"{name}-{seed}"
    call(args, [*command, "--steps", str(args.steps), "--seed", str(seed), "--sample", "0", "-q", "-o", folder])
    run = runs.load(args.out / folder)
    sent = run["summary"]
    return 100 * run["tests"][-1]["accuracy"], sent["bytes_sent"] * 1e-6, 1e3 * sent["seconds"] / sent["steps"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--link", default="200mbit")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "advise")
    args = parser.parse_args()
    args.build, args.out = args.build.resolve(), args.out.resolve()
    os.makedirs(args.out)
    job = ["gradwire", "train", "--model", args.model, "--ranks", str(args.ranks), "--link", args.link]
    call(args, [*job, "--steps", "40", "--profile", "job.json", "-q", "-o", "profiled"])
    write, follow = advised(args)
    call(args, write)
    assert "--plan" in follow, shlex.join(follow)
    dense = follow[:follow.index("--plan")]
    ways = {"dense": dense, "plan": follow}
    found = {name: [] for name in ways}
    for seed in range(1, args.seeds + 1):
        for name, command in ways.items():
            found[name].append(train(args, command, name, seed))
    print(f"{shlex.join(follow)} --steps {args.steps}, seeds 1 to {args.seeds}\n")
    print("| | accuracy (%), mean (seeds) | MB sent by a rank | ms/step |\n|---|---|---|---|")
    for name, results in found.items():
        accuracy, sent, step = zip(*results)
        print(f"| {name} | {statistics.mean(accuracy):.2f} ({', '.join(f'{a:.2f}' for a in accuracy)}) "
              f"| {statistics.mean(sent):.1f} | {statistics.median(step):.1f} |")
    accuracy = [result[0] for result in found["dense"]]
    mean = statistics.mean(result[0] for result in found["plan"])
    share = sum(result[1] for result in found["plan"]) / sum(result[1] for result in found["dense"])
    within = min(accuracy) <= mean <= max(accuracy)
    print(f"\nplan {mean:.2f} %, dense {min(accuracy):.2f} to {max(accuracy):.2f} %: {'within' if within else 'outside'}; "
          f"{share:.3f} of dense's bytes")
    return 0 if within and share <= MOST_OF_DENSE else 1


if __name__ == "__main__":
    sys.exit(main())
