#!/usr/bin/env python3
"""State that survives a restart, another number of ranks, and a step that the loss scaler skips."""

import torch

import models
import ranks
from ranks import gradwire

SPECS = ["topk:density=0.05", "adacomp", "lowrank:rank=2", "sign", "randk:density=0.1", "natural:bits=8",
         "adapt:period=4/topk:density=0.05"]


def resume(rank, n):
    for spec in SPECS:
        whole, first = models.mixed(), models.mixed()
        ddp = models.ddp(whole)
        gradwire.attach(ddp, spec, dense_below=200, seed=9, quiet=True)
        data = models.batches(rank)
        plain_sgd(ddp, data, 7)
        gradwire.detach(ddp)

        ddp, data = models.ddp(first), models.batches(rank)
        gradwire.attach(ddp, spec, dense_below=200, seed=9, quiet=True)
        plain_sgd(ddp, data, 3)
        state, weights = gradwire.state_dict(ddp), {k: v.clone() for k, v in first.state_dict().items()}
        plain_sgd(ddp, models.batches(rank, 77), 2)  # what is loaded replaces what was
        gradwire.detach(ddp)

        second = models.mixed(seed=4)
        second.load_state_dict(weights)
        ddp = models.ddp(second)
        gradwire.attach(ddp, spec, dense_below=200, seed=9, quiet=True)
        gradwire.load_state_dict(state)
        plain_sgd(ddp, data, 4)
        gradwire.detach(ddp)
        assert torch.equal(ranks.flat(whole), ranks.flat(second)), f"{spec}: {(ranks.flat(whole) - ranks.flat(second)).abs().max()}"


