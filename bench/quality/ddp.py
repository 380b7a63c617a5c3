#!/usr/bin/env python3
"""The lab's GPT under real DDP with gradwire: one process for each worker, on gloo, on this machine's processor.

    ddp.py --text FILE --out OUT.jsonl [--size tiny --steps 2000 --lr 2e-3 --seed 0 …] SPEC [plain]

SPEC: dense, or a codec of the library, such as adacomp:bin=50. Codecs that keep residuals go with optimizer=, unless `plain` follows.
The model, its first weights, the data and the learning rate are those of lab.py with the same seed; so is the test. One line of JSON:
test loss, the bytes that rank 0 sent as the library counts them, and how many times more DDP would have sent.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import gradwire
from gpt import Gpt
from lab import B1, CLIP, DECAY, learning_rate, read_text


class Model(torch.nn.Module):
    """The lab's model of one worker."""

    def __init__(self, size):
        super().__init__()
        self.gpt = Gpt(size, "cpu")
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(w.clone()) for w in self.gpt.first])

    def forward(self, x):
        return self.gpt.loss([w.unsqueeze(0) for w in self.weights], x.unsqueeze(0))


@torch.no_grad()
def test(model, held, evals):
    length, total = model.gpt.length, 0.0
    starts = torch.linspace(0, len(held) - length - 2, 16 * evals).long().view(evals, 16)
    for row in starts:
        total += model(torch.stack([held[a:a + length + 1] for a in row.tolist()])).item()
    return total / evals


def work(rank, o, store, queue):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=o.workers)
    text, held = read_text(o.text, "cpu")
    torch.manual_seed(o.seed)
    model = Model(o.size)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=o.lr, betas=(B1, o.b2), weight_decay=DECAY)
    options = {} if o.plain else {"optimizer": optimizer}
    if o.warmup:
        options["warmup"] = o.warmup
    gradwire.attach(ddp, o.spec, dense_below=8192, seed=o.seed, quiet=rank > 0, **options)
    dice, began = torch.Generator().manual_seed(1000 + o.seed), time.time()
    offsets = torch.arange(model.gpt.length + 1)
    for t in range(o.steps):
        x = text[torch.randint(len(text) - model.gpt.length - 1, (o.workers, o.batch, 1), generator=dice) + offsets][rank].long()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(o, t)
        optimizer.zero_grad()
        loss = ddp(x)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), CLIP)
        optimizer.step()
        if "optimizer" in options and "adam" in gradwire.stats():
            gradwire.tell_loss(loss.item())
    stats = gradwire.stats()
    if rank == 0:
        queue.put({"loss": round(test(model, held, o.evals), 4), "bytes": stats["bytes_sent"], "ddp_bytes": stats["dense_bytes"],
                   "ratio": round(stats["ratio"], 2),
                   "adam": stats.get("adam"), "seconds": round(time.time() - began, 1)})
    gradwire.detach(ddp)
    dist.barrier()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec")
    parser.add_argument("plain", nargs="?", choices=["plain"], help="feedback on gradients, torch's own AdamW")
    for key, default in dict(text="", out="", size="tiny", steps=2000, seed=0, lr=2e-3, lr_warm=100, workers=4, batch=4, b2=0.95, evals=40,
                             warmup=0).items():
        parser.add_argument("--" + key.replace("_", "-"), type=type(default), default=default)
    o = parser.parse_args()
    run = {k: v for k, v in vars(o).items() if k not in ("text", "out")}
    if os.path.exists(o.out) and run in [json.loads(line)["run"] for line in open(o.out)]:
        return
    queue = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (o, f"{folder}/store", queue), nprocs=o.workers)
    line = json.dumps({"run": run, **queue.get()})
    print(line, flush=True)
    with open(o.out, "a") as out:
        out.write(line + "\n")


if __name__ == "__main__":
    main()
