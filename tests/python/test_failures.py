#!/usr/bin/env python3
"""What is wrong is said in words: at attach where it can be, and soon where a peer dies."""

import json
import os
import signal
import tempfile
import time

import torch

import models
import ranks
from ranks import gradwire


def refused(rank, n, folder):
    error = gradwire.GradwireError
    ddp = models.ddp(models.mixed())

    def attach(*needles, **options):
        return ranks.raises(error, lambda: gradwire.attach(ddp, options.pop("what", "natural:bits=8"), **options), *needles)

    attach("zip", what="zip:bits=8")
    attach("bits", what="natural:bits=12")
    attach("no parameter is called 'nothing.*'", rules={"nothing.*": "sign"})
    attach("route", route="sideways")
    attach("lowrank", what="lowrank:rank=2", route="sra", dense_below=100)
    # one rank alone, and all hear of it
    words = attach("natural:bits=" if rank == 1 else "rank 1 cannot attach", what="natural:bits=99" if rank == 1 else "natural:bits=8")
    assert "bits" in words
    attach("seed", "rank", seed=rank)
    attach("head.weight", "codec", rules={"head.weight": "sign" if rank == 0 else "natural:bits=8"})
    ranks.raises(error, lambda: gradwire.attach(torch.nn.Linear(2, 2)), "DistributedDataParallel")
    ranks.raises(error, lambda: gradwire.attach(models.ddp(models.mixed(dtype=torch.float64))), "float64")
    sparse = torch.nn.Sequential(torch.nn.Embedding(4, 4, sparse=True), torch.nn.Linear(4, 4))
    ranks.raises(error, lambda: gradwire.attach(models.ddp(sparse)), "sparse")
    hooked = models.ddp(models.mixed())
    hooked.register_comm_hook(None, lambda state, bucket: None)
    ranks.raises(error, lambda: gradwire.attach(hooked), "hook already")
    ranks.raises(error, gradwire.detach, "0 models")
    gradwire.attach(ddp, "natural:bits=8", dense_below=200, quiet=True)  # nothing of all this has stuck
    models.train(ddp, models.batches(rank), 2)
    ranks.same_everywhere(ranks.flat(ddp), "after refusals")
    gradwire.detach(ddp)
    plans(rank, ddp, folder)


def plans(rank, ddp, folder):
    tensors = [{"name": name, "elements": p.numel(), "spec": "natural:bits=8" if p.dim() > 1 else "dense",
                "route": "sra" if p.dim() > 1 else "dense", "bucket": i} for i, (name, p) in enumerate(ddp.module.named_parameters())]

    def write(name, found, form="gradwire.plan/1"):
        path = os.path.join(folder, f"{name}-{rank}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"format": form, "tensors": found}, file)
        return path

    def refuse(path, *needles):
        ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp, path, quiet=True), *needles)

    refuse(os.path.join(folder, "none.json"), "none.json", "No such file")
    refuse(write("format", tensors, "gradwire.job/1"), "its format is 'gradwire.job/1'")
    refuse(write("other", tensors + [dict(tensors[0], name="layer9.weight", bucket=99)]), "layer9.weight", "another model")
    refuse(write("fewer", tensors[1:]), tensors[0]["name"], "says nothing")
    refuse(write("size", [dict(tensors[0], elements=7)] + tensors[1:]), "7 elements in the plan")
    refuse(write("codec", [dict(tensors[0], spec="zip")] + tensors[1:]), "zip")
    refuse(write("key", [{"name": "x"}]), "tensors[0]: key 'elements' is missing")
    gradwire.attach(ddp, write("good", tensors), quiet=True)
    models.train(ddp, models.batches(rank), 2)
    ranks.same_everywhere(ranks.flat(ddp), "by a plan")
    assert {layer["spec"] for layer in gradwire.stats(layers=True)["layers"]} == {"natural:bits=8", "dense"}
    gradwire.detach(ddp)


def test_refused_at_attach():
    with tempfile.TemporaryDirectory() as folder:
        ranks.run(2, refused, folder)


def dies(rank, n, how):
    torch.manual_seed(0)
    ddp = models.ddp(models.mixed())
    # dead is noticed at once; stopped only by the timeout
    gradwire.attach(ddp, "natural:bits=8", dense_below=200, timeout=30 if how == signal.SIGKILL else 3, quiet=True)
    data = models.batches(rank)
    models.train(ddp, data, 3)
    if rank == 2:
        os.kill(os.getpid(), how)
        os._exit(3)
    begin = time.monotonic()
    words = ranks.raises(RuntimeError, lambda: models.train(ddp, data, 3), "step", "rank 2")
    again = ranks.raises(RuntimeError, lambda: models.train(ddp, data, 1), "earlier step failed", "rank 2")
    assert again
    named = [name for name, _ in ddp.module.named_parameters() if f"'{name}'" in words] or "small layers" in words
    assert named, words
    return time.monotonic() - begin