def plain_sgd(model, data, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        models.loss_of(model, next(data)).backward()
        optimizer.step()


def test_resume_bit_for_bit():
    ranks.run(2, resume)


class Given(torch.nn.Module):
    """Its gradient is what it is called with."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(40, 50))

    def forward(self, gradient):
        return (self.weight * gradient).sum()


def given(rank, seed):
    return torch.randn(40, 50, generator=torch.Generator().manual_seed(100 * seed + rank))


def one_step(spec, gradient, **options):
    ddp = models.ddp(Given())
    gradwire.attach(ddp, spec, dense_below=0, quiet=True, **options)
    ddp(gradient).backward()
    return ddp, ddp.module.weight.grad.clone()


def save_on_four(rank, n):
    ddp, mean = one_step("topk:density=0.1", given(rank, 1))
    return gradwire.state_dict(ddp), mean * n


def load_elsewhere(rank, n, states):
    ddp = models.ddp(Given())
    gradwire.attach(ddp, "dense", dense_below=0, quiet=True)
    if n != 4:
        ranks.raises(gradwire.GradwireError, lambda: gradwire.load_state_dict(states[0]), "states of all old ranks")
    gradwire.load_state_dict(states)
    ddp(torch.zeros(40, 50)).backward()  # what the residuals hold comes with the next gradient
    return ddp.module.weight.grad * n


def test_another_number_of_ranks():
    saved = ranks.run(4, save_on_four)
    states, sent = [s for s, _ in saved], saved[0][1]
    wanted = sum(given(r, 1) for r in range(4))
    assert not torch.allclose(sent, wanted, atol=1e-3)
    for n in (1, 2, 3):
        kept = ranks.run(n, load_elsewhere, states)[0]
        torch.testing.assert_close(sent + kept, wanted, rtol=1e-5, atol=1e-5)


def wrong_states(rank, n):
    ddp, _ = one_step("topk:density=0.1", given(rank, 1))
    mine = gradwire.state_dict(ddp)
    other = dict(mine, rank=1 - rank)
    ranks.raises(gradwire.GradwireError, lambda: gradwire.load_state_dict({"x": 1}), "not one of gradwire's")
    ranks.raises(gradwire.GradwireError, lambda: gradwire.load_state_dict(other), "was given what rank")
    broken = dict(mine, residuals=mine["residuals"].clone())
    broken["residuals"][len(broken["residuals"]) // 2] ^= 1
    ranks.raises(gradwire.GradwireError, lambda: gradwire.load_state_dict(broken))
    gradwire.load_state_dict(mine)
    gradwire.detach(ddp)


def test_wrong_states_are_refused():
    ranks.run(2, wrong_states)


class Scaler:
    def __init__(self):
        self.scale = 1.0

    def get_scale(self):
        return self.scale


def overflow(rank, n):
    """A NaN on one rank: non-finite on all, and to every residual the step never happened, also to the other layers'."""
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Given(), Given()

        def forward(self, x, y):
            return self.a(x) + self.b(y)

    for scaler in (None, Scaler()):
        ddp = models.ddp(Two())
        gradwire.attach(ddp, "topk:density=0.1", dense_below=0, scaler=scaler, quiet=True)
        ddp(given(rank, 1), given(rank, 2)).backward()
        before = gradwire.state_dict(ddp)["residuals"]
        bad = given(rank, 3)
        if rank == 1:
            bad[3, 4] = float("nan")
        ddp.zero_grad()
        ddp(bad, given(rank, 4)).backward()
        assert not torch.isfinite(ddp.module.a.weight.grad).all()
        ranks.same_everywhere(ddp.module.a.weight.grad, "after an overflow")
        assert gradwire.stats()["skipped"] == 1
        after = gradwire.state_dict(ddp)["residuals"]
        assert torch.equal(before, after) == (scaler is not None)
        gradwire.detach(ddp)


def test_overflow_is_seen_and_skipped_by_all():
    ranks.run(2, overflow)


def loss_scale(rank, n):
    """Steps under another loss scale: the same as without, times that scale."""
    results = []
    for scales in ((1, 1, 1), (1, 8, 2)):
        scaler = Scaler()
        ddp = models.ddp(Given())
        gradwire.attach(ddp, "topk:density=0.1", dense_below=0, scaler=scaler, quiet=True)
        got = []
        for step, scale in enumerate(scales):
            scaler.scale = float(scale)
            ddp.zero_grad()
            ddp(given(rank, step) * scale).backward()
            got.append(ddp.module.weight.grad / scale)
        results.append(got)
        gradwire.detach(ddp)
    for a, b in zip(*results):
        assert torch.equal(a, b)


def test_residuals_follow_the_loss_scale():
    ranks.run(2, loss_scale)


def grad_scaler(rank, n):
    model = models.mixed()
    ddp = models.ddp(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    gradwire.attach(ddp, "adacomp", dense_below=200, scaler=scaler, quiet=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = models.batches(rank)
    for step in range(6):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = models.loss_of(ddp, next(data))
        if step == 3 and rank == n - 1:
            loss = loss * float("inf")
        before = ranks.flat(model)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, ranks.flat(model)) == (step == 3), f"step {step}"
    assert scaler.get_scale() != 1024.0
    ranks.same_everywhere(ranks.flat(model), "with a GradScaler")
    gradwire.detach(ddp)


def test_grad_scaler():
    if not hasattr(torch.amp, "GradScaler"):
        return f"torch {torch.__version__} has no GradScaler for the CPU"
    ranks.run(2, grad_scaler)


def verified(rank, n):
    """Ranks compare by themselves after the first step and every second; when asked; not in the middle; not without hashes."""
    ddp, data = models.ddp(models.mixed()), models.batches(rank)
    gradwire.attach(ddp, "natural:bits=8", dense_below=200, verify_every=2, quiet=True)
    ranks.raises(gradwire.GradwireError, lambda: gradwire.verify(models.mixed()), "not attached")
    for _ in range(3):
        models.train(ddp, data, 2)
        gradwire.verify()
    models.loss_of(ddp, next(data)).backward()  # a step of its own
    gradwire.verify(ddp)
    gradwire.detach(ddp)
    gradwire.attach(ddp, "natural:bits=8", dense_below=200, verify_every=None, quiet=True)
    models.train(ddp, data, 2)
    ranks.raises(gradwire.GradwireError, lambda: gradwire.verify(), "nothing is hashed")
    models.train(ddp, data, 1)  # and nothing has failed
    gradwire.detach(ddp)
    ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp, verify_every=2 + rank, quiet=True), "verify_every")


def test_verify():
    ranks.run(2, verified)


if __name__ == "__main__":
    ranks.main(globals())
