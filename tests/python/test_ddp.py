#!/usr/bin/env python3
"""What people do with DDP: accumulate, leave parameters out, several models, half precision, compile."""

import random
import time

import torch
import torch.distributed as dist

import models
import ranks
from ranks import gradwire

BIASED = ["topk:density=0.05", "adacomp", "lowrank:rank=2", "natural:bits=8"]


def buckets_do_not_matter(rank, n):
    """One bucket, whose messages go together, or many, in DDP's first order or the one it learns, coded by one thread or three: bit for bit the same. A layer taken for another,
    or a residual lost when buckets are made anew, would show."""
    for spec in BIASED:
        results, orders = [], []
        for cap in (0.01, 100):
            model = models.mixed()
            ddp = models.ddp(model, bucket_cap_mb=cap)
            gradwire.attach(ddp, spec, dense_below=200, threads=1 if cap < 1 else 3, quiet=True)
            models.train(ddp, models.batches(rank), 6)
            results.append(ranks.flat(model))
            orders.append([layer for bucket in gradwire.ddp.hook_of(ddp)._buckets for layer in bucket])
            gradwire.detach(ddp)
        assert torch.equal(*results), f"{spec}: {(results[0] - results[1]).abs().max()}"
    assert orders[0] != sorted(orders[0]), "buckets were never made anew: the test shows nothing"


def test_buckets_do_not_matter():
    ranks.run(2, buckets_do_not_matter)


def accumulate(rank, n):
    def gradients(attach):
        model = models.mixed()
        ddp = models.ddp(model)
        if attach:
            gradwire.attach(ddp, "dense", quiet=True)
        data = models.batches(rank)
        for _ in range(3):
            model.zero_grad()
            for micro in range(3):
                if micro < 2:
                    with ddp.no_sync():
                        models.loss_of(ddp, next(data)).backward()
                else:
                    models.loss_of(ddp, next(data)).backward()
        if attach:
            assert gradwire.stats()["steps"] == 3
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            ranks.same_everywhere(ranks.flat_gradients(model), "clipped")
            gradwire.detach(ddp)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        return ranks.flat_gradients(model)

    assert torch.equal(gradients(False), gradients(True))


def test_accumulate_and_clip():
    ranks.run(2, accumulate)


class Branches(torch.nn.Module):
    def __init__(self, both):
        super().__init__()
        self.both = both
        self.a, self.b, self.c = (torch.nn.Linear(40, 40) for _ in range(3))

    def forward(self, x, which):
        return (self.a(x) if which else self.b(x)) + self.c(x)


