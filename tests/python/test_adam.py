#!/usr/bin/env python3
"""attach(…, optimizer=AdamW): the update, nothing is lost, one exchange a step, steps that are not finite, other things of torch's."""

import contextlib
import io
import os
import signal
import warnings

import torch
import torch.distributed as dist

import models
import ranks
from ranks import gradwire

from adam_model import BETAS, DECAY, LOSSLESS, LR, Given, adam_of, adamw, attach, given, given_steps, mean, momenta, on_2_and_4, own_gradient, phase, step, steps
from gradwire import adam_phases
from gradwire.adam_phases import COMPRESSED, FLUSH, WARMUP


# ---- the update ----

class Reference:
    """What should come out if all is sent exactly, by the formulas of docs/adam.md, on gathered gradients."""

    def __init__(self, model, groups, warmup):
        self.model, self.warmup, self.t = model, warmup, 0
        self.of = {id(p): group for group in groups for p in group["params"]}
        self.state = {id(p): [torch.zeros_like(p), torch.zeros_like(p), 1.0] for p in model.parameters()}

    def step(self, batch, converted):
        gradients, k = own_gradient(self.model, batch), self.t - self.warmup
        gap = adam_phases.refresh_gap(k) if k >= 0 else 0
        self.t += 1
        with torch.no_grad():
            for p, own in zip(self.model.parameters(), gradients):
                group, (m, v, product), g = self.of[id(p)], self.state[id(p)], mean(own)
                b1, b2 = group["betas"]
                held = k >= 0 and p in converted
                feed = b2 if not held else adam_phases.refresh_beta2(b2, gap) if gap else 1.0
                m.lerp_(g, 1 - b1)
                v.mul_(feed).addcmul_(g, g, value=1 - feed)
                self.state[id(p)][2] = product = product * feed
                update = m / (1 - b1 ** self.t) / ((v / (1 - product)).sqrt() + group["eps"])
                if held:
                    update.clamp_(-10, 10)
                    update /= max(1.0, float(update.norm()) / update.numel() ** 0.5)
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * update)


def split_groups(model):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    return [{"params": matrices[:2], "lr": 1e-3, "betas": (0.8, 0.9), "weight_decay": 0.3, "eps": 1e-6},
            {"params": matrices[2:]}, {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]


def as_the_formulas_say(rank, n, kind):
    model, twin = models.mixed(), models.mixed()
    ddp = models.ddp(model)
    optimizer = adamw(model, params=split_groups(model), **kind)
    attach(ddp, LOSSLESS, optimizer, warmup_codec="dense")
    same = {"lr": LR, "betas": BETAS, "weight_decay": DECAY, "eps": 1e-8}
    reference = Reference(twin, [{**same, **group} for group in split_groups(twin)], 4)
    converted = [p for p in twin.parameters() if p.dim() > 1 and p.numel() >= 200]
    assert len(converted) < sum(p.dim() > 1 for p in twin.parameters()) + 1 and len(converted) >= 4
    data, again = models.batches(rank), models.batches(rank)
    for i in range(55):
        step(ddp, optimizer, data)
        reference.step(next(again), set(converted))
        torch.testing.assert_close(ranks.flat(model), ranks.flat(twin), rtol=2e-4, atol=2e-6, msg=lambda m: f"step {i}: {m}")
        ranks.same_everywhere(ranks.flat(model), f"step {i}")
    assert phase() == COMPRESSED and gradwire.stats()["adam"]["refreshes"] == 20 + 2, gradwire.stats()["adam"]
    ranks.same_everywhere(torch.cat([optimizer.state[p]["exp_avg_sq"].flatten() for p in model.parameters()]), "variance")
    gradwire.detach(ddp)


def test_update():
    """Groups with their own β, learning rate and weight decay; over the warm-up and 22 refreshes."""
    ranks.run(2, as_the_formulas_say, {})
    ranks.run(4, as_the_formulas_say, {"foreach": True})


def one_optimizer_as_the_other(rank, n):
    results = []
    for kind in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        try:
            ddp, optimizer = attach(models.mixed(), optimizer=None)
            gradwire.detach(ddp)
            optimizer = adamw(ddp, **kind)
        except (RuntimeError, TypeError, ValueError):
            continue  # this torch has no such kind on the CPU
        attach(ddp, "adacomp", optimizer)
        steps(ddp, optimizer, models.batches(rank), 12)
        gradwire.detach(ddp)
        results.append(ranks.flat(ddp))
    assert len(results) >= 2
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-4, atol=1e-6)


