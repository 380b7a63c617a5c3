#!/usr/bin/env python3
"""Process groups are lent to one attached model after the other, and only where nothing is left on them."""

import os
import tempfile

import torch.distributed as dist

import models
import ranks
from ranks import gradwire


def attach(ddp, spec="topk:density=0.05"):
    gradwire.attach(ddp, spec, dense_below=200, quiet=True)
    session = gradwire._attached[-1].session
    return session, session._carrier._lines


def train(rank, ddp, what):
    models.train(ddp, models.batches(rank), 2)
    ranks.same_everywhere(ranks.flat(ddp), what)


def attached_again(rank, n):
    """With whatever codec: no more open files than after the first time."""
    ddp, seen = models.ddp(models.mixed()), []
    for spec in ("natural:bits=8", "dense", "topk:density=0.05", "adacomp", "lowrank:rank=2", "natural:bits=8"):
        attach(ddp, spec)
        train(rank, ddp, f"{spec}, after {len(seen)} others")
        gradwire.detach(ddp)
        seen.append(len(os.listdir("/proc/self/fd")))
    assert max(seen) == seen[0], f"open files: {seen}"


def test_attached_again():
    ranks.run(3, attached_again)


def another_order(rank, n):
    """Ranks detach in any order; the same groups serve the same model again on all of them."""
    one, two = models.ddp(models.mixed(1)), models.ddp(models.mixed(2))
    for turn in range(2):
        lines = [attach(one)[1], attach(two, "adacomp")[1]]
        assert lines[0] is not lines[1], "two models by one pair of groups"
        train(rank, one, f"the first model, turn {turn}")
        train(rank, two, f"the second model, turn {turn}")
        for ddp in (one, two) if rank == 0 else (two, one):
            gradwire.detach(ddp)


def test_another_order():
    ranks.run(2, another_order)


def idle():
    """How many wait to be lent."""
    return sum(len(lines) for job in gradwire.groups._idle.values() for lines in job.values())


def only_whole(rank, n):
    """Neither after a step that did not end, nor after a refusal, nor if only one rank has them back."""
    ddp = models.ddp(models.mixed())
    attach(ddp)[0].open()
    gradwire.detach(ddp)
    assert idle() == 0, "groups of a step that did not end"
    ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp, seed=rank, quiet=True), "seed")
    assert idle() == 0, "groups of a refusal"
    session, _ = attach(ddp)
    layers = range(len(session.layers))
    ranks.raises(gradwire.GradwireError, lambda: session.follow([layers if rank == 0 else layers[::-1]]), "order")
    gradwire.detach(ddp)
    assert idle() == 0, "groups of ranks that did not agree"
    session, failed = attach(ddp)
    session._error = gradwire.GradwireError("for this test") if rank == 0 else None
    gradwire.detach(ddp)
    assert idle() == rank, "groups of a step that failed on rank 0"
    _, lines = attach(ddp)
    assert lines is not failed, "groups that rank 0 does not have"
    train(rank, ddp, "after all this")
    gradwire.detach(ddp)
    assert attach(ddp)[1] is lines, "groups that all have are not lent"
    train(rank, ddp, "lent")
    gradwire.detach(ddp)


def test_only_whole():
    ranks.run(2, only_whole)


def another_job(rank, n, folder):
    ddp = models.ddp(models.mixed())
    _, lines = attach(ddp)
    train(rank, ddp, "the first job")
    gradwire.detach(ddp)
    del ddp
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{folder}/again", rank=rank, world_size=n)
    ddp = models.ddp(models.mixed())
    assert attach(ddp)[1] is not lines, "groups of a job that has ended"
    train(rank, ddp, "the second job")
    gradwire.detach(ddp)


def test_another_job():
    with tempfile.TemporaryDirectory() as folder:
        ranks.run(2, another_job, folder)


def another_version(rank, n):
    """Said at attach: ranks whose messages differ would wait for each other."""
    ddp, here = models.ddp(models.mixed()), gradwire.groups.MESSAGES
    gradwire.groups.MESSAGES = here + rank
    ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp), f"rank {1 - rank} has gradwire", f"(messages {here + 1})", "the same on all ranks")
    gradwire.groups.MESSAGES = here
    gather = gradwire.groups.gather
    if rank == 1:  # as versions before did
        gradwire.groups.gather = lambda group, value: gather(group, value[1])
    ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp), "rank 1 has gradwire of before", "the same on all ranks")
    gradwire.groups.gather = gather
    attach(ddp)
    train(rank, ddp, "the same version")
    gradwire.detach(ddp)


def test_another_version():
    ranks.run(2, another_version)


if __name__ == "__main__":
    ranks.main(globals())
