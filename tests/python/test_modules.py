#!/usr/bin/env python3
"""What else people do with a module that is attached: copies and averages of it, compiled autograd, sharded optimizers, frozen parts."""

import copy
import inspect
import io

import torch

import models
import ranks
from ranks import gradwire

SPEC = "topk:density=0.05"


def attach(ddp, spec=SPEC):
    return gradwire.attach(ddp, spec, dense_below=200, quiet=True)


def pickled(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, **({"weights_only": False} if "weights_only" in inspect.signature(torch.load).parameters else {}))


def one_gradient(ddp, rank, seed):
    ddp.zero_grad()
    models.loss_of(ddp, next(models.batches(rank, seed))).backward()
    return ranks.flat_gradients(ddp)


def copies(rank, n):
    """A copy is equal, it is not attached, and it can be; the module itself trains as if it had not been copied."""
    alone = models.ddp(models.mixed())
    attach(alone)
    models.train(alone, models.batches(rank), 6)
    gradwire.detach(alone)
    dense = one_gradient(alone, rank, 6)  # as DDP sends it
    ddp, data = models.ddp(models.mixed()), models.batches(rank)
    attach(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    for step in range(6):
        optimizer.zero_grad()
        models.loss_of(ddp, next(data)).backward()
        optimizer.step()
        if step == 2:
            for make in (copy.deepcopy, pickled):
                check_copy(make, ddp, rank)
    assert torch.equal(ranks.flat(ddp), ranks.flat(alone)), "a copy has changed what it was made of"
    gradwire.detach(ddp)
    for make in (copy.deepcopy, pickled):
        assert torch.equal(one_gradient(check_copy(make, ddp, rank), rank, 6), dense), "the copy is attached"


def check_copy(make, ddp, rank):
    made = make(ddp)
    assert torch.equal(ranks.flat(made), ranks.flat(ddp))
    ranks.raises(gradwire.GradwireError, lambda: gradwire.stats(made), "not attached")
    again = make(made)  # also a copy's copy
    attach(again)
    assert not torch.equal(one_gradient(again, rank, 6), one_gradient(made, rank, 6)), "the copy cannot be attached"
    assert gradwire.stats(again)["steps"] == 1
    gradwire.detach(again)
    return made


def test_copies():
    ranks.run(2, copies)


def averaged(rank, n):
    """SWA (a mean) and EMA, of the wrapped module, as of one that is not attached."""
    from torch.optim.swa_utils import AveragedModel

    results = []
    for spec in ("dense", None):
        ddp, data = models.ddp(models.mixed()), models.batches(rank)
        if spec:
            attach(ddp, spec)
        swa = AveragedModel(ddp)
        ema = AveragedModel(ddp, avg_fn=lambda old, new, _: 0.9 * old + 0.1 * new)
        for step in range(5):
            models.train(ddp, data, 1)
            swa.update_parameters(ddp)
            ema.update_parameters(ddp)
            if spec and step == 2:
                gradwire.detach(ddp)
                swa, ema = copy.deepcopy(swa), copy.deepcopy(ema)
        results.append((ranks.flat(swa), ranks.flat(ema)))
    for what, mine, plain in zip(("SWA", "EMA"), *results):
        assert torch.equal(mine, plain), what
        ranks.same_everywhere(mine, what)


def test_averages():
    ranks.run(2, averaged)


class Frozen(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed = kind(50, 16, sparse=True)
        self.embed.weight.requires_grad_(False)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(x.mean(1) if x.dim() == 3 else x)


def frozen(rank, n):
    """Sparse gradients are refused where there are any."""
    for kind in (torch.nn.Embedding, torch.nn.EmbeddingBag):
        torch.manual_seed(1)
        ddp = models.ddp(Frozen(kind))
        gradwire.attach(ddp, "natural:bits=8", dense_below=0, quiet=True)
        models.train(ddp, models.batches(rank), 2)
        ranks.same_everywhere(ranks.flat(ddp), "with a frozen embedding")
        assert [layer["name"] for layer in gradwire.stats(layers=True)["layers"]] == ["head.bias", "head.weight"]
        gradwire.detach(ddp)
        ddp.module.embed.weight.requires_grad_(True)
        ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp, quiet=True), "'embed' makes sparse gradients")


def test_a_frozen_sparse_embedding():
    ranks.run(2, frozen)


def compiled_autograd(rank, n):
    """It needs DDP's Python reducer. The first backward says that this is not supported; a module that is detached takes its steps."""
    from torch._dynamo import compiled_autograd as autograd
    from torch._dynamo.utils import counters

    torch._dynamo.config.optimize_ddp = "python_reducer"
    results = []
    for attached in (True, False):
        ddp, batch = models.ddp(models.mixed(), bucket_cap_mb=25), next(models.batches(rank))

        def backward():
            ddp.zero_grad()
            loss = models.loss_of(ddp, batch)
            with autograd._enable(torch.compile(backend="eager")):
                loss.backward()
            return ranks.flat_gradients(ddp)

        if attached:
            attach(ddp)
            ranks.raises(gradwire.GradwireError, backward, "compiled autograd", "not supported", "detach")
            gradwire.detach(ddp)
        results.append(backward())
    assert counters["compiled_autograd"]["captures"] > 0, "autograd was not compiled: the test shows nothing"
    assert torch.equal(*results)
    ranks.same_everywhere(results[0], "the gradient of a module that is detached")


def test_compiled_autograd():
    if not hasattr(torch, "compile"):
        return f"torch {torch.__version__} has no compiled autograd"
    ranks.run(2, compiled_autograd)


def replicated(rank, n):
    from torch.distributed._composable.replicate import replicate
    from torch.distributed._composable.replicate_with_fsdp import replicate as replicate_with_fsdp

    for make in (replicate, replicate_with_fsdp):
        model = make(models.mixed())
        ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(model), "replicate()", "DistributedDataParallel")


def test_replicate():
    if not hasattr(torch, "compile"):
        return f"torch {torch.__version__} has no replicate()"
    ranks.run(2, replicated)


def zero(rank, n):
    """Each rank keeps a part of the optimizer's state. The means are the same, so the steps are those of the whole optimizer."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    results = []
    for sharded in (False, True):
        ddp, data = models.ddp(models.mixed()), models.batches(rank)
        attach(ddp)
        parts = {"optimizer_class": torch.optim.Adam} if sharded else {}
        optimizer = (ZeroRedundancyOptimizer if sharded else torch.optim.Adam)(ddp.parameters(), lr=0.01, **parts)
        for _ in range(5):
            optimizer.zero_grad()
            models.loss_of(ddp, next(data)).backward()
            optimizer.step()
        ranks.same_everywhere(ranks.flat(ddp), "after steps of a sharded optimizer" if sharded else "after steps")
        results.append(ranks.flat(ddp))
        gradwire.detach(ddp)
    assert torch.equal(*results)


def test_zero_redundancy_optimizer():
    ranks.run(2, zero)


if __name__ == "__main__":
    ranks.main(globals())