def unused(rank, n):
    results = []
    for attach in (False, True):
        torch.manual_seed(3)
        model = Branches(False)
        ddp = models.ddp(model, find_unused_parameters=True, bucket_cap_mb=0.005)
        if attach:
            gradwire.attach(ddp, "cast:to=f32", dense_below=0, quiet=True)
        g = torch.Generator().manual_seed(rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            optimizer.zero_grad()
            # rank by rank another branch in even steps, one that nobody takes in odd ones
            ddp(torch.randn(4, 40, generator=g), (rank + step // 2) % 2 == 0 if step % 2 == 0 else True).sum().backward()
            optimizer.step()
        results.append(ranks.flat(model))
        if attach:
            gradwire.detach(ddp)
    assert torch.equal(*results)


def test_unused_parameters():
    ranks.run(2, unused)


def static_graph(rank, n):
    results = []
    for options in ({}, {"static_graph": True}, {"gradient_as_bucket_view": True}):
        model = models.mixed()
        ddp = models.ddp(model, **options)
        gradwire.attach(ddp, "topk:density=0.05", dense_below=200, quiet=True)
        models.train(ddp, models.batches(rank), 5)
        results.append(ranks.flat(model))
        gradwire.detach(ddp)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_static_graph_and_bucket_views():
    ranks.run(2, static_graph)


def several(rank, n):
    """Two models at once, one of them on a part of the ranks; detached and attached again."""
    part = dist.new_group([1, 3])
    one = models.ddp(models.mixed(1))
    gradwire.attach(one, "natural:bits=8", dense_below=200, quiet=True)
    two = None
    if rank in (1, 3):
        two = models.ddp(models.mixed(2), process_group=part)
        gradwire.attach(two, "topk:density=0.1", dense_below=200, quiet=True)
        ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(two, "sign"), "attached already")
        ranks.raises(gradwire.GradwireError, gradwire.stats, "say which")
    a, b = models.batches(rank, 7), models.batches(rank, 8)
    for _ in range(3):
        models.train(one, a, 1)
        if two is not None:
            models.train(two, b, 1)
    ranks.same_everywhere(ranks.flat(one), "the first model")
    if two is not None:
        assert gradwire.stats(two)["steps"] == 3
        mine, other = ranks.flat(two), ranks.flat(two)
        dist.broadcast(other, 1, group=part)
        assert torch.equal(mine, other), "the second model"
        gradwire.detach(two)
    gradwire.detach(one)
    models.train(one, a, 2)  # as DDP would
    gradwire.attach(one, "sign", dense_below=200, quiet=True)
    models.train(one, a, 2)
    ranks.same_everywhere(ranks.flat(one), "attached again")
    gradwire.detach(one)


def test_several_models_and_groups():
    ranks.run(4, several)


class Scaled(torch.nn.Module):
    """One whose gradient is what it is given, in a type that torch may not multiply matrices of."""

    def __init__(self, dtype, rows=32):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(rows, 64, dtype=dtype))

    def forward(self, x):
        return self.weight * x


def halves(rank, n):
    """Sums are made in fp32 and rounded once, also where gloo itself cannot add the type."""
    # DDP itself cannot be made of bfloat16 parameters on the gloo of torch 1
    for dtype in (torch.float16, torch.bfloat16) if torch.__version__[0] != "1" else (torch.float16,):
        everyone = [torch.randn(32, 64, generator=torch.Generator().manual_seed(50 + r)).to(dtype) for r in range(n)]
        wanted = (sum(e.float() for e in everyone) / n).to(dtype)
        for spec in ("dense", "natural:bits=8", "topk:density=0.1"):
            model = Scaled(dtype)
            ddp = models.ddp(model)
            gradwire.attach(ddp, spec, dense_below=0, quiet=True)
            ddp(everyone[rank]).sum().backward()
            ranks.same_everywhere(ranks.flat_gradients(model), f"{spec}, {dtype}")
            assert spec != "dense" or torch.equal(model.weight.grad, wanted), dtype
            assert model.weight.grad.dtype == dtype
            gradwire.detach(ddp)


def test_half_precision():
    ranks.run(2, halves)


def ddp_of_half(model):
    """The gloo of torch 1 cannot broadcast bfloat16, as DDP does first. These parameters are zeros on all ranks."""
    if torch.__version__[0] != "1":
        return models.ddp(model)
    inside = torch.nn.parallel.distributed
    synchronise, inside._sync_module_states = inside._sync_module_states, lambda *_, **__: None
    try:
        return models.ddp(model)
    finally:
        inside._sync_module_states = synchronise


def bytes_of_halves(rank, n):
    """Uncompressed, a model of 16 bits sends what DDP would: not its numbers as fp32."""
    for dtype in (torch.float16, torch.bfloat16):
        for below in (0, 10**9):  # by itself, and with other small layers
            everyone = [torch.randn(512, 64, generator=torch.Generator().manual_seed(70 + r)).to(dtype) for r in range(n)]
            wanted = (sum(e.float() for e in everyone) / n).to(dtype)
            model = Scaled(dtype, 512)
            ddp = ddp_of_half(model)
            gradwire.attach(ddp, "dense", dense_below=below, quiet=True)
            for step in range(3):
                model.weight.grad = None
                ddp(everyone[rank]).sum().backward()
                assert torch.equal(model.weight.grad, wanted), (dtype, step)
            stats = gradwire.stats()
            least = stats["steps"] * 2 * (n - 1) * 2 * model.weight.numel() // n
            assert stats["steps"] == 3 and least <= stats["bytes_sent"] <= 1.01 * least, (dtype, least, stats)
            assert stats["dense_bytes"] == least and 0.99 <= stats["ratio"] <= 1, (dtype, least, stats)
            gradwire.detach(ddp)


def test_bytes_of_half_precision():
    ranks.run(2, bytes_of_halves)


def channels_last(rank, n):
    torch.manual_seed(0)
    results = []
    for form in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        model = torch.nn.Conv2d(8, 16, 3).to(memory_format=form)
        ddp = models.ddp(model)
        gradwire.attach(ddp, "cast:to=f32", dense_below=0, quiet=True)
        g = torch.Generator().manual_seed(rank)
        ddp(torch.randn(2, 8, 9, 9, generator=g)).pow(2).sum().backward()
        results.append(model.weight.grad.clone())
        gradwire.detach(ddp)
    torch.testing.assert_close(*results)


def test_channels_last():
    ranks.run(2, channels_last)


class Wait(torch.autograd.Function):
    """From the third step on backward goes on only when a layer behind this one has arrived. (DDP makes its first step
    with one bucket.)"""

    @staticmethod
    def forward(ctx, x, step):
        ctx.step = step
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        deadline = time.monotonic() + 30
        while ctx.step > 1 and all(layer["step"] != ctx.step for layer in gradwire.stats(layers=True)["layers"]):
            assert time.monotonic() < deadline, "nothing arrives while backward runs"
        return gradient, None


class Waiting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x, step):
        return self.second(Wait.apply(self.first(x), step))


