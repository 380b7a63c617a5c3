#!/usr/bin/env python3
"""Real gradients: inspect's numbers against the oracle's on the same frame.

check_real.py GRADWIRE GRADS.safetensors
"""

import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SPECS = ["natural:bits=8", "ndither:bits=4", "dither:bits=4", "cast:to=bf16"]


def main():
    gradwire, grads = sys.argv[1:]
    command = [gradwire, "inspect", grads, "--json"]
    for spec in SPECS:
        command += ["-c", spec]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    compared = 0
    with tempfile.TemporaryDirectory() as folder:
        frame = pathlib.Path(folder) / "grads.gw"
        for spec in SPECS:
            subprocess.run([gradwire, "encode", "-c", spec, grads, "-o", frame], check=True, stdout=subprocess.DEVNULL)
            theirs = json.loads(subprocess.run([sys.executable, HERE / "gwframe.py", frame, "--json", "--against", grads],
                                               check=True, capture_output=True).stdout)
            ours = [row for row in rows if row["spec"] == spec]
            assert [r["tensor"] for r in ours] == [r["tensor"] for r in theirs]
            for a, b in zip(ours, theirs):
                for key in ("elements", "bytes", "bits_per_element"):
                    assert a[key] == b[key], (a, b)
                for key in ("rel_error", "cosine"):
                    assert abs(a[key] - b[key]) <= 1e-11 * abs(b[key]), (a, b)
                compared += 1
    dense = [r for r in rows if r["spec"] == "natural:bits=8" and r["elements"] >= 5000]
    errors = [r["rel_error"] for r in dense]
    assert errors and all(0.07 <= e <= 0.09 for e in errors), errors
    print(f"{compared} rows equal the oracle's; natural's rel_error on {len(dense)} dense layers: "
          f"{min(errors):.4f} to {max(errors):.4f}")


if __name__ == "__main__":
    main()
