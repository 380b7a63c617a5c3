#!/usr/bin/env python3
"""fully_shard: the compressed reduce-scatter, with empty and uneven shards, beside FSDP alone."""

import contextlib
import io
import sys

import torch
import torch.distributed as dist

import models
import ranks
from ranks import gradwire

try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import distribute_tensor
except ImportError:
    print(f"skip: torch {torch.__version__} has no fully_shard")
    sys.exit(77)


class Uneven(torch.nn.Module):
    """Sizes that no number of ranks divides; with 4 ranks one has nothing of `few`."""

    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(37, 61)
        self.few = torch.nn.Linear(61, 3)
        self.norm = torch.nn.LayerNorm(3)
        self.last = torch.nn.Linear(3, 129)

    def forward(self, x):
        return self.last(self.norm(self.few(torch.relu(self.one(x)))))


def everyone():
    """On a machine with a GPU, fully_shard would take that for what it is told nothing of."""
    return init_device_mesh("cpu", (dist.get_world_size(),))


def make(mesh=None, policy=None):
    options = dict(mesh=mesh or everyone(), mp_policy=policy or MixedPrecisionPolicy())
    torch.manual_seed(11)
    model = Uneven()
    for inner in (model.one, model.few):
        fully_shard(inner, **options)
    return fully_shard(model, **options)


def data(rank, step):
    return torch.randn(6, 37, generator=torch.Generator().manual_seed(100 * step + rank))


def local(model):
    """This rank's own bytes of every parameter, with nothing gathered from others."""
    return torch.cat([p.to_local().detach().reshape(-1).clone() for p in model.parameters()])


def backward(model, rank, step=0, scale=1.0):
    model.zero_grad()
    (scale * model(data(rank, step)).pow(2).mean()).backward()


