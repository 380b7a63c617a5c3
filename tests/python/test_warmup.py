#!/usr/bin/env python3
"""attach(…, warmup=N): the first steps dense or without bias, on all ranks the same ones, also after a restart."""

import json
import os
import tempfile

import torch

import models
import ranks
from ranks import gradwire

SPECS = ["topk:density=0.05", "adacomp", "sign", "lowrank:rank=2", "natural:bits=8", "adapt:period=4/topk:density=0.05"]
STEPS = 4  # of a warm-up


def attach(model, spec, **options):
    ddp = models.ddp(model)
    gradwire.attach(ddp, spec, dense_below=200, seed=9, quiet=True, **options)
    return ddp


def step(ddp, data):
    """Plain SGD, whose state a restart need not carry."""
    ddp.zero_grad()
    models.loss_of(ddp, next(data)).backward()
    gradient = ranks.flat_gradients(ddp)
    with torch.no_grad():
        for p in ddp.parameters():
            p -= 0.05 * p.grad
    return gradient


def switched(ddp):
    """The specs of layers that are compressed, now."""
    return sorted({layer["spec"] for layer in gradwire.stats(ddp, layers=True)["layers"] if layer["name"].endswith("weight")})


def as_two_runs(rank, n):
    """Dense steps, then the codec with residuals of zero: the same bits as a run that attaches dense first and the codec then."""
    for spec in SPECS:
        first = models.mixed()
        ddp, data = attach(first, "dense"), models.batches(rank)
        wanted = [step(ddp, data) for _ in range(STEPS)]
        state = gradwire.state_dict()
        gradwire.detach(ddp)
        gradwire.attach(ddp, spec, dense_below=200, seed=9, quiet=True)
        gradwire.load_state_dict(state)  # the step number, of which random numbers are made, and nothing else
        wanted += [step(ddp, data) for _ in range(5)]
        gradwire.detach(ddp)
        ddp, data = attach(models.mixed(), spec, warmup=STEPS), models.batches(rank)
        for i, gradient in enumerate(wanted):
            stats = gradwire.stats()["warmup"]
            assert stats == {"codec": "dense", "steps": STEPS, "left": max(0, STEPS - i)}, stats
            assert torch.equal(step(ddp, data), gradient), f"{spec}, step {i}"
            assert (switched(ddp) == ["dense"]) == (i < STEPS), f"{spec}, step {i}: {switched(ddp)}"
        ranks.same_everywhere(ranks.flat(ddp), spec)
        gradwire.detach(ddp)


def test_the_same_as_two_runs():
    ranks.run(2, as_two_runs)


def residuals_begin_at_zero(rank, n):
    """With an unbiased codec, too: nothing of it is left when the first compressed step begins. What was sent and what is kept then sum
    up to that step's gradients."""
    spec, each = "topk:density=0.05", [torch.Generator().manual_seed(77 + r) for r in range(n)]
    model = torch.nn.Linear(40, 50, bias=False)
    ddp = attach(model, spec, warmup=3, warmup_codec="dither:bits=4")
    for i in range(5):
        all_inputs = [torch.randn(8, 40, generator=g) for g in each]
        ddp.zero_grad()
        ddp(all_inputs[rank]).sum().backward()
        assert switched(ddp)[0].startswith("dither:bits=4" if i < 3 else "topk"), (i, switched(ddp))
        if i == 3:
            wanted = sum(x.sum(0).expand(50, 40) for x in all_inputs)
            sent = model.weight.grad.clone() * n
            state = gradwire.state_dict()
    other = torch.nn.Linear(40, 50, bias=False)
    gradwire.detach(ddp)
    ddp = attach(other, "dense")
    gradwire.load_state_dict(state)
    ddp(torch.zeros(8, 40)).sum().backward()
    torch.testing.assert_close(sent + other.weight.grad * n, wanted, rtol=1e-4, atol=1e-4)
    gradwire.detach(ddp)


def test_residuals_begin_at_zero():
    ranks.run(2, residuals_begin_at_zero)