def overlap(rank, n):
    ddp = models.ddp(Waiting(), bucket_cap_mb=0.001)
    gradwire.attach(ddp, "natural:bits=8", dense_below=0, quiet=True)
    for step in range(4):
        ddp(torch.ones(1, 64), step).sum().backward()
    gradwire.detach(ddp)


def test_exchange_overlaps_backward():
    ranks.run(2, overlap)


def delays(rank, n, steps):
    """Default buckets, random delays in every rank's backward."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)])
    slow = random.Random(rank)
    for module in model:
        module.register_full_backward_hook(lambda *_: time.sleep(slow.choice((0, 0, 0, 0, 0, 0, 0.001, 0.003))))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    gradwire.attach(ddp, "adacomp", dense_below=200, quiet=True)
    g = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.randn(4, 64, generator=g, requires_grad=True)).pow(2).mean().backward()
        optimizer.step()
    ranks.same_everywhere(ranks.flat(model), "after random delays")
    assert torch.isfinite(ranks.flat(model)).all()
    gradwire.detach(ddp)


def test_a_thousand_steps_with_random_delays():
    ranks.run(2, delays, 1000)


def compiled(rank, n):
    model = models.mixed()
    inside = models.ddp(torch.compile(model, backend="eager"), bucket_cap_mb=25)
    gradwire.attach(inside, "topk:density=0.05", dense_below=200, quiet=True)
    models.train(inside, models.batches(rank), 3)
    names = [layer["name"] for layer in gradwire.stats(layers=True)["layers"]]
    assert "head.weight" in names, names
    gradwire.detach(inside)
    other = models.mixed()
    ddp = models.ddp(other, bucket_cap_mb=25)
    outside = torch.compile(ddp, backend="eager")
    gradwire.attach(outside, "topk:density=0.05", dense_below=200, quiet=True)
    models.train(outside, models.batches(rank), 3)
    gradwire.detach(outside)
    assert torch.equal(ranks.flat(model), ranks.flat(other))
    ranks.same_everywhere(ranks.flat(model), "compiled")


def test_compiled():
    if not hasattr(torch, "compile"):
        return f"torch {torch.__version__} has no torch.compile"
    ranks.run(2, compiled)


class Writer:
    def __init__(self):
        self.said = []

    def add_scalar(self, name, value, step):
        self.said.append((name, value, step))


def scalars(rank, n):
    writer = Writer()
    ddp = models.ddp(models.mixed())
    gradwire.attach(ddp, "natural:bits=8", dense_below=200, writer=writer, quiet=True)
    models.train(ddp, models.batches(rank), 2)
    line = gradwire.summary(ddp)
    assert "natural:bits=8" in line and "2 ranks on 1 node, 2 steps" in line and "MB/step inside the node (DDP: " in line, line
    assert f"compression {gradwire.stats(ddp)['ratio']:.1f}x of DDP's bytes inside the node" in line, line
    assert rank != 0 or ("gradwire/ratio" in [s[0] for s in writer.said] and writer.said[-1][2] == 2), writer.said
    gradwire.detach(ddp)


def test_summary_and_scalars():
    ranks.run(2, scalars)


if __name__ == "__main__":
    ranks.main(globals())