def test_a_peer_that_dies():
    took = ranks.run(4, dies, signal.SIGKILL, may_die=(2,))
    assert max(t for t in took if t is not None) < 20


def attached(rank):
    ddp = models.ddp(models.mixed())
    gradwire.attach(ddp, "natural:bits=8", dense_below=200, timeout=30, quiet=True)
    data = models.batches(rank)
    models.train(ddp, data, 3)
    return ddp, data, gradwire._attached[-1].session


def dies_in_the_middle(rank, n):
    """The step has failed, and is known to have, while backward still makes buckets."""
    ddp, data, session = attached(rank)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    make, futures = session.future, []

    def future(*arguments):
        futures.append(make(*arguments))
        return futures[-1]

    session.future = future
    # its parameter is of the last bucket
    ddp.module.embed.weight.register_hook(lambda _: ranks.raises(RuntimeError, futures[0].wait, "rank 1") and None)
    ranks.raises(RuntimeError, lambda: models.train(ddp, data, 1), "step 3", "rank 1")
    for _ in range(2):
        ranks.raises(RuntimeError, lambda: models.train(ddp, data, 1), "an earlier step failed: step 3", "rank 1")


def test_a_peer_that_dies_in_the_middle():
    ranks.run(2, dies_in_the_middle, may_die=(1,))


def dies_before_it_says_why(rank, n):
    """The first to fail has claimed the word, and is gone before it spoke."""
    ddp, data, session = attached(rank)
    gradwire.carrier.PATIENCE = 1
    if rank == 1:
        session._carrier._store.add(session._carrier._key + "/failed", 1)
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    ranks.raises(RuntimeError, lambda: models.train(ddp, data, 1), "step 3", "rank 1")
    return time.monotonic() - begin


def test_a_peer_that_dies_before_it_says_why():
    assert ranks.run(2, dies_before_it_says_why, may_die=(1,))[0] < 20


def refused_in_the_middle(rank, n):
    """What backward cannot post is said by backward, and goes on being said."""
    ddp, data, session = attached(rank)
    post, last = session.post_tensor, session.layers.index(next(x for x in session.layers if x.name == "embed.weight"))

    def post_or_refuse(layer, gradient):
        if layer == last:
            raise gradwire.GradwireError("no room for 'embed.weight'")
        post(layer, gradient)

    session.post_tensor = post_or_refuse
    ranks.raises(RuntimeError, lambda: models.train(ddp, data, 1), "no room for 'embed.weight'")
    session.post_tensor = post
    for _ in range(2):
        ranks.raises(RuntimeError, lambda: models.train(ddp, data, 1), "an earlier step failed: no room")


def test_a_layer_that_cannot_be_posted():
    ranks.run(2, refused_in_the_middle)


def flipped(rank, n):
    """One bit of a message changes at rank 1: it fails at once, rank 0 by the end of the next step, and neither saves."""
    ddp, data, session = attached(rank)
    gradwire.verify(ddp)
    before = gradwire.state_dict(ddp)
    copy, struck = gradwire.carrier.ctypes.memmove, []

    def memmove(to, source, size):
        copy(to, source, size)
        if rank == 1 and not struck and size > 64:
            struck.append(size)
            gradwire.carrier.memory(to, size)[size // 3:size // 3 + 1] = bytes([gradwire.carrier.memory(to, size)[size // 3] ^ 4])

    gradwire.carrier.ctypes.memmove = memmove
    try:
        words = ranks.raises(RuntimeError, lambda: models.train(ddp, data, 1 if rank == 1 else 2), "step 3" if rank == 1 else "step")
    finally:
        gradwire.carrier.ctypes.memmove = copy
    said = ["changed on"] if rank == 1 else []  # the other's words may be too long for a reason of a reason
    assert all(word in words for word in said), words
    assert before["step"] == 3
    for call in (lambda: gradwire.state_dict(ddp), lambda: gradwire.verify(ddp)):
        ranks.raises(gradwire.GradwireError, call, "an earlier step failed", *said)


def test_a_bit_that_flips():
    ranks.run(2, flipped)


def flipped_at_attach(rank, n):
    """What ranks say of themselves by torch's own messages."""
    gather = torch.distributed.all_gather_object

    def spoil(values, value, group=None):
        gather(values, value, group=group)
        if rank == 1:
            said, seal = values[0]
            values[0] = (said[:-3] + bytes([said[-3] ^ 1]) + said[-2:], seal)

    torch.distributed.all_gather_object = spoil
    try:
        if rank == 1:
            ranks.raises(gradwire.GradwireError, lambda: gradwire.groups.gather(None, ("a name", 7)), "rank 0", "changed on its way")
        else:
            assert gradwire.groups.gather(None, ("a name", 7)) == [("a name", 7)] * n
    finally:
        torch.distributed.all_gather_object = gather


def test_a_bit_that_flips_at_attach():
    ranks.run(2, flipped_at_attach)


def test_a_peer_that_stops():
    ranks.run_with_stopped(4, dies, 2)


if __name__ == "__main__":
    ranks.main(globals())
