#!/usr/bin/env python3
"""attach(…, optimizer=AdamW): phases, and states that go on in each of them."""

import contextlib
import copy
import io
import pathlib

import torch

import models
import ranks
from ranks import gradwire

from adam_model import BETAS, DECAY, LR, Given, adamw, attach, given, given_steps, mean, momenta, on_2_and_4, phase, step, steps
from gradwire import adam_phases
from gradwire.adam_phases import COMPRESSED, FLUSH, REST, WARMUP, Guard, Settled, Smooth


# ---- phases ----

def test_refreshes():
    """Numbers of docs/adam.md."""
    at = [k for k in range(2000) if adam_phases.refresh_gap(k)]
    gaps = [b - a for a, b in zip([-1] + at, at)]
    assert gaps[:100] == [2] * 20 + [4] * 20 + [8] * 20 + [16] * 20 + [32] * 20, gaps[:100]
    assert all(adam_phases.refresh_gap(k) == gap for k, gap in zip(at[:100], gaps))
    assert set(gaps[101:]) == {50}, gaps
    assert adam_phases.refresh_beta2(0.95, 2) == adam_phases.refresh_beta2(0.95, 50) == 0.95
    assert adam_phases.refresh_beta2(0.9, 50) == 0.9
    assert adam_phases.refresh_beta2(0.999, 2) == 0.999 ** 2 and adam_phases.refresh_beta2(0.999, 100) == 0.95


def test_settled():
    def length(beta2, rates, norms):
        rule = Settled(beta2)
        for k in range(1, 2000):
            if rule.add(k, [rates(k)], norms(k) if rule.wants_norm(k) else None):
                return k
        return None

    assert length(0.95, lambda k: 1.0, lambda k: 5.0) == 40
    assert length(0.999, lambda k: 1.0, lambda k: 5.0) == 100
    assert length(0.95, lambda k: min(k / 100, 1), lambda k: 5.0) == 120  # after the learning rate's own warm-up
    assert length(0.95, lambda k: 1.0, lambda k: 2.0 ** -(min(k, 100) / 20)) == 120  # and when the variance is still
    assert length(0.95, lambda k: 1.0, lambda k: 2.0 ** -(k / 20)) == 200  # in the end whatever it does
    assert length(0.95, lambda k: float(k), lambda k: 5.0) is None


def test_guard():
    guard = Guard()
    assert all(guard.add(2.0 - 0.001 * n, n) is None for n in range(0, 100, 5))
    assert all(guard.add(1.9 + 0.5 * (n % 2), n) is None for n in range(200))
    assert "not finite" in guard.add(Guard.NOT_FINITE / 4, 200)
    assert guard.add(1.9, 240) is None
    assert [guard.add(2.3, n) is not None for n in (250, 260, 269, 270)] == [False, False, False, True]
    smooth = Smooth()
    for _ in range(100):
        smooth.add(3.0)
    smooth.add(4.0)
    assert 3.05 < smooth.value < 3.15
    for loss in (float("nan"), 1.0):
        smooth.add(loss)
    assert smooth.value == Guard.NOT_FINITE


def by_the_rule(rank, n):
    """The default: no number is given; the learning rate warms up over 20 steps. It compresses well before 500 steps."""
    ddp = models.ddp(models.mixed())
    optimizer = adamw(ddp, betas=(0.9, 0.999))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1, (t + 1) / 20))
    gradwire.attach(ddp, "adacomp", optimizer=optimizer, dense_below=200, quiet=True)
    data = models.batches(rank)
    for i in range(160):
        step(ddp, optimizer, data)
        schedule.step()
        if phase() == COMPRESSED:
            break
    assert phase() == COMPRESSED and 50 < i < 150, i
    gradwire.detach(ddp)


def test_the_warmup_ends_by_itself():
    ranks.run(2, by_the_rule)


