#!/usr/bin/env python3
"""A small CNN on Fashion-MNIST, data-parallel, its gradients through gradwire.

    python3 examples/pytorch/fashion_mnist.py --ranks 4 --codec natural:bits=8

Or under torchrun, without --ranks. Needs the images of Debian's dataset-fashion-mnist.
"""

import gzip
import json
import pathlib

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import launch

FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")


def load(part):
    with gzip.open(FOLDER / f"{part}-images-idx3-ubyte.gz") as images, gzip.open(FOLDER / f"{part}-labels-idx1-ubyte.gz") as labels:
        x = torch.frombuffer(bytearray(images.read()[16:]), dtype=torch.uint8).view(-1, 1, 28, 28).float() / 255
        return (x - 0.286) / 0.353, torch.frombuffer(bytearray(labels.read()[8:]), dtype=torch.uint8).long()


def network():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                               torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                               torch.nn.Flatten(), torch.nn.Linear(64 * 49, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def main(options, rank, ranks):
    import gradwire

    torch.manual_seed(options.seed)
    ddp = DistributedDataParallel(network())
    if options.codec != "none":
        gradwire.attach(ddp, options.codec, dense_below=options.dense_below, quiet=options.json)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=options.steps)
    x, y = load("train")
    mine = torch.Generator().manual_seed(1000 * options.seed + rank)  # every rank other images
    for step in range(options.steps):
        pick = torch.randint(0, len(x), (options.batch,), generator=mine)
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(x[pick]), y[pick])
        loss.backward()
        optimizer.step()
        schedule.step()
        if rank == 0 and not options.json and step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    if rank == 0:
        x, y = load("t10k")
        with torch.no_grad():
            right = sum((ddp.module(a).argmax(1) == b).sum().item() for a, b in zip(x.split(1000), y.split(1000)))
        sent = gradwire.stats(ddp)["bytes_sent"] / options.steps if options.codec != "none" else None
        launch.tell(options, {"task": "fashion-mnist", "codec": options.codec, "seed": options.seed, "steps": options.steps,
                              "accuracy": right / len(y), "bytes_a_step": sent})


if __name__ == "__main__":
    launch.start(main, __doc__, steps=600, batch=32)
