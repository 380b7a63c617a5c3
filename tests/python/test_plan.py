#!/usr/bin/env python3
"""A plan file under DDP: its buckets and its order are what ranks post, the same messages as a C program's; nothing is lost when
one plan follows another; what cannot run is refused by name."""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

import models
import ranks
from ranks import gradwire
from gradwire import plan as plan_file
from gradwire.carrier import Carrier

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program():
    """tests/trainer/test_plan.c, or None."""
    named = os.environ.get("GRADWIRE_TEST_PLAN")
    places = [pathlib.Path(named)] if named else [ROOT / f"build/{b}/tests/test_trainer_plan" for b in ("dev", "release")]
    return next((str(p) for p in places if p.exists()), None)


class Mlp(torch.nn.Module):
    """The trainer's."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = torch.nn.Linear(20, 256), torch.nn.Linear(256, 128), torch.nn.Linear(128, 4)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def batch(rank, step):
    g = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(8, 20, generator=g), torch.randint(0, 4, (8,), generator=g)


def train(ddp, rank, steps):
    for step in steps:
        x, y = batch(rank, step)
        ddp.zero_grad()
        F.cross_entropy(ddp(x), y).backward()
        with torch.no_grad():
            for p in ddp.parameters():
                p -= 0.05 * p.grad


class Record:
    """What this rank posts, by group."""

    def __init__(self):
        self.groups = collections.defaultdict(list)
        self._begin = Carrier._begin

    def __enter__(self):
        def begin(carrier, peer, tag, incoming, data, size):
            if not incoming:
                self.groups[tag].append((peer, size))
            return self._begin(carrier, peer, tag, incoming, data, size)

        Carrier._begin = begin
        return self

    def __exit__(self, *_):
        Carrier._begin = self._begin


def posts(rank, n, path, options):
    torch.manual_seed(4)
    ddp = models.ddp(Mlp(), **options)
    gradwire.attach(ddp, path, quiet=True)
    with Record() as record:
        train(ddp, rank, range(2))  # DDP makes its buckets anew after the first
    ranks.same_everywhere(ranks.flat(ddp), "by a plan")
    sent = {layer["name"]: layer["bytes_sent"] for layer in gradwire.stats(ddp, layers=True)["layers"]}
    together = {layer["name"] for layer in gradwire.stats(ddp, layers=True)["layers"] if layer["together"]}
    gradwire.detach(ddp)
    return [record.groups[tag] for tag in sorted(record.groups)], sent, together


def test_messages_are_those_of_a_c_program():
    if program() is None:
        return "no test_trainer_plan in build/dev/tests: build it, or name it by GRADWIRE_TEST_PLAN"
    plan, *lines = subprocess.run([program(), "print"], check=True, capture_output=True, text=True).stdout.splitlines()
    groups, sent = [collections.defaultdict(list) for _ in range(2)], [{}, {}]
    for line in lines:
        kind, rank, *rest = line.split()
        if kind == "message":
            group, member, size = map(int, rest)
            groups[int(rank)][group].append((member, size))
        else:
            sent[int(rank)][rest[0]] = int(rest[1])
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "plan.json"
        path.write_text(plan)
        for options in ({}, {"bucket_cap_mb": 25, "gradient_as_bucket_view": True}):
            found = ranks.run(2, posts, str(path), options)
            for rank, (messages, bytes_sent, together) in enumerate(found):
                expected = [groups[rank][group] for group in sorted(groups[rank])]
                assert messages == expected, (rank, messages, expected)
                assert bytes_sent == sent[rank], (rank, bytes_sent, sent[rank])
                assert together == {"fc2.bias", "fc3.weight", "fc3.bias", "fc1.bias"}, together


# ---- one plan after another ----

ELEMENTS = {name: p.numel() for name, p in Mlp().named_parameters()}


def write(path, buckets, spec="topk:density=0.05", route="gather"):
    """`buckets`: names that go together, in the order of the wire."""
    tensors = [{"name": name, "elements": ELEMENTS[name], "spec": spec, "route": route, "bucket": i}
               for i, names in enumerate(buckets) for name in names]
    path.write_text(json.dumps({"format": "gradwire.plan/1", "tensors": tensors}))
    return str(path)


def gradients(rank, step):
    g = torch.Generator().manual_seed(1000 * rank + step)
    return {name: torch.randn(n, generator=g) if step else torch.zeros(n) for name, n in ELEMENTS.items()}


class Given(torch.nn.Module):
    """Its gradients are what is put in."""

    def __init__(self):
        super().__init__()
        for name, n in ELEMENTS.items():
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(torch.zeros(n)))

    def forward(self, values):
        return sum((p * values[name.replace(".", "_")]).sum() for name, p in self.named_parameters())


def sums(rank, n, folder):
    names = list(ELEMENTS)
    folder = pathlib.Path(folder)
    ELEMENTS.update({name.replace(".", "_"): ELEMENTS.pop(name) for name in names})
    names = list(ELEMENTS)
    ddp = models.ddp(Given())
    put, got = {name: torch.zeros(k) for name, k in ELEMENTS.items()}, {name: torch.zeros(k) for name, k in ELEMENTS.items()}

    def run(steps):
        for step in steps:
            for name in names:
                for r in range(n):
                    put[name] += gradients(r, step)[name] / n
            ddp.zero_grad()
            ddp(gradients(rank, step)).backward()
            for name, p in ddp.module.named_parameters():
                got[name] += p.grad

    one = write(folder / f"one-{rank}.json", [names[3:5], [names[0], names[5], names[1]], names[2:3]])
    other = write(folder / f"other-{rank}.json", [[name] for name in names])
    third = write(folder / f"third-{rank}.json", [names[:2], names[2:]], "sign")
    dense = write(folder / f"dense-{rank}.json", [names], "dense", "dense")
    state = None
    for path, steps in ((one, (1, 2)), (other, (3,)), (third, (4, 5)), (one, (6,)), (dense, (0, 0))):
        gradwire.attach(ddp, path, quiet=True)
        if state is not None:
            gradwire.load_state_dict(state)
        run(steps)
        state = gradwire.state_dict()
        gradwire.detach(ddp)
    for name in names:
        assert torch.allclose(put[name], got[name], atol=1e-4), (name, (put[name] - got[name]).abs().max())


def test_nothing_is_lost_over_plans():
    with tempfile.TemporaryDirectory() as folder:
        ranks.run(2, sums, folder)


# ---- refused ----

def refused(rank, n, folder):
    ddp, folder = models.ddp(Mlp()), pathlib.Path(folder)
    tensors = [{"name": name, "elements": k, "spec": "dense", "route": "dense", "bucket": i} for i, (name, k) in enumerate(ELEMENTS.items())]

    def refuse(change, *needles, more=None):
        changed = [dict(tensor) for tensor in tensors]
        change(changed)
        path = folder / f"wrong-{rank}.json"
        path.write_text(json.dumps({"format": "gradwire.plan/1", "tensors": changed, **(more or {})}))
        ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp, str(path), quiet=True), *needles)

    def of(i, **values):
        return lambda changed: changed[i].update(values)

    gpu = "encode@gpu · flat:allgather · decode@gpu"
    refuse(of(1, spec="natural:bits=8"), "'fc1.bias'", "the route encodes nothing", "natural:bits=8")
    refuse(of(1, route="sra"), "'fc1.bias'", "the route encodes something")
    refuse(of(1, spec="natural:bits=8", route=gpu), "'fc1.bias'", "is coded on a GPU", "lie on the CPU")
    refuse(of(1, spec="adapt/dither:bits=4", route="sra"), "'fc1.bias'", "adapt/dither:bits=4", "one codec for each tensor")
    refuse(of(1, spec="auto", route="sra"), "'fc1.bias'", "levels are not chosen")
    refuse(of(1, spec="zip", route="sra"), "'fc1.bias'", "zip")
    refuse(of(2, bucket=1, spec="sign", route="gather"), "tensors[2]", "bucket 1 goes two ways")
    refuse(of(2, bucket=0), "tensors[2]", "bucket 0 comes after bucket 1")
    refuse(of(2, bucket="1"), "tensors[2].bucket: is not a whole number")
    refuse(of(2, piece=4), "tensors[2]", "unknown key 'piece'")
    refuse(lambda changed: None, "unknown key 'lanes'", more={"lanes": 3})
    pipe = folder / f"pipe-{rank}.json"
    os.mkfifo(pipe)
    for path in (pipe, pathlib.Path("/dev/zero")):
        ranks.raises(gradwire.GradwireError, lambda: plan_file.follow([], str(path)), f"{path}: not a regular file")
    ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp, "plan.json", route="sra", quiet=True), "route and rules")


def test_what_cannot_run_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        ranks.run(2, refused, folder)


def hierarchical(rank, n, runs, refused):
    """Nodes of two ranks and of one."""
    node = "one" if rank < 2 else "two"
    ddp = models.ddp(Mlp())
    words = "layer 'fc3.bias'", "nodes have 1 to 2 ranks, so payloads must be decoded"
    ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp, refused, quiet=True, node=node), *words)
    gradwire.attach(ddp, runs, quiet=True, node=node)
    assert {layer["route"] for layer in gradwire.stats(layers=True)["layers"]} == {"hier2-sra@cpu"}
    gradwire.detach(ddp)


def test_hierarchical_routes_on_nodes_of_other_sizes():
    forwards = "encode@cpu · intra:alltoall · inter:allgather · intra:allgather · decode@cpu"
    with tempfile.TemporaryDirectory() as folder:
        paths = [write(pathlib.Path(folder) / f"plan-{i}.json", [[name] for name in ELEMENTS], "natural:bits=8", route)
                 for i, route in enumerate(("hier2-sra", forwards))]
        ranks.run(3, hierarchical, *paths)


if __name__ == "__main__":
    ranks.main(globals())