def falls_back(rank, n):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        ddp, optimizer = attach(models.mixed(), quiet=False)
        data = models.batches(rank)
        for i in range(60):
            loss = step(ddp, optimizer, data)
            # one rank's loss is enough: the mean over ranks counts
            gradwire.tell_loss(float("nan") if i == 20 and rank == 1 else loss)
            if i in (21, 22):  # step 21 is a refresh: 17 steps after the warm-up of 4
                assert phase() == (FLUSH if i == 21 else WARMUP), i
            ranks.same_everywhere(ranks.flat(ddp), f"step {i}")
        steps(ddp, optimizer, data, REST)
        assert phase() == COMPRESSED and gradwire.stats()["adam"]["fallbacks"] == 1
        gradwire.detach(ddp)
    return said.getvalue()


def test_fallback():
    for said in on_2_and_4(falls_back):
        assert "step 22: the loss is not finite; ordinary Adam for at least 100 steps" in said[0] and not said[1], said


def other_variance(rank, n):
    ddp, optimizer = attach(models.mixed())
    data = models.batches(rank)
    steps(ddp, optimizer, data, 2)
    if rank == 1:
        optimizer.state[ddp.module.two.weight]["exp_avg_sq"][3, 4] *= 1.001
    step(ddp, optimizer, data)
    ranks.raises(gradwire.GradwireError, lambda: step(ddp, optimizer, data), "'two.weight'", "exp_avg_sq", "rank 1 differs from rank 0")


def test_variances_are_compared():
    on_2_and_4(other_variance)


def test_bounds():
    """Of an element's update, and of a layer's root mean square."""
    from gradwire.adam import PRODUCT, Adam

    def moved(momentum):
        p = torch.zeros(50, 20)
        state = {"exp_avg": momentum, "exp_avg_sq": torch.full_like(p, 1e-12), "step": torch.tensor(1e6), PRODUCT: 0.0}
        Adam._move(p, {"lr": 1.0, "betas": BETAS, "eps": 1e-8, "weight_decay": 0.0}, state)
        return p

    torch.testing.assert_close(moved(torch.ones(50, 20)), -torch.ones(50, 20))
    one = torch.zeros(50, 20)
    one[3, 4] = 1.0
    torch.testing.assert_close(moved(one), -10 * one)
    torch.testing.assert_close(moved(1e-7 * one), -0.1 * one, rtol=0.02, atol=0)


class Late(models.Mixed):
    """Tokens 40 to 49 are never seen before `late` is set."""

    late = False

    def forward(self, tokens):
        return super().forward(tokens if self.late else tokens % 40)


def late_token(rank, n):
    torch.manual_seed(1)
    ddp, optimizer = attach(Late(), warmup=20)
    data = models.batches(rank)
    steps(ddp, optimizer, data, 60)
    ddp.module.late = True
    before = ddp.module.embed.weight.detach().clone()
    for _ in range(30):
        step(ddp, optimizer, data)
        moved = (ddp.module.embed.weight.detach() - before) / LR
        before = ddp.module.embed.weight.detach().clone()
        # the update's root mean square is at most 1 in each layer, an element's at most 10, and decay moves little
        assert moved.square().mean().sqrt() <= 1.05 + DECAY * before.abs().max(), moved.square().mean().sqrt()
        assert moved.abs().max() <= 10.05 + DECAY * before.abs().max(), moved.abs().max()
    assert torch.isfinite(ranks.flat(ddp)).all()
    gradwire.detach(ddp)


def test_a_token_after_the_warmup():
    """Its variance is zero: without the bound its first update is a million times too large."""
    on_2_and_4(late_token)


# ---- state ----

