#!/usr/bin/env python3
"""Trains under real DDP with gradwire: one process for each worker, on gloo, on this machine's processor.

    ddp.py --out OUT.jsonl [--model gpt --text FILE --steps 2000 --lr 2e-3 --seed 0 …] SPEC [plain]
    ddp.py --out OUT.jsonl --text FILE --file LIST        such lines from a file; runs that OUT has already are left out

SPEC: dense, or a codec of the library, such as adacomp:bin=50. Codecs that keep residuals go with optimizer=, unless `plain` follows.
--model: gpt, the lab's, with its first weights, data, learning rate and test for the same seed; lstm and cnn, twins of the
trainer's models (docs/train.md) with AdamW. One line of JSON: the test loss, the bytes that rank 0 sent as the library counts them,
how many times more DDP would have sent (ratio), and fp32 bytes over those of this rank's payloads (compression).
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
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, os.environ.get("GRADWIRE_PACKAGE", str(ROOT / "python")))
sys.path.append(str(ROOT / "examples" / "pytorch"))  # behind this folder, which has a gpt.py too
import fashion_mnist
import gradwire
from gpt import Gpt
from lab import B1, CLIP, learning_rate, read_text


class Task(torch.nn.Module):
    """A model, what it reads, and the mean loss on what it never saw."""

    batch, evals = None, 40

    def windows(self, text, o, dice):
        """A batch of all workers: places drawn alike on every rank."""
        offsets = torch.arange(self.length + 1)
        return text[torch.randint(len(text) - self.length - 1, (o.workers, o.batch, 1), generator=dice) + offsets]

    @torch.no_grad()
    def test(self):
        starts = torch.linspace(0, len(self.held) - self.length - 2, 16 * self.evals).long().view(self.evals, 16)
        windows = (torch.stack([self.held[a:a + self.length + 1] for a in row.tolist()]) for row in starts)
        return sum(self(x).item() for x in windows) / self.evals


class Gpts(Task):
    def __init__(self, o):
        super().__init__()
        self.gpt = Gpt(o.size, "cpu")
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(w.clone()) for w in self.gpt.first])
        self.length = self.gpt.length
        self.text, self.held = read_text(o.text, "cpu")

    def forward(self, x):
        return self.gpt.loss([w.unsqueeze(0) for w in self.weights], x.unsqueeze(0))

    def draw(self, rank, o, dice):
        return self.windows(self.text, o, dice)[rank].long()


class Lstm(Task):
    """64 wide, 256 units, windows of 64 characters, as the trainer's."""

    length = 64

    def __init__(self, o):
        super().__init__()
        self.text, self.held = read_text(o.text, "cpu")
        self.embedding, self.lstm, self.fc = torch.nn.Embedding(256, 64), torch.nn.LSTM(64, 256, batch_first=True), torch.nn.Linear(256, 256)

    def forward(self, x):
        return F.cross_entropy(self.fc(self.lstm(self.embedding(x[:, :-1]))[0]).flatten(0, 1), x[:, 1:].flatten())

    draw = Gpts.draw


class Cnn(Task):
    """Convolutions of 16 and 32 channels, two linear layers, as the trainer's."""

    def __init__(self, o):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 5, padding=2), torch.nn.MaxPool2d(2), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, padding=1),
            torch.nn.MaxPool2d(2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32 * 49, 384), torch.nn.ReLU(), torch.nn.Linear(384, 10))
        self.images, self.labels = fashion_mnist.load("train")

    def forward(self, batch):
        return F.cross_entropy(self.layers(batch[0]), batch[1])

    def draw(self, rank, o, dice):
        pick = torch.randint(0, len(self.images), (o.workers, o.batch), generator=dice)[rank]
        return self.images[pick], self.labels[pick]

    @torch.no_grad()
    def test(self):
        """Wrong answers (%)."""
        images, labels = fashion_mnist.load("t10k")
        return 100 - 100 * sum((self.layers(a).argmax(1) == b).sum().item() for a, b in zip(images.split(1000), labels.split(1000))) / len(labels)


class Payload:
    """Bytes that this rank encoded, and 4 for each number that it sent uncompressed: those of the link depend on the number of ranks."""

    def __init__(self, session):
        self.bytes, self._seen, self._session = 0, 0, session

    def add(self):
        """After a step."""
        self._of(self._session)
        adam = self._session.adam
        if adam is not None and adam.stats()["refreshes"] > self._seen:
            self._seen = adam.stats()["refreshes"]
            self._of(adam.refresh)

    def _of(self, session):
        for i, layer in enumerate(session.layers):
            self.bytes += session.layer_stats(i).payload_bytes or 4 * layer.elements


MODELS = {"gpt": Gpts, "lstm": Lstm, "cnn": Cnn}


def work(rank, o, store, queue):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=o.workers)
    torch.manual_seed(o.seed)
    model = MODELS[o.model](o)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=o.lr, betas=(B1, o.b2), weight_decay=o.decay)
    options = {} if o.plain else {"optimizer": optimizer}
    if o.warmup:
        options["warmup"] = o.warmup
    gradwire.attach(ddp, o.spec, dense_below=o.dense_below, seed=o.seed, quiet=rank > 0, **options)
    dice, began, guarded = torch.Generator().manual_seed(1000 + o.seed), time.time(), "adam" in gradwire.stats()
    payload = Payload(gradwire._find(ddp).session)
    for t in range(o.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(o, t)
        optimizer.zero_grad()
        loss = ddp(model.draw(rank, o, dice))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), CLIP)
        optimizer.step()
        if guarded:
            gradwire.tell_loss(loss.item())
        payload.add()
    stats = gradwire.stats()
    if rank == 0:
        everything = 4 * o.steps * sum(p.numel() for p in model.parameters())
        queue.put({"loss": round(model.test(), 4), "compression": round(everything / payload.bytes, 2), "bytes": stats["bytes_sent"], "ddp_bytes": stats["dense_bytes"],
                   "ratio": round(stats["ratio"], 2), "adam": stats.get("adam"), "seconds": round(time.time() - began, 1)})
    gradwire.detach(ddp)
    dist.barrier()


def run(o):
    settings = {k: v for k, v in vars(o).items() if k not in ("text", "out", "file")}
    if os.path.exists(o.out) and settings in [json.loads(line)["run"] for line in open(o.out)]:
        return
    queue = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (o, f"{folder}/store", queue), nprocs=o.workers)
    line = json.dumps({"run": settings, **queue.get()})
    print(line, flush=True)
    with open(o.out, "a") as out:
        out.write(line + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", nargs="?", default="adacomp")
    parser.add_argument("plain", nargs="?", choices=["plain"], help="feedback on gradients, torch's own AdamW")
    for key, default in dict(text="", out="", model="gpt", size="tiny", steps=2000, seed=0, lr=2e-3, lr_warm=100, workers=4, batch=4,
                             b2=0.95, decay=0.1, dense_below=8192, warmup=0).items():
        parser.add_argument("--" + key.replace("_", "-"), type=type(default), default=default)
    parser.add_argument("--file", help="more runs, one a line; # begins a comment")
    o = parser.parse_args()
    lines = [line.split("#")[0].split() for line in open(o.file)] if o.file else [[]]
    for line in lines:
        if line or not o.file:
            run(parser.parse_args(sys.argv[1:] + line) if line else o)


if __name__ == "__main__":
    main()
