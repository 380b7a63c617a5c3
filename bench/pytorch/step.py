#!/usr/bin/env python3
"""Seconds a step of one way to exchange gradients; run by every rank (RANK, WORLD_SIZE, MASTER_ADDR): step.py WAY [STEPS [views] [deep]]

WAY: compute, copies (DDP that exchanges nothing), ddp, fp16, bf16hook, powersgd:RANK, or a codec of ours; with "+each" behind it every
parameter is a DDP bucket of its own, so that its gradient is posted as soon as it is ready. views: DDP's gradient_as_bucket_view; deep: another
network, of many layers. Rank 0 prints one line of JSON. Its times are those of rank 0; where nothing is exchanged, ranks begin together and the slowest counts, since an exchange would wait for it.
"""

import json
import os
import pathlib
import resource
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))


def network(deep=False):
    """784-4096-4096-1024-10: 24.2 M parameters in 4 matrices; deep: 784, then 46 times 720, 10: 23.9 M in 47."""
    sizes = [784, *[720] * 46, 10] if deep else [784, 4096, 4096, 1024, 10]
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        if deep:  # or gradients would vanish on their way, and be other data than people have
            torch.nn.init.kaiming_normal_(layers[-2].weight, nonlinearity="relu")
    return torch.nn.Sequential(*layers[:-1])


def batches(rank):
    """Fashion-MNIST where it is, else noise of its shape; never constants."""
    import gzip

    folder = pathlib.Path("/usr/share/datasets/fashion-mnist")
    g = torch.Generator().manual_seed(rank)
    try:
        pixels = gzip.open(folder / "train-images-idx3-ubyte.gz").read(16 + 784 * 8192)[16:]
        labels = gzip.open(folder / "train-labels-idx1-ubyte.gz").read(8 + 8192)[8:]
        x = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).float().view(-1, 784) / 255
        y = torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()
    except OSError:
        x, y = torch.rand(8192, 784, generator=g), torch.randint(0, 10, (8192,), generator=g)
    while True:
        i = torch.randint(0, len(x), (16,), generator=g)
        yield x[i], y[i]


def exchange_nothing(_state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def wrap(model, way, views=False):
    if way == "compute":
        return model
    options = {"gradient_as_bucket_view": views}
    if way.endswith("+each"):
        way = way[:-len("+each")]
        options["bucket_cap_mb"] = 1e-3
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1
    if way.startswith("powersgd-1bucket"):  # with more than one bucket it hangs on gloo
        options["bucket_cap_mb"] = 1024
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 30
    ddp = DistributedDataParallel(model, **options)
    if way == "ddp":
        return ddp
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    if way == "copies":
        ddp.register_comm_hook(None, exchange_nothing)
    elif way == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif way == "bf16hook":
        ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif way.startswith("powersgd"):
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=int(way.split(":")[1]),
                                            start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    else:
        import gradwire

        gradwire.attach(ddp, way, quiet=True)
    return ddp


def sent_bytes():
    """By this rank's network interface, where it has one of its own."""
    try:
        return int(pathlib.Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())
    except OSError:
        return 0


def main():
    way, steps, warm = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8, 4
    views, deep = "views" in sys.argv[3:], "deep" in sys.argv[3:]
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = wrap(network(deep), way, views)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    times, data, cpu, sent, alone = [], batches(rank), 0.0, 0, way in ("compute", "copies")
    for step in range(warm + steps):
        x, y = next(data)
        if alone:
            dist.barrier()
        if step == warm:
            usage = resource.getrusage(resource.RUSAGE_SELF)
            cpu, sent = usage.ru_utime + usage.ru_stime, sent_bytes()
        begin = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu, sent = usage.ru_utime + usage.ru_stime - cpu, sent_bytes() - sent
    if alone:
        slowest = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        times = slowest.tolist()
    dist.barrier()
    if rank == 0:
        kept = sorted(times[warm:])
        print(json.dumps({"way": way, "ranks": ranks, "torch": torch.__version__, "ms": 1e3 * kept[len(kept) // 2],
                          "least_ms": 1e3 * kept[0], "most_ms": 1e3 * kept[-1], "cpu_ms": 1e3 * cpu / steps,
                          "megabytes": sent / steps / 1e6}), flush=True)
    os._exit(0) if way.startswith("powersgd") else None


if __name__ == "__main__":
    main()
