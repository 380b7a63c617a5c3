#!/usr/bin/env python3
"""Checkpoints of torch.distributed.checkpoint (DCP), which writes only once what has the same key on all ranks."""

import copy
import io
import os
import tempfile

import torch
import torch.distributed as dist

try:
    import torch.distributed.checkpoint as dcp
except ImportError:
    dcp = None

import models
import ranks
from ranks import gradwire
from test_state import Given, given, plain_sgd

SPECS = ["topk:density=0.05", "adacomp", "lowrank:rank=2", "sign", "natural:bits=8", "adapt:period=4/topk:density=0.05"]
NO_DCP = f"torch {torch.__version__} has no torch.distributed.checkpoint"


def attach(model, spec, below=200):
    ddp = models.ddp(model)
    gradwire.attach(ddp, spec, dense_below=below, seed=9, quiet=True)
    return ddp


def resumed(rank, n, folder):
    """Saved by DCP, loaded by DCP into a new session: goes on bit for bit, with every rank's own residuals."""
    for spec in SPECS:
        path = os.path.join(folder, spec.replace("/", " "))
        whole = models.mixed()
        ddp, data = attach(whole, spec), models.batches(rank)
        plain_sgd(ddp, data, 3)
        dcp.save({"model": ddp.module.state_dict(), "gradwire": gradwire.Checkpoint(ddp)}, checkpoint_id=path)
        plain_sgd(ddp, data, 4)
        gradwire.detach(ddp)

        second = models.mixed(seed=4)
        ddp, data = attach(second, spec), models.batches(rank)
        for _ in range(3):
            next(data)
        dcp.load({"model": ddp.module.state_dict(), "gradwire": gradwire.Checkpoint(ddp)}, checkpoint_id=path)
        plain_sgd(ddp, data, 4)
        assert torch.equal(ranks.flat(whole), ranks.flat(second)), spec
        gradwire.detach(ddp)


def test_dcp_resumes_bit_for_bit():
    if dcp is None:
        return NO_DCP
    with tempfile.TemporaryDirectory() as folder:
        ranks.run(2, resumed, folder)


def bare(rank, n, folder):
    """Of a state DCP would keep one rank's: saving fails on all ranks and says what to do, also of a copy. Other ways of saving work."""
    ddp = attach(Given(), "topk:density=0.1", 0)
    ddp(given(rank, 1)).backward()
    state = gradwire.state_dict()
    if dcp is not None:
        for what in (state, copy.deepcopy(state)):
            ranks.raises(dcp.CheckpointException, lambda: dcp.save({"model": ddp.module.state_dict(), "gradwire": what},
                                                                   checkpoint_id=folder), "'gradwire'", "gradwire.Checkpoint(model)")
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    gradwire.load_state_dict(loaded)
    gradwire.load_state_dict({k: v for k, v in loaded.items() if k != "of_each_rank"})  # as before it was there
    assert torch.equal(gradwire.state_dict()["residuals"], state["residuals"])


def test_a_bare_state():
    with tempfile.TemporaryDirectory() as folder:
        ranks.run(2, bare, folder)


def save(rank, n, folder):
    ddp = attach(Given(), "topk:density=0.1", 0)
    ddp(given(rank, 1)).backward()
    dcp.save({"gradwire": gradwire.Checkpoint()}, checkpoint_id=folder)
    return ddp.module.weight.grad * n


def load(rank, n, folder):
    """What the residuals hold comes with the next gradient."""
    ddp = attach(Given(), "dense", 0)
    dcp.load({"gradwire": gradwire.Checkpoint()}, checkpoint_id=folder)
    assert gradwire.state_dict()["step"] == 1
    ddp(torch.zeros(40, 50)).backward()
    return ddp.module.weight.grad * n


def test_dcp_at_another_number_of_ranks():
    if dcp is None:
        return NO_DCP
    with tempfile.TemporaryDirectory() as folder:
        sent = ranks.run(4, save, folder)[0]
        wanted = sum(given(r, 1) for r in range(4))
        assert not torch.allclose(sent, wanted, atol=1e-3)
        for n in (1, 2, 3, 5):
            kept = ranks.run(n, load, folder)[0]
            torch.testing.assert_close(sent + kept, wanted, rtol=1e-5, atol=1e-5, msg=lambda m: f"{n} ranks: {m}")


def parts(rank, n, folder, load_by):
    """A model on two of the ranks, another on the other two, both saved as "gradwire": none overwrites the other's."""
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])] if n == 4 else [dist.new_group([0, 1]), dist.new_group([2])]
    half = halves[rank // 2]
    ddp = models.ddp(Given(), process_group=half)
    gradwire.attach(ddp, "topk:density=0.1", dense_below=0, seed=9, quiet=True)
    if n != load_by:
        ranks.raises(Exception, lambda: dcp.load({"gradwire": gradwire.Checkpoint()}, checkpoint_id=folder), "saved by 4 ranks")
        return
    ddp(given(rank, 1)).backward()
    before = gradwire.state_dict()
    dcp.save({"gradwire": gradwire.Checkpoint()}, checkpoint_id=folder)
    ddp(given(rank, 2)).backward()
    dcp.load({"gradwire": gradwire.Checkpoint()}, checkpoint_id=folder)
    after = gradwire.state_dict()
    assert after["step"] == before["step"] == 1 and torch.equal(after["residuals"], before["residuals"])


def test_dcp_of_models_on_parts_of_the_ranks():
    if dcp is None:
        return NO_DCP
    with tempfile.TemporaryDirectory() as folder:
        ranks.run(4, parts, folder, 4)
        ranks.run(3, parts, folder, 4)


def shards(rank, n, folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))

    def sharded():
        model = models.mixed()
        fully_shard(model, mesh=mesh["shard"])
        gradwire.attach(model, "topk:density=0.05", dense_below=200, residual="full", replicas=mesh["replicate"].get_group(), quiet=True)
        return model

    def local(model):
        return torch.cat([p.to_local().detach().reshape(-1) for p in model.parameters()])

    whole = sharded()
    data = models.batches(rank)
    plain_sgd(whole, data, 3)
    weights = {k: v.clone() for k, v in whole.state_dict().items()}
    dcp.save({"gradwire": gradwire.Checkpoint()}, checkpoint_id=folder)
    plain_sgd(whole, data, 3)
    gradwire.detach(whole)
    second = sharded()
    second.load_state_dict(weights)
    dcp.load({"gradwire": gradwire.Checkpoint()}, checkpoint_id=folder)
    data = models.batches(rank)
    for _ in range(3):
        next(data)
    plain_sgd(second, data, 3)
    assert torch.equal(local(whole), local(second))
    gradwire.detach(second)


def test_dcp_of_shards():
    if dcp is None:
        return NO_DCP
    with tempfile.TemporaryDirectory() as folder:
        ranks.run(4, shards, folder)


def too_many(rank, n):
    ddp = attach(Given(), "topk:density=0.1", 0)
    gradwire.state.SLOTS = 1
    ranks.raises(gradwire.GradwireError, gradwire.Checkpoint(ddp).state_dict, "1 ranks at most, not 2", "file of its own")
    ranks.raises(gradwire.GradwireError, lambda: gradwire.Checkpoint(models.mixed()), "not attached")


def test_more_ranks_than_slots():
    ranks.run(2, too_many)


if __name__ == "__main__":
    ranks.main(globals())