def resume(rank, n):
    """Bit for bit from every phase: warm-up, its last step, compressed, before a refresh, before a flush, after it."""
    def told(ddp, i, loss):
        gradwire.tell_loss(float("inf") if i == 13 else loss)

    def go(ddp, optimizer, data, first, last, each=lambda i: None):
        for i in range(first, last):
            each(i)
            told(ddp, i, step(ddp, optimizer, data))

    def saved(ddp, optimizer):
        return copy.deepcopy([gradwire.state_dict(ddp), optimizer.state_dict(), ddp.module.state_dict()])

    for options in ({"warmup": 4}, {"warmup": 4, "spec": "topk:density=0.05", "warmup_codec": "natural:bits=8"}):
        ddp, optimizer = attach(models.mixed(), **options)
        kept, phases = {}, {}

        def keep(i):
            if i in (2, 3, 4, 8, 9, 14, 16, 17):
                kept[i], phases[i] = saved(ddp, optimizer), phase()

        go(ddp, optimizer, models.batches(rank), 0, 20, keep)
        assert [phases[i] for i in (2, 3, 4, 8, 9, 14, 16, 17)] == [WARMUP] * 2 + [COMPRESSED] * 4 + [FLUSH, WARMUP], phases
        whole = ranks.flat(ddp)
        gradwire.detach(ddp)
        for at, (state, of_optimizer, weights) in kept.items():
            if at == 16:
                assert state["format"] == "gradwire.state/2" and state["adam"]["phase"] == FLUSH
            second = models.mixed(seed=4)
            second.load_state_dict(weights)
            ddp, optimizer = attach(second, **options)
            optimizer.load_state_dict(of_optimizer)
            data = models.batches(rank)
            for _ in range(at):
                next(data)
            gradwire.load_state_dict(state)
            go(ddp, optimizer, data, at, 20)
            gradwire.detach(ddp)
            assert torch.equal(ranks.flat(second), whole), f"{options}, from step {at}"


def test_resume_bit_for_bit():
    on_2_and_4(resume)


def save_compressed(rank, n):
    ddp, optimizer = attach(Given(), "topk:density=0.05", warmup=3, warmup_codec="dense", dense_below=0)
    given_steps(ddp, optimizer, rank, 0, 3)
    put, got = given_steps(ddp, optimizer, rank, 3, 9)
    pending = put - got
    return gradwire.state_dict(), optimizer.state_dict(), ddp.module.state_dict(), mean(momenta(ddp)["weight"]), pending


def load_elsewhere(rank, n, saved, missing):
    """Momenta are means: the mean over the new ranks is the mean over the old ones. Residuals come out in the flush."""
    states = [s[0] for s in saved if s is not None]
    _, of_optimizer, weights, wanted, pending = saved[0]
    model = Given()
    model.load_state_dict(weights)
    ddp, optimizer = attach(model, "topk:density=0.05", warmup=3, warmup_codec="dense", dense_below=0)
    optimizer.load_state_dict(of_optimizer)
    words = gradwire.load_state_dict(states, missing=missing)
    assert "the momenta were joined, and Adam's warm-up begins again" in words, words
    assert phase() == FLUSH
    given_steps(ddp, optimizer, rank, 50, 1)
    assert phase() == WARMUP
    if missing == "error":
        b1 = BETAS[0]
        now = torch.lerp(wanted, mean(given(rank, 50)), 1 - b1)
        torch.testing.assert_close(optimizer.state[ddp.module.weight]["exp_avg"], now + (1 - b1) * pending, rtol=1e-4, atol=1e-4)
    for t in range(51, 60):
        given_steps(ddp, optimizer, rank, t, 1)
        ranks.same_everywhere(ddp.module.weight, "weights")
    gradwire.detach(ddp)


def test_another_number_of_ranks():
    saved = ranks.run(4, save_compressed)
    for n in (1, 2, 3):
        ranks.run(n, load_elsewhere, saved, "error")
    ranks.run(4, load_elsewhere, ranks.run(2, save_compressed), "error")


def test_lost_ranks():
    saved = ranks.run(4, save_compressed)
    ranks.run(4, load_elsewhere, [saved[0], None, saved[2], saved[3]], "drop")


