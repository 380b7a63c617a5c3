#!/usr/bin/env python3
"""lowrank by C and by the oracle: check_lowrank.py GRADWIRE; skips (77) where the build has no BLAS.

Matrices with at most one number a row and column make both products exact, whatever order BLAS adds in: there the
payload is the oracle's byte for byte, which shows the seeded start and the orthogonalisation's order. Elsewhere a
tolerance (oracle/lowrank.py: difference).
"""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import gwframe
from oracle import lowrank


def encoded(gradwire, folder, values, spec, seed, step):
    source, frame = folder / "x.f32", folder / "x.gw"
    source.write_bytes(struct.pack("<%df" % len(values), *values))
    subprocess.run([gradwire, "encode", "-q", "-c", spec, source, "-o", frame, "--seed", str(seed), "--step", str(step)],
                   check=True, stdout=subprocess.DEVNULL)
    return gwframe.read_frame(frame.read_bytes())


def one_a_row(rng, side, filled):
    """A square matrix: powers of two on `filled` places of a permutation."""
    where = rng.sample(range(side), side)
    out = [0.0] * (side * side)
    for i in range(filled):
        out[i * side + where[i]] = rng.choice((-1, 1)) * 2.0 ** rng.randrange(-3, 4)
    return out


def exact(gradwire, folder, rng):
    cases = [(side, rank, filled) for side, rank in ((16, 1), (16, 3), (37, 8), (64, 20))
             for filled in (side, 2, 1, 0)]
    for side, rank, filled in cases:
        values, seed, step = one_a_row(rng, side, filled), rng.getrandbits(64), rng.getrandbits(64)
        frame = encoded(gradwire, folder, values, f"lowrank:rank={rank},cols={side}", seed, step)
        bits = [gwframe.bits_of(v) for v in values]
        want = lowrank.encode_lowrank(bits, frame.segments[0].params, seed, step)
        assert frame.segments[0].payload == want, f"{side} x {side} with {filled} numbers, rank {rank}, seed {seed}"
    return len(cases)


def close(gradwire, folder, rng):
    cases = [(900, 4, 0), (901, 4, 0), (1000, 1, 100), (999, 5, 40), (3000, 12, 61), (2500, 24, 0)]
    for count, rank, cols in cases:
        values = [gwframe.fl(rng.gauss(0, 1e-2)) for _ in range(count)]
        seed = rng.getrandbits(64)
        spec = f"lowrank:rank={rank},cols={cols or lowrank.shape_of({'rank': rank, 'cols': 0}, count)[2]}"
        frame = encoded(gradwire, folder, values, spec, seed, 1)
        assert lowrank.shape_of(frame.segments[0].params, count)[0] == rank, "sent as it is: no test"
        wrong = lowrank.difference(frame.segments[0], frame, [gwframe.bits_of(v) for v in values])
        assert wrong is None, f"{count} elements, {spec}, seed {seed}: {wrong}"
    return len(cases)


def main():
    gradwire = os.path.abspath(sys.argv[1])
    listed = subprocess.run([gradwire, "codec", "list", "--json"], check=True, capture_output=True).stdout
    if "lowrank" not in (codec["name"] for codec in json.loads(listed)):
        print("skip: this build has no lowrank")
        sys.exit(77)
    rng = random.Random(9)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        print(f"{exact(gradwire, folder, rng)} payloads equal the oracle's, {close(gradwire, folder, rng)} are within tolerance")


if __name__ == "__main__":
    main()
