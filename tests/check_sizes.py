#!/usr/bin/env python3
"""Payload bytes and error of every codec on fixed inputs: check_sizes.py GRADWIRE [--update]

sizes.csv is committed. A changed line needs its reason in the commit that changes it.
"""

import csv
import io
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SPECS = ["cast:to=f32", "cast:to=f16", "cast:to=bf16", "natural:bits=8", "natural:bits=9"]
SPECS += [f"{codec}:bits={bits}" for codec in ("ndither", "dither") for bits in range(2, 9)]
SPECS += ["ndither:bits=3,bucket=128", "dither:bits=4,bucket=4096", "dither:bits=4,rounding=nearest", "dither:bits=8,norm=l2", "ndither:bits=5,norm=l2", "sign", "sign:bucket=256",
          "topk:density=0.01", "topk:density=0.01,values=natural", "randk:density=0.01", "randk:density=0.1,values=natural",
          "adacomp:bin=50", "adacomp:bin=500", "lowrank:rank=4", "lowrank:rank=1"]
INPUTS = [["--generate", "100000"], [HERE / "golden" / "input.safetensors"]]


def codecs_of(gradwire):
    listed = subprocess.run([gradwire, "codec", "list", "--json"], check=True, capture_output=True).stdout
    return {codec["name"] for codec in json.loads(listed)}


def codec_of(spec):
    return spec.split(":")[0]


def measure(gradwire, specs):
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["tensor", "elements", "spec", "bytes", "rel_error"])
    for source in INPUTS:
        command = [gradwire, "inspect", "--json", "--seed", "1", *source]
        for spec in specs:
            command += ["-c", spec]
        for row in json.loads(subprocess.run(command, check=True, capture_output=True).stdout):
            # the last bits of lowrank are the BLAS library's
            digits = 3 if row["spec"].startswith("lowrank") else 6
            error = "non-finite" if row["rel_error"] is None else "%.*g" % (digits, row["rel_error"])
            table.writerow([row["tensor"], row["elements"], row["spec"], row["bytes"], error])
    return out.getvalue()


def main():
    path = HERE / "sizes.csv"
    gradwire = os.path.abspath(sys.argv[1])
    known = codecs_of(gradwire)
    left_out = sorted({codec_of(spec) for spec in SPECS} - known)
    now = measure(gradwire, [spec for spec in SPECS if codec_of(spec) in known])
    if "--update" in sys.argv:
        assert not left_out, f"this build has no {left_out}: their lines would go"
        path.write_text(now)
        return
    if left_out:
        print("left out, not in this build:", *left_out)
    before = [line for line, row in zip(path.read_text().splitlines(), csv.reader(path.open())) if codec_of(row[2]) not in left_out]
    changed = [f"  now {b}\n  was {a}" for a, b in zip(before, now.splitlines()) if a != b]
    assert len(before) == len(now.splitlines()) and not changed, "sizes.csv has changed:\n" + "\n".join(changed)
    print(f"{len(before) - 1} sizes and errors as committed")


if __name__ == "__main__":
    main()