def steps(model, rank, n, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(n):
        backward(model, rank, step)
        optimizer.step()


def gradients(model, rank, count, scale=1.0):
    """Sums over `count` steps with the same weights and data: this rank's shards, by parameter."""
    total = {}
    for _ in range(count):
        backward(model, rank, scale=scale)
        for name, p in model.named_parameters():
            total[name] = total.get(name, 0) + p.grad.to_local().detach().float().clone()
    return total


def plain_gradients(rank, **options):
    """The same of FSDP alone, in one step."""
    return gradients(make(**options), rank, 1)


def check_mean(model, rank, wanted, most, what, drain=0):
    """What arrives is the gradient on the average. Codecs with residuals send later what they held back: `drain` steps without a
    gradient bring it out. Compared with FSDP alone, of every parameter over all ranks, and of this rank's shards; the squared error is
    relative. A gradient that is twice or half of what it should be has 1 or 0.25, one that is missing 1."""
    repeats = 4 if drain else 16
    total, late = gradients(model, rank, repeats), gradients(model, rank, drain, scale=0.0)
    total = {k: (total[k] + late.get(k, 0)) / repeats for k in total}
    squares = torch.tensor([[((total[k] - wanted[k]) ** 2).sum(), (wanted[k] ** 2).sum()] for k in wanted])
    own = squares.sum(0)
    dist.all_reduce(squares)
    errors = {k: (error / square).item() for k, (error, square) in zip(wanted, squares)}
    assert all(error < most for error in errors.values()) and own[0] / own[1] < most, f"{what}: {errors}, rank {rank}'s shards {own[0] / own[1]}"


def same_bytes(tensor, group, what):
    """Real bytes of each rank of the group, beside each other."""
    flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
    everyone = [torch.empty_like(flat) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, flat, group=group)
    for i, other in enumerate(everyone):
        assert torch.equal(other, everyone[0]), f"{what}: replica {i} differs from replica 0"


def exact(rank, n):
    """Sums are made in another order than gloo makes them: a few units in the last place of a gradient."""
    model = make()
    steps(model, rank, 4)
    start, wanted, gradient = local(make()), local(model), plain_gradients(rank)
    for spec in ("dense", "cast:to=f32"):
        model = make()
        gradwire.attach(model, spec, dense_below=0, quiet=True)
        for name, got in gradients(model, rank, 1).items():
            torch.testing.assert_close(got, gradient[name], rtol=1e-5, atol=1e-7, msg=lambda m: f"{spec}, {name}: {m}")
        steps(model, rank, 4)
        torch.testing.assert_close(local(model), wanted, rtol=1e-5, atol=1e-6, msg=lambda m: f"{spec}: {m}")
        assert not torch.equal(local(model), start) and gradwire.stats()["steps"] == 5
        gradwire.detach(model)


def test_sums_are_right():
    ranks.run(2, exact)
    ranks.run(4, exact)


def lossy(rank, n):
    wanted = plain_gradients(rank)
    for spec, drain, most in (("cast:to=bf16", 0, 1e-4), ("natural:bits=8", 0, 0.02), ("dither:bits=4", 0, 0.02),
                              ("ndither:bits=4", 0, 0.05), ("topk:density=0.2", 8, 1e-8), ("sign:bucket=64", 32, 0.05)):
        model = make()
        gradwire.attach(model, spec, dense_below=0, residual="full" if drain else None, quiet=True)
        check_mean(model, rank, wanted, most, spec, drain)
        assert gradwire.stats()["ratio"] > 1.2, (spec, gradwire.stats())
        gradwire.detach(model)


def test_every_kind_of_codec():
    ranks.run(4, lossy)


def trained(rank, spec, residual, stop, load=True):
    """Five steps, with a stop and a new attach after the third, or in one go."""
    model = make()
    gradwire.attach(model, spec, dense_below=0, residual=residual, quiet=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        backward(model, rank, step)
        optimizer.step()
        if stop and step == 2:
            state = gradwire.state_dict()
            gradwire.detach(model)
            gradwire.attach(model, spec, dense_below=0, residual=residual, quiet=True)
            if load:
                gradwire.load_state_dict(state)
    gradwire.detach(model)
    return local(model)


def resume(rank, n):
    for spec, residual in (("topk:density=0.2", "full"), ("natural:bits=8", None)):
        whole = trained(rank, spec, residual, False)
        assert torch.equal(whole, trained(rank, spec, residual, True)), spec
        assert not torch.equal(whole, trained(rank, spec, residual, True, load=False)), f"{spec}: the state makes no difference"
    model = make()
    gradwire.attach(model, "natural:bits=8", dense_below=0, quiet=True)
    ranks.raises(gradwire.GradwireError, lambda: gradwire.verify(model), "no two ranks have the same shard")
    gradwire.detach(model)


def test_resume_bit_for_bit():
    ranks.run(2, resume)


def refused(rank, n):
    error = gradwire.GradwireError
    model = make()
    ranks.raises(error, lambda: gradwire.attach(model, "topk:density=0.1", dense_below=0), "residual=\"full\"", "MB")
    ranks.raises(error, lambda: gradwire.attach(model, "lowrank:rank=1", dense_below=0, residual="full"), "whole matrices")
    ranks.raises(error, lambda: gradwire.attach(model, "zip"), "zip")
    ranks.raises(error, lambda: gradwire.attach(model, "natural:bits=8", route="gather"), "half of sra")


def test_refused():
    ranks.run(2, refused)


def hybrid(rank, n):
    """Two by two: sharded over one half, averaged over the replicas in the other direction."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    replicas = mesh["replicate"].get_group()
    model = make()
    backward(model, rank)
    wanted = {name: p.grad.full_tensor() for name, p in model.named_parameters()}  # of FSDP alone, over all four
    for spec, most in (("cast:to=f32", 1e-10), ("natural:bits=8", 0.05)):  # coded twice
        model = make(mesh["shard"])
        gradwire.attach(model, spec, dense_below=0, replicas=replicas, quiet=True)
        shards = {name: shard_of(wanted[name], p) for name, p in model.named_parameters()}
        check_mean(model, rank, shards, most, f"hybrid {spec}")
        steps(model, rank, 4)
        same_bytes(local(model), replicas, f"hybrid {spec}")
        gradwire.detach(model)


def shard_of(whole, parameter):
    """This rank's part of a whole tensor, as `parameter` is sharded."""
    return distribute_tensor(whole, parameter.device_mesh, parameter.placements).to_local()


def test_hybrid_sharding():
    ranks.run(4, hybrid)


def precision(rank, n):
    """In bfloat16, beside FSDP alone in bfloat16."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    wanted = plain_gradients(rank, policy=policy)
    for spec, most in (("dense", 1e-4), ("natural:bits=8", 0.02)):
        model = make(policy=policy)
        gradwire.attach(model, spec, dense_below=0, quiet=True)
        check_mean(model, rank, wanted, most, f"bfloat16, {spec}")
        check_bytes(model, n, 2, spec)
        before = local(model)
        steps(model, rank, 2)
        assert torch.isfinite(local(model)).all() and not torch.equal(before, local(model))
        gradwire.detach(model)


def check_bytes(model, n, width, spec):
    """Half a dense route sends every rank's part of a row, as wide as FSDP reduces it."""
    stats = gradwire.stats(layers=True)
    least = stats["steps"] * (n - 1) * width * sum(layer["elements"] for layer in stats["layers"]) // n
    assert stats["dense_bytes"] == least, (least, stats)
    seals = stats["steps"] * len(stats["layers"]) * (n - 1) * 16
    assert spec != "dense" or stats["bytes_sent"] == least + seals, (least, stats)


def reduced_in(rank, n):
    """Computed in one type and reduced in another: the second is what is sent."""
    for parameter, reduced, width in ((torch.bfloat16, torch.float32, 4), (None, torch.bfloat16, 2), (torch.bfloat16, None, 4), (None, None, 4)):
        policy = MixedPrecisionPolicy(param_dtype=parameter, reduce_dtype=reduced)
        wanted = plain_gradients(rank, policy=policy)
        model = make(policy=policy)
        gradwire.attach(model, "dense", dense_below=0, quiet=True)
        check_mean(model, rank, wanted, 1e-4, f"{parameter}, reduced in {reduced}")
        check_bytes(model, n, width, "dense")
        gradwire.detach(model)
    model = make(policy=MixedPrecisionPolicy(param_dtype=torch.float64))
    ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(model, "dense"), "torch.float64", "float16 and bfloat16")


def test_mixed_precision():
    ranks.run(2, precision)
    ranks.run(4, reduced_in)


def attached_again(rank, n):
    """By the same process groups, unless a step on them did not end."""
    model, seen, wanted = make(), [], plain_gradients(rank)
    for begun in (False, True, False):
        gradwire.attach(model, "natural:bits=8", dense_below=0, quiet=True)
        attached = gradwire._attached[-1].session
        seen.append(attached._carriers[0]._lines)
        check_mean(model, rank, wanted, 0.02, f"attached for the {len(seen)}. time")
        if begun:
            attached._sessions[-1].open()
        gradwire.detach(model)
    assert seen[1] is seen[0], "other groups, although all is well"
    assert seen[2] is not seen[1], "groups of a step that did not end"


def test_attached_again():
    ranks.run(2, attached_again)


def drained(rank, model, states):
    """All that residuals hold comes out with gradients of zeros, a fifth in a step."""
    gradwire.attach(model, "topk:density=0.2", dense_below=0, residual="full", quiet=True)
    gradwire.load_state_dict(states[rank], missing="drop")
    found = gradients(model, rank, 8, scale=0.0)
    lost = gradwire.stats().get("lost")
    backward(model, rank)
    assert (lost is None) == (None not in states) and (lost is None or lost["gradient_norm"] is None), lost
    if lost is not None:
        check_own_norm(rank, gradwire.stats()["lost"])
    gradwire.detach(model)
    return found


def check_own_norm(rank, lost):
    """Of the gradient of this rank's loss alone, in one process."""
    torch.manual_seed(11)
    alone = Uneven()
    alone(data(rank, 0)).pow(2).mean().backward()
    norm = sum(p.grad.double().pow(2).sum() for p in alone.parameters()).sqrt().item()
    assert abs(lost["gradient_norm"] / norm - 1) < 1e-4, (lost, norm)


def lost(rank, n):
    """A rank's state is gone: the others' residuals are all kept."""
    model, gradient = make(), plain_gradients(rank)
    gradwire.attach(model, "topk:density=0.2", dense_below=0, residual="full", quiet=True)
    sent, state = gradients(model, rank, 3), gradwire.state_dict()
    gradwire.detach(model)
    both = drained(rank, model, [state, state])
    first, second = drained(rank, model, [state, None]), drained(rank, model, [None, state])
    for name, g in gradient.items():
        torch.testing.assert_close(sent[name] + both[name], 3 * g, rtol=1e-4, atol=1e-6, msg=lambda m: f"{name}: {m}")
        torch.testing.assert_close(first[name] + second[name], both[name], rtol=1e-4, atol=1e-6, msg=lambda m: f"{name}: {m}")
    assert any(first[name].abs().max() > 1e-3 for name in first if first[name].numel())
    assert any(second[name].abs().max() > 1e-3 for name in second if second[name].numel())


def test_a_lost_state():
    ranks.run(2, lost)


def warned(rank, n, nodes):
    """Routes of shards are flat: what the ranks of a node send through its card together may be more than FSDP alone sends."""
    for spec, expected in (("natural:bits=8", False), ("dense", True), ("topk:density=0.95", True)):
        said, model = io.StringIO(), fully_shard(torch.nn.Linear(256, 256, bias=False), mesh=everyone())
        with contextlib.redirect_stderr(said):
            gradwire.attach(model, spec, dense_below=0, residual="full", quiet=True, node=nodes[rank])
        found = "through a node's network card along this route; DDP sends" in said.getvalue()
        model(torch.ones(1, 256)).sum().backward()
        stats = gradwire.stats()
        assert 0 < stats["far_bytes_sent"] < stats["bytes_sent"] and 0 < stats["far_dense_bytes"] < stats["dense_bytes"], stats
        gradwire.detach(model)
        assert found == (expected and rank == 0), (spec, said.getvalue())


def test_what_sends_more_is_named():
    ranks.run(4, warned, "aabb")


if __name__ == "__main__":
    ranks.main(globals())