def without_state(rank, n):
    """The optimizer's state alone: training begins in the warm-up, with the right variance, and says so. A state of before attach had
    optimizer= does the same."""
    ddp, optimizer = attach(models.mixed())
    data = models.batches(rank)
    steps(ddp, optimizer, data, 10)
    kept, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(ddp.module.state_dict())
    state = gradwire.state_dict()
    gradwire.detach(ddp)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        second = models.mixed()
        second.load_state_dict(weights)
        ddp, optimizer = attach(second, quiet=False)
        optimizer.load_state_dict(kept)
        old = {k: v for k, v in state.items() if k != "adam"}
        assert phase() == WARMUP
        step(ddp, optimizer, data)
        assert phase() == WARMUP
        words = gradwire.load_state_dict({**old, "format": "gradwire.state/1"})
        assert "it has no state of Adam: training begins in the warm-up" in words, words
        steps(ddp, optimizer, data, 8)
        assert phase() == COMPRESSED
        ranks.same_everywhere(ranks.flat(ddp), "without a state")
        gradwire.detach(ddp)
    plain = models.ddp(models.mixed())
    gradwire.attach(plain, "adacomp", dense_below=200, quiet=True)
    ranks.raises(gradwire.GradwireError, lambda: gradwire.load_state_dict(state), "attach with optimizer=")
    gradwire.detach(plain)
    ddp, optimizer = attach(models.mixed())
    gradwire.load_state_dict(state)
    ranks.raises(gradwire.GradwireError, lambda: step(ddp, optimizer, data), "load optimizer.state_dict()")
    gradwire.detach(ddp)
    ddp, _ = attach(models.mixed(), rules={"two.weight": "dense"})
    ranks.raises(gradwire.GradwireError, lambda: gradwire.load_state_dict(state), "'two.weight'", "not compressed with feedback now")
    gradwire.detach(ddp)
    ddp, _ = attach(models.mixed())
    broken = copy.deepcopy(state)
    broken["adam"]["momentum"]["one.weight"][2, 3] = float("nan")
    ranks.raises(gradwire.GradwireError, lambda: gradwire.load_state_dict(broken), "damaged", "'one.weight'")
    gradwire.detach(ddp)
    return said.getvalue()


def test_states_without_adam():
    for said in on_2_and_4(without_state):
        assert "gradwire's state of it was not loaded: training begins again in the warm-up" in said[0], said


def golden(rank, n, name):
    """What earlier versions saved (golden/make.py), loaded with optimizer=."""
    saved = torch.load(pathlib.Path(__file__).parent / "golden" / name)
    model = Given()
    model.weight = torch.nn.Parameter(saved[rank]["model"]["weight"].clone())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    optimizer.load_state_dict(saved[rank]["optimizer"])
    ddp, _ = attach(model, "topk:density=0.1", optimizer, dense_below=0, warmup=2, warmup_codec="dense")
    gradwire.load_state_dict(saved[rank]["gradwire"])
    found = gradwire.stats()["adam"]
    zero = torch.zeros(16, 20)
    if name == "state-1.pt":  # residuals of gradients come with the next one
        assert found["phase"] == WARMUP
        ddp(zero).backward()
        assert 1 < ddp.module.weight.grad.norm() < 100, ddp.module.weight.grad.norm()
    else:
        assert (found["phase"], found["since"], found["refreshes"]) == (COMPRESSED, 2, 2), found
        torch.testing.assert_close(momenta(ddp)["weight"], saved[rank]["gradwire"]["adam"]["momentum"]["weight"])
        ddp(zero).backward()
        sent = ddp.module.weight.grad.clone()
        assert 0 < sent.norm() < 10 and int((sent != 0).sum()) <= 2 * 32
    optimizer.step()
    ranks.same_everywhere(ddp.module.weight, "weights")
    gradwire.detach(ddp)


def test_golden_states():
    for name in ("state-1.pt", "state-2.pt"):
        ranks.run(2, golden, name)


def replicated(rank, n):
    """optimizer.state_dict() is the same on all ranks, and needs no other rank."""
    ddp, optimizer = attach(models.mixed())
    steps(ddp, optimizer, models.batches(rank), 9)
    if rank == 0:
        optimizer.state_dict()
    for state in optimizer.state_dict()["state"].values():
        for name, value in sorted(state.items()):
            ranks.same_everywhere(torch.as_tensor(value).float(), name)
    gradwire.detach(ddp)


def test_the_optimizers_state_is_replicated():
    on_2_and_4(replicated)


if __name__ == "__main__":
    ranks.main(globals())