def test_plain_foreach_fused():
    ranks.run(2, one_optimizer_as_the_other)


def warm_as_without(rank, n):
    """The warm-up is torch's own AdamW on gradients of the warm-up's codec, to the bit."""
    ddp, optimizer = attach(models.mixed(), warmup=6)
    data = models.batches(rank)
    steps(ddp, optimizer, data, 6)
    plain = models.ddp(models.mixed())
    gradwire.detach(ddp)
    gradwire.attach(plain, "dither:bits=4", dense_below=200, seed=9, quiet=True)
    optimizer = adamw(plain)
    steps(plain, optimizer, models.batches(rank), 6)
    gradwire.detach(plain)
    assert torch.equal(ranks.flat(plain), ranks.flat(ddp))


def test_warmup_is_ordinary_adam():
    on_2_and_4(warm_as_without)


# ---- nothing is lost ----

def nothing_lost(rank, n, spec, end):
    """Σ arrived + what is pending = Σ momenta. `end` says how the pending part comes out."""
    ddp, optimizer = attach(Given(), spec, warmup=3, warmup_codec="dense", dense_below=0)
    given_steps(ddp, optimizer, rank, 0, 3)
    put, got = given_steps(ddp, optimizer, rank, 3, 20)
    last, b1 = mean(momenta(ddp)["weight"]), BETAS[0]
    if end == "detach":  # acts in all steps that follow
        gradwire.detach(ddp)
        pending = (optimizer.state[ddp.module.weight]["exp_avg"] - last) * b1 / (1 - b1)
    else:  # in the next one and all that follow
        adam_of(ddp).fall_back("a test")
        assert phase() == FLUSH
        optimizer.zero_grad()
        ddp(given(rank, 99)).backward()
        optimizer.step()
        assert phase() == WARMUP and not momenta(ddp)
        now = torch.lerp(last, mean(given(rank, 99)), 1 - b1)
        pending = (optimizer.state[ddp.module.weight]["exp_avg"] - now) / (1 - b1)
        gradwire.detach(ddp)
    assert (put - got).norm() > 0.1 * put.norm(), "nothing was pending: the test shows nothing"
    torch.testing.assert_close(got + pending, put, rtol=1e-3, atol=1e-3)


def test_nothing_is_lost():
    for spec in ("adacomp", "topk:density=0.05", "sign", "randk:density=0.1"):
        ranks.run(2, nothing_lost, spec, "detach")
    ranks.run(4, nothing_lost, "adacomp", "fallback")
    ranks.run(2, nothing_lost, "topk:density=0.05", "fallback")


def two_nodes(rank, n):
    """Several ranks a node: the node's ranks share one encode point."""
    ddp, optimizer = attach(Given(), "topk:density=0.05", warmup=3, warmup_codec="dense", dense_below=0, node=f"node {rank // 2}")
    given_steps(ddp, optimizer, rank, 0, 3)
    put, got = given_steps(ddp, optimizer, rank, 3, 8)
    last = mean(momenta(ddp)["weight"])
    gradwire.detach(ddp)
    pending = (optimizer.state[ddp.module.weight]["exp_avg"] - last) * BETAS[0] / (1 - BETAS[0])
    torch.testing.assert_close(got + pending, put, rtol=1e-3, atol=1e-3)
    ranks.same_everywhere(ddp.module.weight, "weights")


