"""Data sets small enough to train on in a test: images(folder), text(file). Made of a fixed generator, the same every time."""

import gzip
import pathlib
import random
import struct

SEED = 11


def images(folder, train=640, test=160):
    """Ten patterns under noise, in Fashion-MNIST's four files."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    rng = random.Random(SEED)
    patterns = [bytes(rng.choice((0, 200)) for _ in range(784)) for _ in range(10)]
    for prefix, n in (("train", train), ("t10k", test)):
        labels = bytes(rng.randrange(10) for _ in range(n))
        pixels = b"".join(bytes(min(255, p + (rng.getrandbits(6))) for p in patterns[label]) for label in labels)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(struct.pack(">4I", 0x803, n, 28, 28) + pixels, 1))
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(struct.pack(">2I", 0x801, n) + labels, 1))
    return folder


def text(file, words=6000):
    rng = random.Random(SEED)
    some = ["".join(rng.choice("abcdefghij") for _ in range(rng.randrange(2, 7))) for _ in range(40)]
    pathlib.Path(file).write_text(" ".join(rng.choice(some) for _ in range(words)))
    return file
