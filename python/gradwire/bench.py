"""All-reduce and step times of these hosts: gradwire next to DDP in fp32 and in 16 bits, as a table and as JSON.

    torchrun --nnodes 2 --nproc-per-node 4 --rdzv-endpoint HOST:29500 --rdzv-backend c10d -m gradwire.bench
    mpirun -n 8 -x MASTER_ADDR=HOST python -m gradwire.bench --codec natural:bits=8 --codec topk:density=0.01

The ways take turns, round by round. Times are medians over all steps of the slowest rank in each. "card" is what the busiest node
sends to other nodes: read from a network interface if --interface names it, else counted by gradwire and, of DDP, a ring's bytes.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import attach, detach, stats, version
from . import device as _device
from .groups import gather
from .library import GradwireError
from .plan import Layer
from .session import Session

CODECS = ("dense", "natural:bits=8", "dither:bits=4", "topk:density=0.01", "lowrank:rank=4")
# gloo of torch 1 knows no bf16
HALF, HALF_NAME = (torch.float16, "fp16") if torch.__version__.startswith("1.") else (torch.bfloat16, "bf16")


def join(device):
    """The job that torchrun or mpirun started."""
    names = {"RANK": ("OMPI_COMM_WORLD_RANK", "PMI_RANK"), "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
             "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")}
    for name, others in names.items():
        value = next((os.environ[other] for other in others if other in os.environ), None)
        if name not in os.environ and value is not None:
            os.environ[name] = value
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        sys.exit("gradwire.bench: no RANK and WORLD_SIZE: start it by torchrun or mpirun")
    if "MASTER_ADDR" not in os.environ:
        local = next((os.environ[n] for n in ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS") if n in os.environ), None)
        if local != os.environ["WORLD_SIZE"]:
            sys.exit("gradwire.bench: no MASTER_ADDR: pass the host name of rank 0, as by mpirun -x MASTER_ADDR=HOST")
        os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ.setdefault("MASTER_PORT", "29513")
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    dist.init_process_group("gloo" if device.type == "cpu" else "nccl")


class Bench:
    def __init__(self, options):
        self.options, self.device = options, torch.device(options.device)
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.nodes = list(range(self.ranks))  # until gradwire has found them
        self.side = max(64, int((options.elements / 4) ** 0.5) // 64 * 64)
        generator = torch.Generator().manual_seed(self.rank)
        self.gradient = torch.randn(2 * self.side, 2 * self.side, generator=generator).to(self.device)
        self.input = torch.randn(options.batch, self.side, generator=generator).to(self.device)

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def card(self):
        if self.options.interface is None:
            return None
        return int(pathlib.Path(f"/sys/class/net/{self.options.interface}/statistics/tx_bytes").read_text())

    def turn(self, function):
        """Seconds of each step by the slowest rank, and what this node's interface sent in a step."""
        function()
        function()  # DDP makes its buckets anew after the first
        times, before = [], None
        for _ in range(self.options.steps):
            self.wait()
            dist.barrier()
            before = self.card() if before is None else before
            begin = time.perf_counter()
            function()
            self.wait()
            times.append(time.perf_counter() - begin)
        dist.barrier()
        sent = (self.card() - before) / len(times) if before is not None else None
        everyone = gather(dist.group.WORLD, (times, sent))
        return [max(step) for step in zip(*(e[0] for e in everyone))], max(e[1] for e in everyone) if sent is not None else None

    def equal(self, tensors):
        digest = hashlib.blake2b(b"".join(t.detach().float().cpu().numpy().tobytes() for t in tensors)).hexdigest()
        return len(set(gather(dist.group.WORLD, digest))) == 1

    # ---- all-reduce of one matrix ----

    def allreduce_by_torch(self, dtype):
        def run():
            half = self.gradient.to(dtype, copy=True)
            dist.all_reduce(half)
            return half
        return self.turn(run)[0], self.equal([run()])

    def allreduce_by_gradwire(self, spec):
        layer = Layer("gradient", (2 * self.side, 2 * self.side), torch.float32, self.gradient.numel())
        where = _device.of([self.gradient], ["gradient"])
        layer.coder = "@gpu" if where is not None else ""
        layer.go(spec)
        session = Session([layer], dist.group.WORLD, seed=0, timeout=datetime.timedelta(minutes=5), lanes=0, threads=0, piece=1 << 21,
                          fuse_below=0, device=where, node=self.options.node)

        def run():
            mean = self.gradient.clone()
            session.open()
            session.post_tensor(0, mean)
            return session.future([0], mean, True).wait()
        try:
            return self.turn(run)[0], self.equal([run()])
        finally:
            self.nodes = session.node_of
            session.close()

    # ---- a training step ----

    def model(self):
        torch.manual_seed(1)
        layers = (torch.nn.Linear(self.side, self.side, bias=False) for _ in range(4))
        return torch.nn.Sequential(*layers).to(self.device)

    def step(self, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def run():
            optimizer.zero_grad()
            model(self.input).square().mean().backward()
            optimizer.step()
        return run

    def step_alone(self):
        return self.turn(self.step(self.model()))

    def step_by_ddp(self, hook, spec):
        """Times, bytes by the interface, figures of gradwire, whether replicas are equal."""
        ddp = DistributedDataParallel(self.model(), gradient_as_bucket_view=True)
        if hook is not None:
            ddp.register_comm_hook(None, hook)
        if spec is not None:
            attach(ddp, spec, quiet=True, node=self.options.node)
        times, sent = self.turn(self.step(ddp))
        mine = stats(ddp, layers=True) if spec is not None else None
        if spec is not None:
            detach(ddp)
        return times, sent, mine, self.equal(ddp.parameters())


def half_hook(_state, bucket):
    """What torch's own does, which refuses gloo by name."""
    buffer = bucket.buffer()
    half = buffer.to(HALF).div_(dist.get_world_size())
    return dist.all_reduce(half, async_op=True).get_future().then(lambda future: buffer.copy_(future.value()[0]))


def card_of(bench, mine, nodes):
    """Bytes a step that the busiest node sends to other nodes, as gradwire counts them."""
    everyone = gather(dist.group.WORLD, mine["far_bytes_sent"] / max(mine["steps"], 1))
    return max(sum(far for far, node in zip(everyone, nodes) if node == one) for one in set(nodes))


def measure(bench, name, found):
    """One turn of one way; adds to what was found."""
    spec = None if name in ("computing alone", "DDP fp32", f"DDP {HALF_NAME}") else name
    row = found.setdefault(name, {"allreduce": [], "step": [], "card": None, "compression": None, "equal": True})
    if name == "computing alone":
        row["step"] += bench.step_alone()[0]
        return
    dtype = HALF if name == f"DDP {HALF_NAME}" else torch.float32
    times, equal = bench.allreduce_by_gradwire(spec) if spec is not None else bench.allreduce_by_torch(dtype)
    hook = half_hook if spec is None and dtype == HALF else None
    steps, sent, mine, alike = bench.step_by_ddp(hook, spec)
    row["allreduce"] += times
    row["step"] += steps
    row["equal"] = row["equal"] and equal and alike
    row["counted"], row["sent"] = mine, sent


def finish(bench, found):
    elements, nodes = 4 * bench.side ** 2, bench.nodes
    several = len(set(nodes)) > 1
    rows = []
    for name, row in found.items():
        ms = {key: 1e3 * statistics.median(row[key]) if row[key] else None for key in ("allreduce", "step")}
        card, mine = row.get("sent"), row.get("counted")
        counted = card_of(bench, mine, nodes) if mine is not None and several else None
        ring = 2 * (bench.ranks - 1) / bench.ranks * elements * (2 if name == f"DDP {HALF_NAME}" else 4)
        if card is None and several and name != "computing alone":
            card = counted if mine is not None else ring
        rows.append({"name": name, "allreduce_ms": ms["allreduce"], "step_ms": ms["step"],
                     "step_ms_range": [1e3 * min(row["step"]), 1e3 * max(row["step"])],
                     "card_megabytes": card / 1e6 if card is not None else None,
                     "compression": mine["ratio"] if mine is not None else None,
                     "route": mine["layers"][0]["route"] if mine is not None else None, "equal": row["equal"]})
    return {"format": "gradwire.bench/1", "gradwire": version(), "torch": torch.__version__, "python": platform.python_version(),
            "ranks": bench.ranks, "nodes": len(set(nodes)), "ranks_per_node": [nodes.count(node) for node in sorted(set(nodes))],
            "device": str(bench.device), "elements": elements, "steps": bench.options.steps, "rounds": bench.options.rounds,
            "threads": torch.get_num_threads(), "interface": bench.options.interface, "rows": rows}


def table(result):
    def text(value, form):
        return "" if value is None else form.format(value)

    nodes = ", ".join(str(k) for k in result["ranks_per_node"])
    print(f"{result['ranks']} ranks on {result['nodes']} node{'s' if result['nodes'] > 1 else ''} ({nodes}), {result['elements']} gradients in fp32, "
          f"{result['device']}, torch {result['torch']}, gradwire {result['gradwire']}; medians of {result['rounds']} x {result['steps']} steps")
    print(f"{'':20} {'all-reduce ms':>14} {'step ms':>9} {'range':>15} {'card MB/step':>13} {'compression':>12}  replicas  route")
    for row in result["rows"]:
        span = "{:.1f}-{:.1f}".format(*row["step_ms_range"])
        print(f"{row['name']:20} {text(row['allreduce_ms'], '{:.2f}'):>14} {row['step_ms']:9.2f} {span:>15} "
              f"{text(row['card_megabytes'], '{:.3f}'):>13} {text(row['compression'], '{:.2f}x'):>12}  "
              f"{'equal' if row['equal'] else 'DIFFER':8}  {row['route'] or ''}".rstrip())
    print("compression: of the bytes that DDP sends in fp32 along a ring, " +
          ("to other nodes" if result["nodes"] > 1 else "inside the node: no network card is measured here"))


def main():
    parser = argparse.ArgumentParser(prog="python -m gradwire.bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", action="append", metavar="SPEC", help=f"what to measure ({', '.join(CODECS)})")
    parser.add_argument("--elements", type=int, default=16 << 20, metavar="N", help="numbers of the gradient, about (16 Mi)")
    parser.add_argument("--steps", type=int, default=10, metavar="N", help="of a turn (10)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each way (3)")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="rows that the model computes on a step (32)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--interface", metavar="NAME", help="network interface whose sent bytes are read")
    parser.add_argument("--node", metavar="NAME", help="this rank's node, where boot id and network namespace do not tell")
    parser.add_argument("--json", metavar="FILE", help="JSON goes there, not behind the table")
    options = parser.parse_args()
    if min(options.elements, options.steps, options.rounds, options.batch) < 1:
        parser.error("--elements, --steps, --rounds and --batch are 1 or more")
    try:
        for spec in options.codec or CODECS:
            Layer("", (2, 2), None, 4).go(spec)
    except GradwireError as error:
        sys.exit(f"gradwire.bench: {error}")
    join(torch.device(options.device))
    bench, found = Bench(options), {}
    names = ("computing alone", "DDP fp32", f"DDP {HALF_NAME}", *(options.codec or CODECS))
    try:
        for _ in range(options.rounds):
            for name in names:
                measure(bench, name, found)
        result = finish(bench, found)
    except GradwireError as error:
        sys.exit(f"gradwire.bench: {error}")
    if bench.rank == 0:
        table(result)
        text = json.dumps(result)
        if options.json is None:
            print(text)
        else:
            pathlib.Path(options.json).write_text(text + "\n")
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # everything is written; torch 2 on gloo aborts in about one of ten exits


if __name__ == "__main__":
    main()