def test_nothing_is_lost_on_nodes():
    ranks.run(4, two_nodes)


def plain_after_detach(rank, n):
    """torch's own AdamW goes on with the right variance and momentum: nothing of ours stays in its state."""
    ddp, optimizer = attach(models.mixed(), LOSSLESS, warmup_codec="dense")
    own_step = type(optimizer).step.__qualname__
    data = models.batches(rank)
    steps(ddp, optimizer, data, 30)
    variance = {p: optimizer.state[p]["exp_avg_sq"] / (1 - optimizer.state[p]["variance_product"])
                for p in ddp.parameters() if "variance_product" in optimizer.state[p]}
    assert len(variance) >= 4
    gradwire.detach(ddp)
    for p, wanted in variance.items():
        state = optimizer.state[p]
        assert set(state) == {"step", "exp_avg", "exp_avg_sq"}, set(state)
        torch.testing.assert_close(state["exp_avg_sq"] / (1 - BETAS[1] ** float(state["step"])), wanted, rtol=1e-5, atol=0)
    assert optimizer.step.__qualname__ == own_step
    steps(ddp, optimizer, data, 3)
    ranks.same_everywhere(ranks.flat(ddp), "after detach")


def test_detach_leaves_plain_adamw():
    on_2_and_4(plain_after_detach)


def one_does_not_detach(rank, n):
    ddp, optimizer = attach(models.mixed(), attach_timeout=1.0)
    steps(ddp, optimizer, models.batches(rank), 6)
    if rank == 1:
        dist.barrier()
        return ""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        gradwire.detach(ddp)
    dist.barrier()
    return said.getvalue()


def test_detach_of_some_ranks():
    for said in on_2_and_4(one_does_not_detach):
        assert f"rank 1 of {len(said)} did not call gradwire.detach" in said[0], said


# ---- one exchange for each optimizer step ----

def exchanges(rank, n):
    ddp, optimizer = attach(models.mixed())
    data = models.batches(rank)
    for i in range(8):  # accumulation
        optimizer.zero_grad()
        with ddp.no_sync():
            models.loss_of(ddp, next(data)).backward()
        models.loss_of(ddp, next(data)).backward()
        optimizer.step()
    assert phase() == COMPRESSED
    ranks.raises(gradwire.GradwireError, optimizer.step, "without an exchange")
    ranks.raises(gradwire.GradwireError, lambda: optimizer.step(lambda: 0.0), "closure")
    models.loss_of(ddp, next(data)).backward()
    ranks.raises(gradwire.GradwireError, gradwire.state_dict, "half done")
    ranks.raises(Exception, lambda: models.loss_of(ddp, next(data)).backward(), "exactly one for each optimizer step", "no_sync()")


def test_one_exchange_a_step():
    on_2_and_4(exchanges)


# ---- steps that are not finite ----

def state_of(ddp, optimizer):
    """All that a step may change, with the residuals, as bytes."""
    found = [p.detach().clone() for p in ddp.parameters()]
    for p in ddp.parameters():
        found += [torch.as_tensor(v).clone().float() for _, v in sorted(optimizer.state.get(p, {}).items())]
    found += [u for _, u in sorted(momenta(ddp).items())]
    return found, gradwire._find(ddp).session.save()


