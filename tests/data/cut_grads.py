#!/usr/bin/env python3
"""Cuts whole tensors of the first ranks out of a .safetensors file: cut_grads.py IN OUT RANKS TENSOR..."""

import json
import struct
import sys


def main():
    source, target, ranks, *names = sys.argv[1:]
    with open(source, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        body = file.read()
    cut, data = {"__metadata__": {**header["__metadata__"], "cut": f"{ranks} of 4 ranks, {len(names)} tensors each"}}, b""
    for name in [f"rank{rank}/{name}" for rank in range(int(ranks)) for name in names]:
        begin, end = header[name]["data_offsets"]
        cut[name] = {**header[name], "data_offsets": [len(data), len(data) + end - begin]}
        data += body[begin:end]
    text = json.dumps(cut, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
