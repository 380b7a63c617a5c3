#!/usr/bin/env python3
"""The six lines of README.md in a whole script: a DDP training loop with compressed gradients.

    torchrun --nproc_per_node 2 examples/pytorch/quickstart.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradwire

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))
teacher = torch.nn.Linear(64, 1)

ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
gradwire.attach(ddp, "dither:bits=4")
optimizer = torch.optim.AdamW(ddp.parameters())

torch.manual_seed(1 + dist.get_rank())  # every rank draws its own batches
for step in range(200):
    x = torch.randn(32, 64)
    with torch.no_grad():
        y = teacher(x)
    loss = torch.nn.functional.mse_loss(ddp(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

if dist.get_rank() == 0:
    print(f"loss of the last batch: {loss.item():.4f}")
dist.barrier()
dist.destroy_process_group()
