#!/usr/bin/env python3
"""Replicas are equal, with every codec; dense is DDP's own sum."""

import torch

import models
import ranks
from ranks import gradwire

SPECS = ["dense", "cast:to=f32", "cast:to=f16", "cast:to=bf16", "natural:bits=8", "natural:bits=9", "ndither:bits=3", "dither:bits=4",
         "adacomp", "topk:density=0.05", "topk:density=0.05,values=natural", "randk:density=0.1", "sign", "lowrank:rank=2"]


def every_codec(rank, n):
    for spec in SPECS:
        model = models.mixed()
        ddp = models.ddp(model)
        gradwire.attach(ddp, spec, dense_below=200, quiet=True)
        before = ranks.flat(model)
        models.train(ddp, models.batches(rank), 4,
                     after_backward=lambda m: ranks.same_everywhere(ranks.flat_gradients(m), f"gradients, {spec}"))
        ranks.same_everywhere(ranks.flat(model), spec)
        assert not torch.equal(before, ranks.flat(model)), f"{spec}: nothing was learnt"
        sent = gradwire.stats(ddp)
        assert sent["steps"] == 4 and sent["bytes_sent"] > 0
        if spec not in ("dense", "cast:to=f32"):
            assert sent["ratio"] > 1.5, f"{spec}: {sent}"
        gradwire.detach(ddp)


def test_every_codec_with_2_ranks():
    ranks.run(2, every_codec)


def test_auto_with_2_ranks():
    ranks.run(2, planned_by_auto)


def test_every_codec_with_4_ranks():
    ranks.run(4, every_codec)


USUAL = {"dense": "hier-dense", "natural:bits=8": "hier-sra@cpu", "dither:bits=4": "hier-sra@cpu", "topk:density=0.05": "hier-gather@cpu",
         "adacomp": "hier-gather@cpu", "lowrank:rank=2": "hier-sum@cpu"}


def on_nodes(rank, n, nodes):
    for spec, route in USUAL.items():
        model = models.mixed()
        ddp = models.ddp(model)
        gradwire.attach(ddp, spec, dense_below=200, quiet=True, node=nodes[rank])
        models.train(ddp, models.batches(rank), 4,
                     after_backward=lambda m: ranks.same_everywhere(ranks.flat_gradients(m), f"gradients, {spec}"))
        ranks.same_everywhere(ranks.flat(model), spec)
        routes = {layer["route"] for layer in gradwire.stats(layers=True)["layers"]}
        assert routes == {route, "hier-dense"}, (spec, routes)
        gradwire.detach(ddp)


def test_nodes_of_equal_and_other_sizes():
    """Uncompressed inside a node, compressed once between nodes; ranks need not be in the order of nodes."""
    for nodes in ("aabb", "aab", "abba"):
        ranks.run(len(nodes), on_nodes, nodes)


def trained(rank, spec, short, ready):
    """Weights, and how many receives wait for each peer's messages after the last step."""
    carrier = gradwire.carrier
    carrier.SHORT, carrier.READY = short, ready
    gradwire.groups._idle.clear()  # receives of another length wait there
    model = models.mixed()
    ddp = models.ddp(model)
    gradwire.attach(ddp, spec, dense_below=200, quiet=True)
    session = gradwire._attached[-1].session
    assert session._carrier._lines.up is not session._carrier._lines.down, "both directions by one connection"
    models.train(ddp, models.batches(rank), 4)
    session._posted.put(None)  # so that the thread that posts receives has done so
    session._finisher.join()
    session._finisher = None
    waiting = [len(mailbox._posted) for mailbox in session._carrier._lines.mailboxes.values()]
    gradwire.detach(ddp)
    return ranks.flat(model), waiting


def messages_of_every_length(rank, n):
    """Which receive a message finds hangs on its length alone; what arrives does not hang on it at all."""
    for spec in ("dense", "topk:density=0.05", "adacomp", "lowrank:rank=2"):
        alone, none = trained(rank, spec, 0, 16)
        assert not none, f"{spec}: receives wait for messages that are not short"
        for short, ready in ((300, 1), (300, 16), (1 << 16, 16)):  # of this network some messages are longer than 300 bytes
            weights, waiting = trained(rank, spec, short, ready)
            assert torch.equal(alone, weights), f"{spec}: other weights where messages up to {short} bytes are short"
            assert waiting and max(waiting) <= ready and max(waiting) >= 1, f"{spec}, {short} bytes, {ready} receives: {waiting} wait"


def test_messages_of_every_length():
    ranks.run(3, messages_of_every_length)