def not_finite(rank, n, with_scaler):
    """On one rank, in one layer: it never happened to any layer's state on any rank."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3) if with_scaler else None
    # without hashes of means, of which a saved state has those of such a step too
    ddp, optimizer = attach(models.mixed(), "topk:density=0.05", scaler=scaler, verify_every=None)
    data, plain_data = models.batches(rank), models.batches(rank)

    def one(spoil=False):
        batch = next(data)
        optimizer.zero_grad()
        loss = models.loss_of(ddp, batch)
        if spoil and rank == 1:
            loss = loss * float("inf")
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    for i in range(14):
        if i in (2, 7, 9):  # in the warm-up; compressed; a refresh
            before = state_of(ddp, optimizer)
            one(spoil=True)
            after = state_of(ddp, optimizer)
            for a, b in zip(before[0], after[0]):
                assert torch.equal(a, b), i
            assert torch.equal(before[1], after[1]), f"step {i}: residuals"
        else:
            one()
        ranks.same_everywhere(ranks.flat(ddp), f"step {i}")
    assert torch.isfinite(ranks.flat(ddp)).all()
    assert gradwire.stats()["adam"]["skipped"] == (0 if with_scaler else 3) and gradwire.stats()["skipped"] == 3
    assert phase() == COMPRESSED
    gradwire.detach(ddp)
    assert all(torch.isfinite(optimizer.state[p]["exp_avg"]).all() for p in ddp.parameters())


def test_not_finite():
    on_2_and_4(not_finite, False)


def test_not_finite_with_a_scaler():
    if not hasattr(torch.amp, "GradScaler"):
        return f"torch {torch.__version__} has no GradScaler for the CPU"
    on_2_and_4(not_finite, True)


def unknown_scaler(rank, n):
    ddp, optimizer = attach(models.mixed())
    scaler, data = torch.amp.GradScaler("cpu", init_scale=65536.0), models.batches(rank)

    def train():
        for _ in range(8):
            optimizer.zero_grad()
            scaler.scale(models.loss_of(ddp, next(data))).backward()
            scaler.step(optimizer)
            scaler.update()

    ranks.raises(gradwire.GradwireError, train, "times as large as Adam's variance", "scaler=scaler")


def test_a_scaler_that_attach_does_not_know():
    if not hasattr(torch.amp, "GradScaler"):
        return f"torch {torch.__version__} has no GradScaler for the CPU"
    on_2_and_4(unknown_scaler)


def scaled_as_unscaled(rank, n):
    """A scale that is a power of two and changes on the way: the same weights as without."""
    results = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=4)):
        ddp, optimizer = attach(models.mixed(), "topk:density=0.05", scaler=scaler, warmup_codec="dense")
        data = models.batches(rank)
        for i in range(16):
            optimizer.zero_grad()
            loss = models.loss_of(ddp, next(data))
            if scaler is None:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
        assert scaler is None or scaler.get_scale() >= 2048.0
        gradwire.detach(ddp)
        results += [ranks.flat(ddp), torch.cat([optimizer.state[p]["exp_avg"].flatten() for p in ddp.parameters()])]
    assert torch.equal(results[0], results[2])
    torch.testing.assert_close(results[1], results[3], rtol=1e-5, atol=1e-9)


def test_the_scale_is_that_of_all():
    if not hasattr(torch.amp, "GradScaler"):
        return f"torch {torch.__version__} has no GradScaler for the CPU"
    on_2_and_4(scaled_as_unscaled)


# ---- with other things ----

def schedulers(rank, n):
    """Made before or after attach; no warning of torch's; references to the optimizer stay valid."""
    results = []
    for early in (True, False):
        ddp = models.ddp(models.mixed())
        optimizer = adamw(ddp)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            make = lambda: torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=20)  # also moves β1
            schedule = make() if early else None
            attach(ddp, "adacomp", optimizer)
            schedule = schedule or make()
            data = models.batches(rank)
            for _ in range(15):
                step(ddp, optimizer, data)
                schedule.step()
        gradwire.detach(ddp)
        step(ddp, optimizer, data)
        schedule.step()
        results.append(ranks.flat(ddp))
    assert torch.equal(*results)


def test_schedulers():
    on_2_and_4(schedulers)


