#!/usr/bin/env python3
"""fully_shard: the compressed reduce-scatter, with empty and uneven shards."""

import sys

import torch
import torch.distributed as dist

import models
import ranks
from ranks import gradwire

try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
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


def make(mesh=None):
    mesh = mesh or everyone()
    torch.manual_seed(11)
    model = Uneven()
    for inner in (model.one, model.few):
        fully_shard(inner, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def data(rank, step):
    return torch.randn(6, 37, generator=torch.Generator().manual_seed(100 * step + rank))


def whole(model):
    return torch.cat([p.full_tensor().detach().reshape(-1) for p in model.parameters()])


def steps(model, rank, n, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(n):
        optimizer.zero_grad()
        model(data(rank, step)).pow(2).mean().backward()
        optimizer.step()
    return whole(model)


def by_hand(n, count, lr=0.1):
    """The same training, in one process."""
    torch.manual_seed(11)
    model = Uneven()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(count):
        optimizer.zero_grad()
        (sum(model(data(r, step)).pow(2).mean() for r in range(n)) / n).backward()
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def exact(rank, n):
    wanted = by_hand(n, 4)
    for spec in ("dense", "cast:to=f32"):
        model = make()
        gradwire.attach(model, spec, dense_below=0, quiet=True)
        got = steps(model, rank, 4)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6, msg=lambda m: f"{spec}: {m}")
        assert gradwire.stats()["steps"] == 4
        gradwire.detach(model)


def test_sums_are_right():
    ranks.run(2, exact)
    ranks.run(4, exact)


def lossy(rank, n):
    wanted = by_hand(n, 4)
    start = by_hand(n, 0)
    for spec, residual in (("cast:to=bf16", None), ("natural:bits=8", None), ("dither:bits=4", None), ("ndither:bits=4", None),
                           ("topk:density=0.2", "full"), ("sign", "full")):
        model = make()
        gradwire.attach(model, spec, dense_below=0, residual=residual, quiet=True)
        got = steps(model, rank, 4)
        assert ((got - wanted) ** 2).sum() < 0.6 * ((start - wanted) ** 2).sum(), spec
        assert not torch.equal(got, wanted)
        assert gradwire.stats()["ratio"] > 1.2, (spec, gradwire.stats())
        ranks.same_everywhere(got, spec)
        gradwire.detach(model)


def test_every_kind_of_codec():
    ranks.run(4, lossy)


def resume(rank, n):
    for spec, residual in (("topk:density=0.2", "full"), ("natural:bits=8", None)):
        model = make()
        gradwire.attach(model, spec, dense_below=0, residual=residual, quiet=True)
        wanted = steps(model, rank, 5)
        gradwire.detach(model)
        model = make()
        gradwire.attach(model, spec, dense_below=0, residual=residual, quiet=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            optimizer.zero_grad()
            model(data(rank, step)).pow(2).mean().backward()
            optimizer.step()
            if step == 2:
                state = gradwire.state_dict()
                gradwire.detach(model)
                gradwire.attach(model, spec, dense_below=0, residual=residual, quiet=True)
                gradwire.load_state_dict(state)
        assert torch.equal(wanted, whole(model)), spec
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
    wanted = by_hand(n, 4)
    for spec, tolerance in (("cast:to=f32", 1e-4), ("natural:bits=8", None)):
        model = make(mesh["shard"])
        gradwire.attach(model, spec, dense_below=0, replicas=mesh["replicate"].get_group(), quiet=True)
        got = steps(model, rank, 4)
        if tolerance is not None:
            torch.testing.assert_close(got, wanted, rtol=tolerance, atol=1e-6)
        ranks.same_everywhere(got, f"hybrid {spec}")
        gradwire.detach(model)


def test_hybrid_sharding():
    ranks.run(4, hybrid)


def precision(rank, n):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    torch.manual_seed(11)
    model = Uneven()
    fully_shard(model, mesh=everyone(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16))
    gradwire.attach(model, "natural:bits=8", dense_below=0, quiet=True)
    before = whole(model)
    after = steps(model, rank, 2)
    assert torch.isfinite(after).all() and not torch.equal(before, after)
    ranks.same_everywhere(after, "bfloat16")
    gradwire.detach(model)


def test_mixed_precision():
    ranks.run(2, precision)


def attached_again(rank, n):
    """By the same process groups, unless a step on them did not end."""
    model, seen = make(), []
    for begun in (False, True, False):
        gradwire.attach(model, "natural:bits=8", dense_below=0, quiet=True)
        attached = gradwire._attached[-1].session
        seen.append(attached._carriers[0]._lines)
        ranks.same_everywhere(steps(model, rank, 2), f"attached for the {len(seen)}. time")
        if begun:
            attached._sessions[-1].open()
        gradwire.detach(model)
    assert seen[1] is seen[0], "other groups, although all is well"
    assert seen[2] is not seen[1], "groups of a step that did not end"


def test_attached_again():
    ranks.run(2, attached_again)


if __name__ == "__main__":
    ranks.main(globals())
