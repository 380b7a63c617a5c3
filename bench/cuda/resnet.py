#!/usr/bin/env python3
"""ResNet-18 on Fashion-MNIST, data-parallel on the GPUs that are here, its gradients through gradwire.

    python3 bench/cuda/resnet.py --ranks 2 --codec natural:bits=8 --epochs 6 --json

Ranks are processes; several share a GPU where there are more of them than GPUs. Backend gloo. The images lie on the GPU
from the start. `--codec none` is DDP alone.
"""

import argparse
import json
import os
import pathlib
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples/pytorch")]
import fashion_mnist


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.past = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.past(x))


def resnet18(classes=10):
    """Of 11.2 M parameters, with a first layer for small images: 3 x 3 without a stride, no pooling."""
    layers, inputs = [nn.Conv2d(1, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def flipped_and_shifted(x, g):
    """Each image mirrored or not, and moved by up to 2 pixels: a whole batch moves alike, which is fast and enough."""
    mirror = torch.rand(len(x), 1, 1, 1, generator=g, device=x.device) < 0.5
    x = torch.where(mirror, x.flip(3), x)
    dy, dx = torch.randint(-2, 3, (2,), generator=g, device=x.device).tolist()
    return torch.roll(x, (dy, dx), (2, 3))


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16):
        right = sum((model(a).argmax(1) == b).sum() for a, b in zip(x.split(2000), y.split(2000)))
    model.train()
    return right.item() / len(y)


def train(rank, ranks, options):
    device = torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    import gradwire

    torch.manual_seed(options.seed)
    fashion_mnist.FOLDER = pathlib.Path(options.data)
    x, y = (t.to(device) for t in fashion_mnist.load("train"))
    model = resnet18().to(device).to(memory_format=torch.channels_last)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if options.codec != "none":
        gradwire.attach(ddp, options.codec if options.warm_up == 0 else "dense", seed=options.seed, quiet=options.json)
    steps_an_epoch = len(x) // (options.batch * ranks)
    steps = options.steps or options.epochs * steps_an_epoch
    optimizer = torch.optim.SGD(ddp.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=steps)
    same = torch.Generator().manual_seed(options.seed)  # all ranks deal the images out alike
    own = torch.Generator(device=device).manual_seed(1000 * options.seed + rank)
    begin = loss = None
    for step in range(steps):
        if step % steps_an_epoch == 0:
            order = torch.randperm(len(x), generator=same).to(device)
        if step == options.warm_up * steps_an_epoch and step > 0 and options.codec != "none":
            gradwire.detach(ddp)
            gradwire.attach(ddp, options.codec, seed=options.seed, quiet=options.json)
        if step == min(10, steps - 1):  # what is set up in the first steps is not a step's time
            _wait(device)
            begin, first = time.perf_counter(), step
        at = (step % steps_an_epoch * ranks + rank) * options.batch
        pick = order[at:at + options.batch]
        images = flipped_and_shifted(x[pick], own).to(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.cross_entropy(ddp(images), y[pick])
        loss.backward()
        optimizer.step()
        schedule.step()
        if rank == 0 and not options.json and step % 100 == 99:
            print(f"step {step + 1} of {steps}: loss {loss.item():.3f}", flush=True)
    _wait(device)
    seconds = time.perf_counter() - begin
    tell(rank, ranks, options, ddp, device, steps, seconds / (steps - first), loss.item())
    dist.barrier()
    dist.destroy_process_group()


def _wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def tell(rank, ranks, options, ddp, device, steps, step_seconds, loss):
    import gradwire

    weights = torch.cat([p.detach().float().reshape(-1) for p in ddp.parameters()]).cpu()
    everyone = [torch.empty_like(weights) for _ in range(ranks)]
    dist.all_gather(everyone, weights)
    if rank != 0:
        return
    x, y = (t.to(device) for t in fashion_mnist.load("t10k"))
    result = {"task": "resnet18-fashion-mnist", "codec": options.codec, "seed": options.seed, "ranks": ranks, "batch": options.batch,
              "steps": steps, "warm_up": options.warm_up, "accuracy": accuracy(ddp.module, x, y), "loss": loss, "ms_a_step": 1e3 * step_seconds,
              "replicas_equal": all(torch.equal(w.view(torch.int32), weights.view(torch.int32)) for w in everyone)}
    if options.codec != "none":
        s = gradwire.stats(ddp)
        compressed = steps - options.warm_up * (len(fashion_mnist.load("train")[1]) // (options.batch * ranks))
        result |= {"bytes_a_step": s["bytes_sent"] / compressed, "encode_ms": 1e3 * s["encode_seconds"] / compressed,
                   "decode_ms": 1e3 * s["decode_seconds"] / compressed, "device": s["device"], "coding": s["coding"]}
    print(json.dumps(result) if options.json else ", ".join(f"{k} {v}" for k, v in result.items()), flush=True)


def spawn(main, options):
    """main(rank, ranks, options) in processes of their own, which find each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    torch.multiprocessing.spawn(main, (options.ranks, options), nprocs=options.ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--codec", default="natural:bits=8", help="or a plan file, or none: DDP alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--warm-up", type=int, default=0, help="epochs at the begin that go uncompressed")
    parser.add_argument("--steps", type=int, default=0, help="instead of epochs")
    parser.add_argument("--batch", type=int, default=256, help="of every rank")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--data", default=str(fashion_mnist.FOLDER), help="folder of the four files of Fashion-MNIST")
    parser.add_argument("--json", action="store_true", help="one line of JSON at the end, nothing else")
    options = parser.parse_args()
    spawn(train, options)


if __name__ == "__main__":
    main()