def thawed(rank, n):
    """A layer that is frozen at first: DDP is made anew, and the model is attached again."""
    model = models.mixed()
    model.one.weight.requires_grad_(False)
    optimizer, data = adamw(model), models.batches(rank)
    ddp, _ = attach(model, optimizer=optimizer)
    before = model.one.weight.detach().clone()
    steps(ddp, optimizer, data, 7)
    assert phase() == COMPRESSED and torch.equal(model.one.weight, before)
    gradwire.detach(ddp)
    model.one.weight.requires_grad_(True)
    ddp, _ = attach(model, optimizer=optimizer)
    steps(ddp, optimizer, data, 9)
    assert phase() == COMPRESSED and not torch.equal(model.one.weight, before)
    ranks.same_everywhere(ranks.flat(ddp), "thawed")
    gradwire.detach(ddp)


def test_frozen_and_thawed():
    on_2_and_4(thawed)


def half(rank, n):
    """A model in bf16: momenta are kept in fp32."""
    ddp, optimizer = attach(models.mixed(dtype=torch.bfloat16))
    data = models.batches(rank)
    losses = steps(ddp, optimizer, data, 40)
    assert all(u.dtype == torch.float32 for u in momenta(ddp).values()) and sum(losses[-5:]) < 5 * 2.6
    ranks.same_everywhere(ranks.flat(ddp), "bf16")
    last = mean(momenta(ddp)["one.weight"])
    gradwire.detach(ddp)
    pending = optimizer.state[ddp.module.one.weight]["exp_avg"].float() - last  # a ninth of the residuals, and rounding
    assert pending.norm() < 3 * last.norm() and torch.dot(last.flatten(), pending.flatten() + last.flatten()) > 0.1 * last.norm() ** 2


def test_bf16():
    if torch.__version__.startswith("1."):
        return f"torch {torch.__version__}: DDP's gloo has no bf16"
    ranks.run(2, half)


def subclass(rank, n):
    ddp = models.ddp(models.mixed())
    optimizer = gradwire.AdamW(ddp.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY, model=ddp,
                               attach_options={"dense_below": 200, "seed": 9, "quiet": True, "warmup": 4})
    assert isinstance(optimizer, torch.optim.AdamW)
    steps(ddp, optimizer, models.batches(rank), 9)
    other, second = attach(models.mixed())
    steps(other, second, models.batches(rank), 9)
    assert torch.equal(ranks.flat(ddp), ranks.flat(other))
    gradwire.detach(ddp)
    gradwire.detach(other)


def test_subclass():
    ranks.run(2, subclass)


def rules_by_layer(rank, n):
    """A layer with an unbiased codec trains by torch's Adam throughout, and no buffers are made for it."""
    ddp, optimizer = attach(models.mixed(), rules={"two*weight": "dither:bits=4", "embed*": "dense"})
    steps(ddp, optimizer, models.batches(rank), 8)
    assert set(momenta(ddp)) == {"one.weight", "conv.weight", "head.weight"}, set(momenta(ddp))
    assert "variance_product" not in optimizer.state[ddp.module.two.weight]
    layers = {layer["name"]: layer["spec"] for layer in gradwire.stats(layers=True)["layers"]}
    assert layers["two.weight"].startswith("dither") and layers["one.weight"].startswith("adacomp")
    gradwire.detach(ddp)


def test_rules():
    on_2_and_4(rules_by_layer)


def memory(rank, n):
    """Bytes per parameter in addition to torch's AdamW: 8 here, and 8 in the store's residuals."""
    ddp = models.ddp(torch.nn.Linear(500, 400, bias=False))
    optimizer = adamw(ddp)
    gradwire.attach(ddp, "adacomp", optimizer=optimizer, quiet=True, warmup=2)
    for _ in range(6):
        optimizer.zero_grad()
        ddp(torch.randn(8, 500)).square().mean().backward()
        optimizer.step()
    inner, count = adam_of(ddp), ddp.module.weight.numel()
    ours = sum(t.numel() * t.element_size() for buffers in (inner._momentum, inner._own) for t in buffers.values())
    assert ours == 8 * count, ours / count
    assert gradwire._find(ddp).session.save().numel() <= 4.1 * count  # one residual; the store has two of each
    gradwire.detach(ddp)


