"""What the tests of attach(…, optimizer=AdamW) share."""

import copy

import torch
import torch.distributed as dist

import models
import ranks
from ranks import gradwire

LOSSLESS = "topk:density=1"  # every number is sent: the mean momentum arrives exactly
LR, BETAS, DECAY = 2e-3, (0.9, 0.95), 0.1


def on_2_and_4(function, *arguments, **options):
    """Every rule holds with two ranks and with four."""
    return [ranks.run(n, function, *arguments, **options) for n in (2, 4)]


def adamw(model, **options):
    options = {"lr": LR, "betas": BETAS, "weight_decay": DECAY, **options}
    return torch.optim.AdamW(model.parameters() if "params" not in options else options.pop("params"), **options)


def attach(model, spec="adacomp", optimizer=None, **options):
    """Of a module, or of one that DDP has wrapped already."""
    ddp = model if hasattr(model, "reducer") else models.ddp(model)
    optimizer = optimizer or adamw(ddp)
    options = {"dense_below": 200, "seed": 9, "quiet": True, "warmup": 4, **options}
    gradwire.attach(ddp, spec, optimizer=optimizer, **options)
    return ddp, optimizer


def step(ddp, optimizer, data, scale=1.0):
    optimizer.zero_grad()
    loss = models.loss_of(ddp, next(data))
    (loss * scale).backward()
    optimizer.step()
    return loss.item()


def steps(ddp, optimizer, data, count):
    return [step(ddp, optimizer, data) for _ in range(count)]


def phase(ddp=None):
    return gradwire.stats(ddp)["adam"]["phase"]


def own_gradient(model, batch):
    """This rank's alone, by a copy that DDP does not know."""
    alone = copy.deepcopy(model)
    alone.zero_grad()
    models.loss_of(alone, batch).backward()
    return [p.grad.clone() for p in alone.parameters()]


def mean(tensor):
    total = tensor.detach().clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def adam_of(ddp):
    """The object inside: tests look at this rank's momenta."""
    return gradwire._find(ddp).session.adam


def momenta(ddp):
    inner = adam_of(ddp)
    return {inner._layers[layer].name: u.clone() for layer, u in inner._momentum.items()}


class Given(torch.nn.Module):
    """Its gradient is what it is called with."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(60, 50))

    def forward(self, gradient):
        return (self.weight * gradient).sum()


def given(rank, t):
    return torch.randn(60, 50, generator=torch.Generator().manual_seed(1000 * t + rank))


def given_steps(ddp, optimizer, rank, first, count):
    """Sums of the mean momenta that were put in and of what arrived, over these steps."""
    put, got = torch.zeros(60, 50), torch.zeros(60, 50)
    for t in range(first, first + count):
        optimizer.zero_grad()
        ddp(given(rank, t)).backward()
        got += ddp.module.weight.grad
        optimizer.step()
        if momenta(ddp):
            put += mean(momenta(ddp)["weight"])
    return put, got
