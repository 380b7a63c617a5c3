#!/usr/bin/env python3
"""What keeps a transformer's loss under heavy compression: trains a byte-level GPT with N simulated workers in one process.

    lab.py --text FILE --out OUT.jsonl [--device cuda] 'WAY [--size small --lr X --seed S --steps N …]' …

One line of JSON for each run. Runs that OUT has already are left out, so a run that was stopped can go on. On a GPU each kind of
step is one CUDA graph. text.py makes the text, ways.py says what a WAY is, README.md has the results.
"""

import argparse
import json
import math
import os
import time

import torch

from gpt import Gpt
from ways import B1, CLIP, DECAY, EPS, Codec, Layout, Way, dither, dither_bytes, refresh_beta2


class Run:
    """The state of one training run. All of it lies in tensors that never move, so that a step can be replayed."""

    def __init__(self, o, device):
        torch.manual_seed(o.seed)
        self.o, self.way, self.device = o, Way(o.way), device
        self.model = Gpt(o.size, device)
        shapes, n = self.model.shapes, o.workers
        self.is_coded = [len(s) > 1 and math.prod(s) >= 8192 for s in shapes]
        grain = self.way.bin if self.way.codec == "adacomp" else 512
        self.coded = Layout([math.prod(s) for s, c in zip(shapes, self.is_coded) if c], grain, device)
        self.small = Layout([math.prod(s) for s, c in zip(shapes, self.is_coded) if not c], 1, device)

        def zeros(*shape):
            return torch.zeros(shape, device=device)

        def row(workers=None):
            return zeros(*(() if workers is None else (workers,)), self.coded.total)

        def short(workers=None):
            return zeros(*(() if workers is None else (workers,)), self.small.total)

        local = self.way.codec not in ("dense", "dither")
        self.s = s = {"w": row(), "m": row(), "v": row(), "g": row(n), "ws": short(), "ms": short(), "vs": short(), "gs": short(n),
                      "norm": zeros(n), "sent": torch.zeros((), dtype=torch.double, device=device), "largest": zeros(), "loss": zeros()}
        if local:
            s["r"] = row(n)
            if self.way.space in ("mom", "upd"):
                s["u"] = row(n)
        for to, first in zip(self.views(s["w"], s["ws"]), self.model.first):
            to.copy_(first.flatten())
        self.lr, self.c1, self.c2, self.c2_before, self.c2s = zeros(), zeros(), zeros(), zeros(), zeros()
        self.b2 = zeros()  # of this step's matrices
        self.x = torch.zeros(n, o.batch, self.model.length + 1, dtype=torch.long, device=device)
        self.codec, self.graphs = Codec(self.way, self.coded, s["sent"]), {}

    def views(self, coded, small):
        """The model's tensors in order."""
        coded, small = iter(self.coded.views(coded)), iter(self.small.views(small))
        return [next(coded) if c else next(small) for c in self.is_coded]

    def weights(self, workers):
        flat = self.views(self.s["w"], self.s["ws"])
        return [w.view(shape).unsqueeze(0).expand(workers, *shape) for w, shape in zip(flat, self.model.shapes)]

    def gradients(self):
        s, p = self.s, [w.contiguous().requires_grad_(True) for w in self.weights(self.o.workers)]
        loss = self.model.loss(p, self.x)
        s["loss"].copy_(loss.detach() / self.o.workers)
        found = torch.autograd.grad(loss, p)
        for to, g in zip(self.views(s["g"], s["gs"]), found):
            to.copy_(g.reshape(self.o.workers, -1))
        if self.way.clip == "late":
            factor = (CLIP / (s["norm"] + 1e-6)).clamp(max=1.0).unsqueeze(1)
            s["norm"].copy_((s["g"].square().sum(1) + s["gs"].square().sum(1)).sqrt())
            s["g"].mul_(factor)
            s["gs"].mul_(factor)

    def unbiased(self, bits):
        s, w = self.s, self.way
        s["sent"].add_(self.o.workers * dither_bytes(self.coded.elements, bits))
        return dither(s["g"], bits).mean(0)

    def bounded(self, update):
        self.s["largest"].copy_(torch.maximum(self.s["largest"], update.abs().max()))
        if self.way.cap:
            update = update.clamp(-self.way.cap, self.way.cap)
        if not self.way.rms:
            return update
        return self.coded.times(update, (self.way.rms / (self.coded.rms(update) + 1e-12)).clamp(max=1.0))

    def adam(self, g, m, v, c2, b2=None):
        b2 = self.o.b2 if b2 is None else b2
        m.mul_(B1).add_(g, alpha=1 - B1)
        v.mul_(b2).add_((1 - b2) * g * g)
        return (m / self.c1) / ((v / c2).sqrt() + EPS)

    def clipped(self, mean):
        """What arrived, as clip_grad_norm_ after backward makes it."""
        if self.way.clip != "arrived":
            return mean
        short = self.s["gs"].mean(0)
        factor = (CLIP / ((mean.square().sum() + short.square().sum()).sqrt() + 1e-6)).clamp(max=1.0)
        self.s["gs"].mul_(factor)
        return mean * factor

    def compressed(self, kind):
        """The update of a step whose matrices are compressed."""
        s, w = self.s, self.way
        if w.space == "grad":
            return self.adam(self.clipped(self.codec.exchange(s["g"], s["r"])), s["m"], s["v"], self.c2)
        if kind == "var":
            before = (s["v"] / self.c2_before).sqrt() + EPS
            mean = self.unbiased(w.rbits)
            if w.skip:
                mean = self.clipped(mean)
            s["v"].mul_(self.b2).add_((1 - self.b2) * mean * mean)
        scale = (s["v"] / self.c2).sqrt() + EPS
        if w.space in ("mom", "upd"):
            s["u"].mul_(w.b1u).add_(s["g"], alpha=1 - w.b1u)
        if w.space == "upd" and kind == "var":
            s["r"].mul_(before / scale)
        if kind == "var" and w.skip:
            return torch.zeros_like(scale)
        if w.space == "upd":
            return self.bounded(self.codec.exchange(s["u"] / scale, s["r"]))
        if w.space == "mom":
            arrived = self.clipped(self.codec.exchange(s["u"], s["r"]))
        elif w.space == "rep":
            s["m"].copy_(self.codec.exchange(B1 * s["m"] + (1 - B1) * s["g"], s["r"]))
            arrived = s["m"]
        elif w.space == "gv":
            arrived = s["m"].mul_(B1).add_(self.codec.exchange(s["g"], s["r"]), alpha=1 - B1)
        return self.bounded(arrived / scale)

    def step(self, kind):
        s, o = self.s, self.o
        self.gradients()
        with torch.no_grad():
            s["sent"].add_(o.workers * self.small.elements * self.way.small / 8)
            if kind in ("dense", "warm"):
                if kind == "dense":
                    s["sent"].add_(4 * o.workers * self.coded.elements)
                    mean = s["g"].mean(0)
                else:
                    mean = self.unbiased(self.way.wbits)
                    if self.way.own and "u" in s:
                        s["u"].mul_(self.way.b1u).add_(s["g"], alpha=1 - self.way.b1u)
                update = self.adam(self.clipped(mean), s["m"], s["v"], self.c2)
            else:
                update = self.compressed(kind)
            update_small = self.adam(s["gs"].mean(0), s["ms"], s["vs"], self.c2s)
            for w, u in ((s["w"], update), (s["ws"], update_small)):
                w.mul_(1 - self.lr * DECAY).sub_(self.lr * u)

    def do(self, kind):
        if self.device != "cuda":
            return self.step(kind)
        if kind not in self.graphs:
            kept = {k: t.clone() for k, t in self.s.items()}
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    self.step(kind)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step(kind)
            for k, t in self.s.items():
                t.copy_(kept[k])
            self.graphs[kind] = graph
        self.graphs[kind].replay()

    @torch.no_grad()
    def test(self, held):
        """Mean loss over places spread evenly over the held-out text."""
        p, length, total = self.weights(1), self.model.length, 0.0
        starts = torch.linspace(0, len(held) - length - 2, 16 * self.o.evals).long().view(self.o.evals, 16)
        for row in starts:
            x = torch.stack([held[a:a + length + 1] for a in row.tolist()]).unsqueeze(0)
            total += self.model.loss(p, x).item()
        return total / self.o.evals


