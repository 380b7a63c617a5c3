#!/usr/bin/env python3
"""Adds golden frames: make_golden.py GRADWIRE. Never overwrites one."""

import json
import os
import pathlib
import struct
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WIRE_VERSION = 1
SPECS = ["cast:to=f32", "cast:to=f16", "cast:to=bf16", "natural:bits=8", "natural:bits=9",
         "ndither:bits=2,bucket=64", "ndither:bits=4", "ndither:bits=8", "dither:bits=2",
         "dither:bits=3,bucket=64", "dither:bits=4", "dither:bits=8,bucket=1024",
         "dither:bits=5,rounding=nearest", "dither:bits=4,norm=l2", "ndither:bits=3,norm=l2,bucket=64", "sign", "sign:bucket=64",
         "topk:density=0.05", "topk:density=0.1,values=natural", "randk:density=0.05", "randk:density=0.1,values=natural",
         "adacomp:bin=50", "adacomp:bin=500", "adacomp:bin=63,cap=300",
         "lowrank:rank=2", "lowrank:rank=3,cols=20"]
OPTIONS = ["--seed", "1", "--step", "2", "--rank", "3"]


def file_of(spec):
    return "v%d-%s.gw" % (WIRE_VERSION, spec.replace(":", "-").replace(",", "-").replace("=", ""))


def words(count, state):
    """32-bit words of a plain linear congruential generator, the upper half of 64 bits."""
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        yield state >> 32


def gradient(count, state, scale):
    """Sums of four uniform numbers, some of them a thousand times larger."""
    draw = list(words(5 * count, state))
    return [(sum(draw[5 * i:5 * i + 4]) / 2 ** 32 - 2) * scale * (1000 if draw[5 * i + 4] % 50 == 0 else 1)
            for i in range(count)]


def f32(values):
    return struct.pack("<%df" % len(values), *values)


def edges():
    """Every kind of fp32 pattern, in buckets of their own and mixed."""
    fixed = [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000,
             0x3FAAAAAB, 0x7F000000, 0x7F7FFFFF, 0xFF7FFFFF, 0x33800000, 0x38800000, 0x477FE000, 0x477FF000]
    finite = [w & 0xBFFFFFFF for w in words(112, 7)]
    bad = [0x3F000000] * 60 + [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345] + [0x3E000000] * 70
    return struct.pack("<%dI" % len(fixed + finite + bad), *(fixed + finite + bad))


def make_input(path):
    half = struct.pack("<333e", *(v for v in gradient(333, 3, 1.0)))
    brain = b"".join(struct.pack("<I", w)[2:] for w in words(257, 4))
    tensors = [("normal", "F32", [7, 100], f32(gradient(700, 1, 1e-3))), ("blocks", "F32", [4200], f32(gradient(4200, 2, 1.0))),
               ("edges", "F32", [262], edges()), ("half", "F16", [3, 111], half), ("brain", "BF16", [257], brain),
               ("scalar", "F32", [], f32([-0.3])), ("empty", "F32", [0, 3], b"")]
    header, data = {}, b""
    for name, dtype, shape, raw in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    gradwire = os.path.abspath(sys.argv[1])
    source = HERE / "input.safetensors"
    if not source.exists():
        make_input(source)
    for spec in SPECS:
        frame = HERE / file_of(spec)
        if frame.exists():
            print("kept   ", frame.name)
            continue
        subprocess.run([gradwire, "encode", "-q", "-c", spec, source, "-o", frame, *OPTIONS], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([gradwire, "decode", frame, "-o", frame.with_suffix(".safetensors")], check=True, stdout=subprocess.DEVNULL)
        print("written", frame.name)


if __name__ == "__main__":
    main()