def test_memory():
    ranks.run(2, memory)


def killed(rank, n, when):
    ddp, optimizer = attach(models.mixed(), timeout=20.0)
    data = models.batches(rank)
    try:
        for i in range(20):
            if rank == 1 and i == when:
                os.kill(os.getpid(), signal.SIGKILL)
            step(ddp, optimizer, data)
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_killed_rank():
    """In the warm-up, in a compressed step, in one with a refresh."""
    for when in (2, 6, 7):
        for said in on_2_and_4(killed, when, may_die=(1,)):
            assert "rank 1 is gone" in said[0] and all("is gone" in words for rank, words in enumerate(said) if rank != 1), (when, said)


def killed_in_a_refresh(rank, n):
    ddp, optimizer = attach(models.mixed(), timeout=20.0)
    data = models.batches(rank)
    steps(ddp, optimizer, data, 5)
    optimizer.zero_grad()
    models.loss_of(ddp, next(data)).backward()
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error = ranks.raises(gradwire.GradwireError, optimizer.step, "rank 1 is gone")
    ranks.raises(Exception, lambda: step(ddp, optimizer, data), "earlier step failed")
    return error


def test_killed_before_a_refresh():
    on_2_and_4(killed_in_a_refresh, may_die=(1,))


# ---- refused ----

def refused(rank, n):
    ddp = models.ddp(models.mixed())
    parameters = list(ddp.parameters())

    def refuse(needle, optimizer=None, model=ddp, spec="adacomp", **options):
        ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(model, spec, quiet=True, dense_below=200,
                                                                     optimizer=optimizer or adamw(model), **options), needle)

    refuse("amsgrad", adamw(ddp, amsgrad=True))
    refuse("maximize", adamw(ddp, maximize=True))
    refuse("not a torch.optim.sgd.SGD", torch.optim.SGD(parameters, lr=0.1))
    refuse("use AdamW", torch.optim.Adam(parameters, weight_decay=0.1))
    refuse("betas=(0.0, 0.9)", adamw(ddp, betas=(0.0, 0.9)))
    refuse("the optimizer has no such parameter", torch.optim.AdamW(parameters[-2:]))
    refuse("low-rank momentum does not train", spec="lowrank:rank=2")
    refuse("takes one codec", spec="auto")
    refuse("takes one codec", spec="adapt/topk:density=0.05")
    refuse("warmup=0", warmup=0)
    refuse("keeps residuals", warmup_codec="topk:density=0.1")
    refuse("find_unused_parameters", model=models.ddp(models.mixed(), find_unused_parameters=True))
    from torch.distributed.optim import ZeroRedundancyOptimizer

    refuse("ZeroRedundancyOptimizer", ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW))
    ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp, "adacomp", quiet=True, optimizer=adamw(ddp) if rank else None),
                 "rank 1 has (optimizer is given)=True, rank 0 has")
    gradwire.attach(ddp, "dither:bits=4", optimizer=adamw(ddp), quiet=True)  # nothing to convert: torch's Adam is right
    assert "adam" not in gradwire.stats()
    ranks.raises(gradwire.GradwireError, lambda: gradwire.tell_loss(1.0), "look at the loss")
    gradwire.detach(ddp)
    torch.optim.Adam(parameters)


def test_refused():
    on_2_and_4(refused)


def sharded(rank, n):
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(models.mixed())
    ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(model, "adacomp", optimizer=adamw(model)), "optimizer= is for DDP")


def test_shards_are_refused():
    if not hasattr(torch, "compile"):
        return f"torch {torch.__version__} has no fully_shard"
    ranks.run(2, sharded)


if __name__ == "__main__":
    ranks.main(globals())
