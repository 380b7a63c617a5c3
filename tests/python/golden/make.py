#!/usr/bin/env python3
"""Makes a golden of gradwire.state_dict() of two ranks: make.py FILE [adam]. Never run again on a file that is there: a golden says what
an earlier version wrote. state-1.pt: version 0.1.0; state-2.pt: the first version with attach(…, optimizer=)."""

import copy
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import ranks
import torch
from ranks import gradwire


class Golden(torch.nn.Module):
    """Its gradient is what it is called with."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(16, 20))

    def forward(self, gradient):
        return (self.weight * gradient).sum()


def made(rank, n, adam):
    ddp = torch.nn.parallel.DistributedDataParallel(Golden())
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    options = {"optimizer": optimizer, "warmup": 2} if adam else {}
    gradwire.attach(ddp, "topk:density=0.1", dense_below=0, quiet=True, **options)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(6):
        optimizer.zero_grad()
        ddp(torch.randn(16, 20, generator=generator)).backward()
        optimizer.step()
    state = copy.deepcopy({"gradwire": gradwire.state_dict(), "optimizer": optimizer.state_dict(), "model": ddp.module.state_dict()})
    gradwire.detach(ddp)
    return state


if __name__ == "__main__":
    torch.save(ranks.run(2, made, "adam" in sys.argv[2:]), sys.argv[1])
