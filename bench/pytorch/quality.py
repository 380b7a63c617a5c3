#!/usr/bin/env python3
"""Final quality of the two PyTorch examples by codec: mean and range over seeds, next to the uncompressed runs.

    bench/pytorch/quality.py [--python PYTHON] [--seeds 3] [--ranks 4] [--jobs 1] [--tasks fashion_mnist,gpt] [CODEC]...

"within" says whether the mean lies within the uncompressed runs' range, widened by that range: seed noise.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch"
CODECS = ["none", "cast:to=bf16", "natural:bits=8", "dither:bits=4", "topk:density=0.01", "adacomp", "lowrank:rank=4", "sign"]


def run(options, task, codec, seed):
    command = [options.python, str(EXAMPLES / f"{task}.py"), "--ranks", str(options.ranks), "--codec", codec, "--seed", str(seed),
               "--text", options.text, "--json"] + (["--steps", str(options.steps)] if options.steps else [])
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{task}, {codec}, seed {seed}: {done.stderr[-500:]}")
    print(lines[-1], file=sys.stderr, flush=True)
    return json.loads(lines[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("codecs", nargs="*", default=CODECS)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tasks", default="fashion_mnist,gpt")
    parser.add_argument("--text", default="build/data/kjv.txt")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    options = parser.parse_intermixed_args()
    for task in options.tasks.split(","):
        key = "accuracy" if task == "fashion_mnist" else "loss"
        print(f"\n{task}: {key}, {options.ranks} ranks, {options.seeds} seeds")
        print(f"{'codec':22} {'mean':>8} {'range':>17} {'kB a step':>10}  within")
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            runs = {c: [pool.submit(run, options, task, c, s) for s in range(options.seeds)] for c in options.codecs}
            dense = None
            for codec, futures in runs.items():
                found = [f.result() for f in futures]
                values = [f[key] for f in found]
                mean, least, most = sum(values) / len(values), min(values), max(values)
                dense = dense or (least, most)
                room = dense[1] - dense[0]
                within = "yes" if dense[0] - room <= mean <= dense[1] + room else "better" if (mean > dense[1]) == (key == "accuracy") else "no"
                sent = f"{found[0]['bytes_a_step'] / 1e3:10.1f}" if found[0]["bytes_a_step"] else f"{'':>10}"
                print(f"{codec:22} {mean:8.4f} {least:8.4f}-{most:.4f} {sent}  {within}", flush=True)


if __name__ == "__main__":
    main()