def read_text(path, device):
    """What is trained on, and what is held out, as bytes."""
    with open(path, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).to(device)
    cut = int(len(text) * 0.98)
    return text[:cut], text[cut:].long()


def learning_rate(o, t):
    return o.lr * min(1, (t + 1) / o.lr_warm) * (0.1 + 0.45 * (1 + math.cos(math.pi * t / o.steps)))


def train(o, text, held, device):
    run, began = Run(o, device), time.time()
    way, s = run.way, run.s
    (kinds, gaps), dice = way.kinds(o.steps), torch.Generator(device=device).manual_seed(1000 + o.seed)
    offsets, product, curve, diverged = torch.arange(run.model.length + 1, device=device), 1.0, [], None
    for t, kind in enumerate(kinds):
        run.x.copy_(text[torch.randint(len(text) - run.model.length - 1, (o.workers, o.batch, 1), generator=dice, device=device) + offsets])
        run.lr.fill_(learning_rate(o, t))
        b2 = o.b2 if kind != "var" else way.vb2 or refresh_beta2(o.b2, gaps[t])
        before, product = product, product * (b2 if kind != "held" or way.space == "grad" else 1)
        run.b2.fill_(b2)
        run.c1.fill_(1 - B1 ** (t + 1))
        run.c2.fill_(1 - product)
        run.c2_before.fill_(1 - before if before < 1 else 1)
        run.c2s.fill_(1 - o.b2 ** (t + 1))
        if t and kind != kinds[t - 1] and kinds[t - 1] == "warm" and "u" in s and not way.own:
            s["u"].copy_(s["m"].expand_as(s["u"]))
        run.do(kind)
        if (t + 1) % 100 == 0:
            loss = s["loss"].item()
            if not math.isfinite(loss):
                diverged = t + 1
                break
        if o.curve and (t + 1) % o.curve == 0:
            curve.append((t + 1, round(run.test(held), 4)))
    done = t + 1
    total = run.coded.elements + run.small.elements
    sent = s["sent"].item() / o.workers
    unbiased = sum(k != "held" for k in kinds[:done]) / done
    return {"loss": round(run.test(held), 4), "compression": round(4 * total * done / sent, 1), "unbiased": round(unbiased, 4),
            "largest": float(f"{s['largest'].item():.3g}"), "diverged": diverged, "parameters": total,
            "seconds": round(time.time() - began, 1), "curve": curve}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*")
    parser.add_argument("--file", help="more runs, one a line; # begins a comment")
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which no run is begun")
    base, began = parser.parse_args(), time.time()
    one = argparse.ArgumentParser(prog="a run")
    one.add_argument("way")
    for key, default in dict(size="small", steps=1200, seed=0, lr=1e-3, lr_warm=100, workers=4, batch=8, b2=0.95, evals=40, curve=0).items():
        one.add_argument("--" + key.replace("_", "-"), type=type(default), default=default)
    text, held = read_text(base.text, base.device)
    lines = base.ways + ([line.split("#")[0].strip() for line in open(base.file)] if base.file else [])
    options = [one.parse_args(line.split()) for line in lines if line]
    for o in options:
        Way(o.way)
    done = []
    if os.path.exists(base.out):
        done = [json.loads(line)["run"] for line in open(base.out)]
    for o in options:
        if vars(o) in done:
            continue
        if time.time() - began > base.limit:
            print("left out:", o.way, flush=True)
            continue
        line = json.dumps({"run": vars(o), **train(o, text, held, base.device)})
        print(f"{o.way} lr {o.lr:g} seed {o.seed}: " + line[line.index('"loss"'):], flush=True)
        with open(base.out, "a") as out:
            out.write(line + "\n")
        if base.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