def resumed(rank, n):
    """In the warm-up, at its end, and after it: bit for bit. The module is attached as it was."""
    for spec in SPECS:
        for codec in ("dense", "natural:bits=8"):
            options = {"warmup": STEPS, "warmup_codec": codec}
            ddp, data, states = attach(models.mixed(), spec, **options), models.batches(rank), []
            for _ in range(8):
                states.append((gradwire.state_dict(), {k: v.clone() for k, v in ddp.module.state_dict().items()}))
                step(ddp, data)
            whole = ranks.flat(ddp)
            gradwire.detach(ddp)
            for at in (2, STEPS, 6):
                state, weights = states[at]
                second, data = models.mixed(seed=4), models.batches(rank)
                second.load_state_dict(weights)
                ddp = attach(second, spec, **options)
                for _ in range(at):
                    next(data)
                gradwire.load_state_dict(state)
                for _ in range(at, 8):
                    step(ddp, data)
                gradwire.detach(ddp)
                assert torch.equal(ranks.flat(second), whole), f"{spec} after {codec}, from step {at}"


def test_resume_bit_for_bit():
    ranks.run(2, resumed)


def loaded_back(rank, n):
    """A state of the warm-up into a session that is beyond it, and the other way round; another number of steps."""
    ddp, data = attach(models.mixed(), "topk:density=0.05", warmup=2), models.batches(rank)
    step(ddp, data)
    early = gradwire.state_dict()
    step(ddp, data), step(ddp, data)
    late = gradwire.state_dict()
    gradwire.load_state_dict(early)
    step(ddp, data)
    assert switched(ddp) == ["dense"] and gradwire.stats()["warmup"]["left"] == 0
    step(ddp, data)
    assert switched(ddp) != ["dense"]
    gradwire.load_state_dict(late)
    step(ddp, data)
    assert switched(ddp) != ["dense"]
    gradwire.detach(ddp)
    ddp = attach(models.mixed(), "topk:density=0.05", warmup=5)  # residuals that were kept go into a dense gradient
    words = gradwire.load_state_dict(late)
    assert "orphans" in words, words
    step(ddp, data), step(ddp, data)
    assert switched(ddp) == ["dense"]
    step(ddp, data)
    assert switched(ddp) != ["dense"]
    ranks.same_everywhere(ranks.flat(ddp), "another length of the warm-up")
    gradwire.detach(ddp)
    ddp = attach(models.mixed(), "adapt:period=4/topk:density=0.05", warmup=2)
    for _ in range(4):
        step(ddp, data)
    ranks.raises(gradwire.GradwireError, lambda: gradwire.load_state_dict(early), "attach again")
    step(ddp, data)
    gradwire.detach(ddp)


def test_states_of_other_phases():
    ranks.run(2, loaded_back)


def lossless(rank, n):
    """Accumulation: a step is one that exchanges. Buckets that DDP makes anew after the first step, in the middle of the warm-up."""
    ddp, data = attach(models.mixed(), "topk:density=0.05", warmup=2), models.batches(rank)
    for i in range(4):
        ddp.zero_grad()
        with ddp.no_sync():
            models.loss_of(ddp, next(data)).backward()
        models.loss_of(ddp, next(data)).backward()
        assert (switched(ddp) == ["dense"]) == (i < 2), i
    gradwire.detach(ddp)


def test_accumulation_counts_exchanges():
    ranks.run(2, lossless)


