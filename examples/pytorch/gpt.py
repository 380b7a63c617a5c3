#!/usr/bin/env python3
"""A small GPT that reads text byte by byte, data-parallel, its gradients through gradwire.

    python3 examples/pytorch/gpt.py --ranks 4 --codec adacomp --momenta --text build/data/kjv.txt

Or under torchrun, without --ranks. The text is any file; scripts/text.sh makes the King James Bible of Debian's bible-kjv.
"""

import math

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import launch

WIDTH, HEADS, DEPTH, CONTEXT = 128, 4, 4, 64


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        n, t, _ = x.shape
        q, k, v = (part.view(n, t, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(WIDTH, dim=2))
        weights = (q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS) + mask[:t, :t]).softmax(3)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(256, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 256, bias=False)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def batch_of(text, size, generator):
    at = torch.randint(0, len(text) - CONTEXT - 1, (size,), generator=generator)
    window = torch.stack([text[i:i + CONTEXT + 1] for i in at]).long()
    return window[:, :-1], window[:, 1:]


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def main(options, rank, ranks):
    import gradwire

    with open(options.text, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    train, held_back = text[:-len(text) // 10], text[-len(text) // 10:]
    torch.manual_seed(options.seed)
    ddp = DistributedDataParallel(Gpt())
    optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-3)
    if options.codec != "none":
        gradwire.attach(ddp, options.codec, dense_below=options.dense_below, quiet=options.json,
                        optimizer=optimizer if options.momenta else None)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=options.steps)
    mine = torch.Generator().manual_seed(1000 * options.seed + rank)
    for step in range(options.steps):
        optimizer.zero_grad()
        loss = loss_of(ddp, batch_of(train, options.batch, mine))
        loss.backward()
        optimizer.step()
        schedule.step()
        if rank == 0 and not options.json and step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    if rank == 0:
        same = torch.Generator().manual_seed(0)
        with torch.no_grad():
            losses = [loss_of(ddp.module, batch_of(held_back, 64, same)).item() for _ in range(20)]
        sent = gradwire.stats(ddp)["bytes_sent"] / options.steps if options.codec != "none" else None
        launch.tell(options, {"task": "gpt", "codec": options.codec, "seed": options.seed, "steps": options.steps,
                              "loss": sum(losses) / len(losses), "bytes_a_step": sent})


if __name__ == "__main__":
    launch.start(main, __doc__, steps=400, batch=8)
