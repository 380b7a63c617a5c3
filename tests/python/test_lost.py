#!/usr/bin/env python3
"""A machine is lost with its state: training goes on with the states that are left, and says what was lost."""

import contextlib
import io
import math

import torch

import models
import ranks
from ranks import gradwire
from test_state import Given, given, plain_sgd

SPECS = ["topk:density=0.05", "sign", "lowrank:rank=2", "adacomp", "natural:bits=8", "adapt:period=4/topk:density=0.05", "auto"]


def attach(model, spec, quiet=True, **options):
    ddp = models.ddp(model)
    gradwire.attach(ddp, spec, dense_below=0, seed=9, quiet=quiet, **options)
    return ddp


def residual(rank):
    """Of topk:density=0.1 after one step: the gradient without its 200 largest numbers."""
    values = given(rank, 1).reshape(-1).clone()
    values[values.abs().topk(200).indices] = 0
    return values.reshape(40, 50)


def save(rank, n):
    ddp = attach(Given(), "topk:density=0.1", route="gather")
    ddp(given(rank, 1)).backward()
    return gradwire.state_dict()


def load_without(rank, n, states, lost):
    """What the residuals hold comes with the next gradient, which is of zeros and goes uncompressed."""
    ddp = attach(Given(), "dense")
    left = [s if s["rank"] not in lost else None for s in states]
    whose = " and ".join(map(str, lost))
    ranks.raises(gradwire.GradwireError, lambda: gradwire.load_state_dict(left), f"{whose} of 4", "missing", "missing=\"drop\"")
    words = gradwire.load_state_dict(left if rank else [s for s in left if s is not None], missing="drop")
    assert f"{whose} of 4 are lost and begin at zero" in words, words
    ddp(torch.zeros(40, 50)).backward()
    return ddp.module.weight.grad * n


def test_the_survivors_lose_nothing():
    states = ranks.run(4, save)
    for n in (4, 3, 1):
        for lost in ([2], [0, 3]):
            kept = ranks.run(n, load_without, states, lost)[0]
            wanted = sum(residual(r) for r in range(4) if r not in lost)
            torch.testing.assert_close(kept, wanted, rtol=1e-6, atol=1e-6, msg=lambda m: f"{n} ranks without {lost}: {m}")


def goes_on(rank, n):
    for spec in SPECS:
        first = models.mixed()
        ddp, data = attach(first, spec), models.batches(rank)
        plain_sgd(ddp, data, 6)
        state, weights = gradwire.state_dict(), {k: v.clone() for k, v in first.state_dict().items()}
        gradwire.detach(ddp)
        second = models.mixed(seed=4)
        second.load_state_dict(weights)
        ddp = attach(second, spec)
        ranks.raises(gradwire.GradwireError, lambda: gradwire.load_state_dict(None if rank == 1 else state), "rank 1 of 3 is missing")
        gradwire.load_state_dict(None if rank == 1 else state, missing="drop")
        assert gradwire.state_dict()["step"] == 6
        plain_sgd(ddp, data, 6)
        assert gradwire.state_dict()["step"] == 12 and torch.isfinite(ranks.flat(second)).all()
        ranks.same_everywhere(ranks.flat(second), f"{spec}, after a loss")
        gradwire.detach(ddp)


def test_training_goes_on():
    ranks.run(3, goes_on)


def nothing_lost(rank, n):
    """Then "drop" changes nothing, also of what ranks keep equal."""
    results = []
    for missing in (None, "error", "drop"):
        model = models.mixed()
        ddp, data = attach(model, "lowrank:rank=2"), models.batches(rank)
        plain_sgd(ddp, data, 3)
        if missing is not None:
            gradwire.load_state_dict(gradwire.state_dict(), missing=missing)
        assert "lost" not in gradwire.stats()
        plain_sgd(ddp, data, 3)
        results.append(ranks.flat(model))
        gradwire.detach(ddp)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_drop_without_a_loss_changes_nothing():
    ranks.run(2, nothing_lost)


def line(rank, n, states):
    """One line, of rank 0, after the first gradient that is finite."""
    ddp, said = attach(Given(), "topk:density=0.1", quiet=False, route="gather"), io.StringIO()
    with contextlib.redirect_stderr(said):
        gradwire.load_state_dict([states[0], states[2]], missing="drop")
        first = gradwire.stats()["lost"]
        assert first["ranks"] == [1] and first["gradient_norm"] is None, first
        for seed, scale in ((2, math.inf), (3, 1), (4, 1)):
            ddp.zero_grad()
            ddp(given(rank, seed) * scale).backward()
        lost = gradwire.stats()["lost"]
    wanted = math.sqrt((residual(0).double().norm() ** 2 + residual(2).double().norm() ** 2) / 2)
    gradient = given(rank, 3).double().norm().item()
    assert abs(lost["residual_norm"] / wanted - 1) < 1e-6 and abs(lost["gradient_norm"] / gradient - 1) < 1e-6, (lost, wanted, gradient)
    words = (f"gradwire: the residuals of rank 1 of 3 are lost and begin at zero; those of the 2 surviving ranks are "
             f"{wanted / gradient:.3g} times a gradient (norms: residuals {wanted:.4g}, root mean square over ranks; gradient "
             f"{gradient:.4g}, rank 0's own of step 2, before compression)\n")
    assert said.getvalue() == (words if rank == 0 else ""), said.getvalue()
    gradwire.load_state_dict(states)
    assert "lost" not in gradwire.stats()
    gradwire.detach(ddp)


def test_one_line_says_what_was_lost():
    states = ranks.run(3, save)
    ranks.run(3, line, states)


def not_taken(rank, n, states):
    """All ranks fail alike, whichever of them it is that has something wrong."""
    ddp = attach(Given(), "topk:density=0.1", route="gather")

    def refused(state, *needles, missing="drop"):
        ranks.raises(gradwire.GradwireError, lambda: gradwire.load_state_dict(state, missing=missing), *needles)

    own = states[rank]
    damaged = dict(own, residuals=own["residuals"].clone())
    damaged["residuals"][len(damaged["residuals"]) // 2] ^= 1
    refused(damaged if rank == 1 else own, "the state of rank 1 is damaged", "checksum", "leave it out and pass missing=\"drop\"")
    refused(None, "no rank was given a state")
    refused(own if rank else None, "rank 0 of 2 is missing", "missing=\"drop\"", missing="error")
    refused([states[0]] if rank else states, "rank 0 was given the state of old rank 1, and rank 1, which takes it over, was not")
    refused(own, "missing='skip'", missing="skip")
    refused(own, "rank 1 loads with missing=\"error\", rank 0 with \"drop\"", missing="error" if rank else "drop")
    refused(dict(own, step=own["step"] + rank), "rank 1 was given a state of step 2 of 2 ranks, others of step 1 of 2")
    gradwire.load_state_dict(own)
    ddp(given(rank, 5)).backward()  # and it still trains
    gradwire.detach(ddp)


def test_what_is_wrong_is_refused_on_all_ranks():
    ranks.run(2, not_taken, ranks.run(2, save))


if __name__ == "__main__":
    ranks.main(globals())