def plan_file(rank, n, folder):
    """Its buckets and its order hold in the warm-up, too."""
    model = models.mixed()
    tensors = [{"name": name, "elements": p.numel(), "spec": "topk:density=0.05" if p.dim() > 1 else "dense",
                "route": "gather" if p.dim() > 1 else "dense", "bucket": i} for i, (name, p) in enumerate(model.named_parameters())]
    tensors.sort(key=lambda tensor: tensor["spec"])  # dense ones first
    for i, tensor in enumerate(tensors):
        tensor["bucket"] = i - i % 2 if tensor["spec"] == tensors[i - i % 2]["spec"] else i
    assert len({tensor["bucket"] for tensor in tensors if tensor["spec"] != "dense"}) < 5, tensors
    path = os.path.join(folder, f"plan-{rank}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"format": "gradwire.plan/1", "tensors": tensors}, file)
    results = []
    for options in ({}, {"warmup": 3}, {"warmup": 3, "warmup_codec": "natural:bits=8"}):
        ddp, data = models.ddp(models.mixed()), models.batches(rank)
        gradwire.attach(ddp, path, quiet=True, **options)
        gradients = []
        for i in range(5):
            gradients.append(step(ddp, data))
            specs = switched(ddp)
            assert any(s.startswith("topk") for s in specs) == (not options or i >= 3), (options, i, specs)
        gradwire.detach(ddp)
        ranks.same_everywhere(ranks.flat(ddp), "a plan with a warm-up")
        results.append(gradients[0])
    ddp = models.ddp(models.mixed())
    dense = step(ddp, models.batches(rank))
    torch.testing.assert_close(results[1], dense, rtol=1e-5, atol=1e-7)  # summed in another order
    assert not torch.allclose(results[0], dense, rtol=1e-2, atol=1e-4)


def test_plan_file():
    with tempfile.TemporaryDirectory() as folder:
        ranks.run(2, plan_file, folder)


def refused(rank, n):
    ddp = models.ddp(models.mixed())

    def refuse(needle, what="topk:density=0.05", **options):
        ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp, what, quiet=True, **options), needle)

    refuse("not for \"auto\"", "auto", warmup=5)
    refuse("keeps residuals", warmup=5, warmup_codec="topk:density=0.1")
    refuse("keeps residuals", warmup=5, warmup_codec="lowrank:rank=2")
    refuse("not one codec", warmup=5, warmup_codec="auto")
    refuse("no codec named", warmup=5, warmup_codec="dithre:bits=4")
    refuse("not a number of steps", warmup=-1)
    refuse("not a number of steps", warmup=2.5)
    refuse("rank 1 has (warmup, warmup_codec)=(6, 'dense'), rank 0 has (5, 'dense')", warmup=5 + rank)
    refuse("rank 1 has (warmup, warmup_codec)", warmup=5, warmup_codec=("natural:bits=8", "natural:bits=9")[rank])


def test_refused():
    ranks.run(2, refused)


def shards(rank, n):
    """As fully_shard alone in the warm-up, and compressed after it; resumed bit for bit."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def sharded(attached=True):
        model = models.mixed()
        for part in (model.one, model.two):
            fully_shard(part, mesh=init_device_mesh("cpu", (n,)))
        fully_shard(model, mesh=init_device_mesh("cpu", (n,)))
        if attached:
            gradwire.attach(model, "topk:density=0.05", dense_below=200, residual="full", warmup=3, quiet=True)
        return model

    def local(model):
        return torch.cat([p.to_local().detach().reshape(-1) for p in model.parameters()])

    def steps(model, data, count):
        optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.05), []
        for _ in range(count):
            optimizer.zero_grad()
            models.loss_of(model, next(data)).backward()
            optimizer.step()
            seen.append(local(model))
        return seen

    plain = steps(sharded(False), models.batches(rank), 6)
    model = sharded()
    data = models.batches(rank)
    whole = steps(model, data, 2)
    state, weights = gradwire.state_dict(), {k: v.clone() for k, v in model.state_dict().items()}
    whole += steps(model, data, 4)
    gradwire.detach(model)
    for i, (mine, dense) in enumerate(zip(whole, plain)):
        assert torch.allclose(mine, dense, rtol=1e-5, atol=1e-6) == (i < 3), i
    model = sharded()
    model.load_state_dict(weights)
    gradwire.load_state_dict(state)
    data = models.batches(rank)
    next(data), next(data)
    assert torch.equal(steps(model, data, 4)[-1], whole[-1])
    gradwire.detach(model)


def test_shards():
    if not hasattr(torch, "compile"):
        return f"torch {torch.__version__} has no fully_shard"
    ranks.run(2, shards)


if __name__ == "__main__":
    ranks.main(globals())
