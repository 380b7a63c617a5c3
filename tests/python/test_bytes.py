#!/usr/bin/env python3
"""Bytes as a network card sees them: to other nodes and inside the node apart, next to what DDP's ring sends in the model's own dtype; a
route that sends more is named before training."""

import contextlib
import io

import torch
import torch.distributed as dist

import models
import ranks
from ranks import gradwire

FAR = {"dense": (1.49, 1.51), "natural:bits=8": (5.9, 6.1), "dither:bits=4": (11.4, 12.1)}


class Wide(torch.nn.Module):
    """One matrix of 256 Ki elements, and nothing small. Its forward works without a product, which fp16 lacks on some CPUs."""

    def __init__(self, dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(512, 512, dtype=dtype))

    def forward(self, x):
        return (self.weight * x).float().sum()


def train(ddp, rank, dtype, steps):
    for step in range(steps):
        ddp.zero_grad()
        x = torch.randn(512, 512, generator=torch.Generator().manual_seed(10 * rank + step)).to(dtype)
        ddp(x).backward()


def on_nodes(rank, n, nodes):
    """Two ranks on each of two nodes: their shares of the card add up to what a ring sends through it."""
    for dtype, width in ((torch.float32, 4), (torch.float16, 2)):
        for spec, (least, most) in FAR.items():
            ddp = models.ddp(Wide(dtype))
            gradwire.attach(ddp, spec, quiet=True, node=nodes[rank])
            train(ddp, rank, dtype, 3)
            stats, everyone = gradwire.stats(layers=True), [None] * n
            line = gradwire.summary(ddp)
            gradwire.detach(ddp)
            dist.all_gather_object(everyone, stats)
            mine = [s for r, s in enumerate(everyone) if nodes[r] == nodes[rank]]
            ring = 3 * 2 * (n - 1) * width * 512 * 512 / n
            far, far_ring = (sum(s[key] for s in mine) for key in ("far_bytes_sent", "far_dense_bytes"))
            assert abs(far_ring - ring) <= 8 * n, (far_ring, ring)
            assert sum(s["dense_bytes"] - s["far_dense_bytes"] for s in mine) <= ring * (len(mine) - 1)
            factor = 1 if spec == "dense" else width / 4
            for s in mine:
                if s["far_bytes_sent"] != 0:  # of nodes of other sizes some ranks send nothing there
                    assert abs(s["ratio"] / (far_ring / far) - 1) < 0.03, (s["ratio"], far_ring / far)
            if nodes == "aabb":
                assert least * factor < far_ring / far < most * factor, (spec, dtype, far_ring / far)
                assert f"to other nodes (DDP: {stats['far_dense_bytes'] / 3e6:.2f}) and" in line and f"{stats['ratio']:.1f}x of DDP's bytes to other nodes" in line and "4 ranks on 2 nodes" in line, line
            assert stats["nodes"] == 2
            layer = stats["layers"][0]
            assert 3 * layer["far_bytes_sent"] == stats["far_bytes_sent"] <= stats["bytes_sent"], layer


def test_two_nodes():
    ranks.run(4, on_nodes, "aabb")


def test_nodes_of_other_sizes():
    ranks.run(3, on_nodes, "aab")


WARNED = ((torch.float32, "natural:bits=8", None, False), (torch.float32, "dense", None, False), (torch.float16, "dense", None, False),
          (torch.float16, "natural:bits=8", None, False), (torch.float16, "natural:bits=8", "gather", True),
          (torch.float32, "natural:bits=8", "gather", False), (torch.float32, "topk:density=0.5", "gather", True))


def warned(rank, n, nodes):
    for dtype, spec, route, expected in WARNED:
        said = io.StringIO()
        ddp = models.ddp(Wide(dtype))
        with contextlib.redirect_stderr(said):
            gradwire.attach(ddp, spec, quiet=True, route=route, node=nodes[rank])
        found = "through a node's network card along this route; DDP sends" in said.getvalue()
        assert found == (expected and rank == 0), (dtype, spec, route, said.getvalue())
        gradwire.detach(ddp)


def test_a_route_that_sends_more_is_named():
    ranks.run(4, warned, "aabb")


if __name__ == "__main__":
    ranks.main(globals())