def planned_by_auto(rank, n):
    """What is planned hangs on measured times; that all ranks plan it, and that nothing is lost over a restart, does not."""
    model = models.mixed()
    ddp = models.ddp(model)
    gradwire.attach(ddp, "auto:period=40", dense_below=200, quiet=True)

    def check(m):
        ranks.same_everywhere(ranks.flat_gradients(m), "gradients, auto")
        gradwire.tell_loss(1.0 + rank)

    models.train(ddp, models.batches(rank), 20, after_backward=check)
    choice = gradwire.stats(ddp)["auto"]
    assert choice["decisions"] >= 1 and choice["reason"] == "start" and choice["words"], choice
    assert choice["error"] <= choice["budget"] and choice["bound_at"] <= 20 and choice["predicted_seconds"] > 0, choice
    specs = [layer["spec"] for layer in gradwire.stats(ddp, layers=True)["layers"]]
    state = gradwire.state_dict(ddp)
    gradwire.detach(ddp)
    gradwire.attach(ddp, "auto:period=40", dense_below=200, quiet=True)
    gradwire.load_state_dict(state)
    assert specs == [layer["spec"] for layer in gradwire.stats(ddp, layers=True)["layers"]], "another plan after a restart"
    models.train(ddp, models.batches(rank), 4, after_backward=check)
    ranks.same_everywhere(ranks.flat(model), "auto, resumed")
    gradwire.detach(ddp)
    for what, options, words in (("auto:alpha=-1", {}, "alpha"), ("auto", {"rules": {"*": "dense"}}, "rules"), ("auto/lowrank:rank=0", {}, "rank")):
        try:
            gradwire.attach(models.ddp(models.mixed()), what, **options)
        except gradwire.GradwireError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"{what} was taken")


def chosen_levels(rank, n):
    for spec in ("adapt:period=4,floor=0.5/dither:bits=4", "adapt:period=4,floor=0.5/topk:density=0.05",
                 "adapt:period=4,floor=0.5/lowrank:rank=2"):
        model = models.mixed()
        ddp = models.ddp(model)
        gradwire.attach(ddp, spec, dense_below=200, quiet=True)
        models.train(ddp, models.batches(rank), 10,
                     after_backward=lambda m: ranks.same_everywhere(ranks.flat_gradients(m), f"gradients, {spec}"))
        ranks.same_everywhere(ranks.flat(model), spec)
        choice = gradwire.stats(ddp)["adapt"]
        assert choice["decisions"] == 2 and choice["error"] <= choice["budget"] and choice["words"], choice
        specs = {layer["spec"] for layer in gradwire.stats(ddp, layers=True)["layers"]}
        assert choice["bytes"] < choice["uniform_bytes"] and len(specs) > 2, f"{spec}: {choice}, {specs}"
        gradwire.detach(ddp)
    try:
        gradwire.attach(models.ddp(models.mixed()), "adapt:floor=2/dither:bits=4")
    except gradwire.GradwireError as error:
        assert "floor=2" in str(error), error
    else:
        raise AssertionError("a floor of 2 was taken")


def test_chosen_levels():
    ranks.run(2, chosen_levels)


def dense_is_ddps(rank, n):
    results = []
    for ours in (False, True):
        model = models.mixed()
        ddp = models.ddp(model)
        if ours:
            gradwire.attach(ddp, "dense", quiet=True)
        models.train(ddp, models.batches(rank), 5)
        results.append(ranks.flat(model))
        if ours:
            gradwire.detach(ddp)
    if n == 2:  # one order of addition only, and halves are exact
        assert torch.equal(*results)
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


def test_dense_is_ddps_own_sum():
    ranks.run(2, dense_is_ddps)
    ranks.run(4, dense_is_ddps)


def of_the_mean(rank, n):
    """What arrives is near the mean of all ranks' gradients, not of some."""
    for spec, error in (("cast:to=f32", 1e-12), ("cast:to=bf16", 1e-4), ("natural:bits=8", 0.3), ("dither:bits=8", 0.01)):
        model = torch.nn.Linear(64, 64, bias=False)
        ddp = models.ddp(model)
        gradwire.attach(ddp, spec, dense_below=0, quiet=True)
        g = torch.Generator().manual_seed(rank)
        x = torch.randn(4, 64, generator=g)
        ddp(x).sum().backward()
        mean = sum(torch.randn(4, 64, generator=torch.Generator().manual_seed(r)).sum(0) for r in range(n)) / n
        wanted = mean.expand(64, 64)
        lost = ((model.weight.grad - wanted) ** 2).sum() / (wanted ** 2).sum()
        assert lost < error, f"{spec}: {lost}"
        gradwire.detach(ddp)


def test_of_the_mean():
    ranks.run(4, of_the_mean)


if __name__ == "__main__":
    ranks.main(globals())
