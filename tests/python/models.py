"""Small networks and their data; seeds are the callers'."""

import torch
import torch.distributed
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class Mixed(torch.nn.Module):
    """An embedding, a convolution, norms and linear layers: every kind of parameter."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.conv = torch.nn.Conv1d(16, 24, 3, padding=1)
        self.norm = torch.nn.LayerNorm(24)
        self.one = torch.nn.Linear(24 * 8, 120)
        self.two = torch.nn.Linear(120, 90)
        self.head = torch.nn.Linear(90, 10)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = self.norm(self.conv(x.transpose(1, 2)).transpose(1, 2))
        return self.head(torch.tanh(self.two(torch.relu(self.one(x.flatten(1))))))


def mixed(seed=1, dtype=torch.float32):
    torch.manual_seed(seed)
    return Mixed().to(dtype)


def batches(rank, seed=5):
    g = torch.Generator().manual_seed(1000 * seed + rank)
    while True:
        yield torch.randint(0, 50, (8, 8), generator=g), torch.randint(0, 10, (8,), generator=g)


def ddp(model, **options):
    """Of several buckets, although the network is small."""
    options.setdefault("bucket_cap_mb", 0.05)
    torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = min(1 << 20, int(options["bucket_cap_mb"] * (1 << 20)))
    return DistributedDataParallel(model, **options)


def loss_of(model, batch):
    x, y = batch
    return F.cross_entropy(model(x).float(), y)


def train(model, data, steps, lr=0.05, after_backward=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, next(data))
        loss.backward()
        if after_backward is not None:
            after_backward(model)
        optimizer.step()
        losses.append(loss.item())
    return losses
