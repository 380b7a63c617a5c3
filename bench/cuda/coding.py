#!/usr/bin/env python3
"""One rank's part of bench/cuda/coding.sh: where is a codec's work done best, on the GPU or on the CPU?

    coding.py job OUT [--dry]                            measures when each gradient is ready: OUT/job.json
    coding.py link OUT RATE [--dry]                      measures the link: OUT/link-RATE.json
    coding.py cluster OUT RATE [--dry]                   puts the measured parts together: OUT/cluster-RATE.json (no ranks)
    coding.py run OUT RATE --seconds S [--dry]           times the contestants in turns: OUT/run-RATE.json
    coding.py table OUT RATE                             prints the table (no ranks)

job, link and run are started once per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set (netlab run does it).
The model is GPT-2 small with random tokens, in bf16 autocast. All ranks use the first GPU. --dry: a tiny model on the CPU.
"""

import argparse
import concurrent.futures
import datetime
import gc
import json
import math
import os
import pathlib
import resource
import statistics
import sys
import time

THREADS_OF_TORCH = 2


def pin(rank, ranks):
    """Gives each rank cores of its own and leaves two for the network. Returns the threads that code."""
    cores = sorted(os.sched_getaffinity(0))
    each = (len(cores) - 2) // ranks
    if each < 2:
        return 1
    os.sched_setaffinity(0, cores[rank * each:(rank + 1) * each])
    return max(1, min(4, each - THREADS_OF_TORCH))


if "RANK" in os.environ:  # before torch starts threads
    CODING_THREADS = pin(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Gpt2(nn.Module):
    """The output layer shares the weights of the token embedding, so that matrix's gradient is ready last."""

    def __init__(self, words=50257, length=512, width=768, layers=12, heads=12):
        super().__init__()
        self.words, self.length = words, length
        self.token, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.token(tokens) + self.place.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)


class Rank:
    def __init__(self, options):
        self.dry = options.dry
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.set_num_threads(1 if self.dry else THREADS_OF_TORCH)
        self.device = torch.device("cpu") if self.dry else torch.device("cuda", 0)
        if not self.dry:
            torch.cuda.set_device(self.device)
        if self.dry and "EMULATED" in os.environ:  # then the CPU's tensors are a device's, as in tests/python/test_device.py
            from gradwire import device
            device.of = lambda parameters, names: device.Device(torch.device("cpu"), *device.open_library())
        dist.init_process_group("gloo", rank=self.rank, world_size=self.ranks, timeout=datetime.timedelta(seconds=60))

    def say(self, *words):
        if self.rank == 0:
            print(*words, flush=True)

    def wait(self):
        if not self.dry:
            torch.cuda.synchronize()

    def agreed(self, value):
        """Rank 0's value, on all ranks."""
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def ddp(self, hook=None):
        """A fresh model, the same on all ranks: they share a seed, so nothing has to be sent."""
        gc.collect()
        torch.manual_seed(1)
        with self.device:
            model = Gpt2(words=1000, length=64, width=128, layers=3, heads=4) if self.dry else Gpt2()
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=True, init_sync=False)
        if hook is not None:
            ddp.register_comm_hook(None, hook)
        return ddp

    def batches(self, model, size):
        g = torch.Generator(device=self.device).manual_seed(100 + self.rank)
        while True:
            yield torch.randint(model.words, (size, model.length + 1), generator=g, device=self.device)

    def loss(self, ddp, tokens):
        with torch.autocast(self.device.type, torch.bfloat16, enabled=not self.dry):
            logits = ddp(tokens[:, :-1])
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


class Clock:
    """Moments of one step: events of the GPU's stream, or the host's clock without a GPU."""

    def __init__(self, dry):
        self.dry, self.moments = dry, []

    def mark(self):
        if self.dry:
            self.moments.append(time.perf_counter())
        else:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.moments.append(event)

    def ms(self):
        """Of each moment, since the first. The GPU must have finished."""
        first = self.moments[0]
        return [1e3 * (m - first) if self.dry else first.elapsed_time(m) for m in self.moments]


def future_of(tensor):
    """A future that may have a tensor of this device as its value."""
    return torch.futures.Future(devices=[tensor.device] if tensor.is_cuda else None)


def exchange_nothing(_state, bucket):
    done = future_of(bucket.buffer())
    done.set_result(bucket.buffer())
    return done


WAITS = concurrent.futures.ThreadPoolExecutor(1)


def bf16_hook(_state, bucket):
    """What torch's bf16_compress_hook does, which DDP refuses by its name where there is no NCCL. gloo's future does not wait for the
    copy back to the GPU, and its wait does: a thread calls it."""
    buffer = bucket.buffer()
    half, done = buffer.to(torch.bfloat16).div_(dist.get_world_size()), future_of(buffer)
    work = dist.all_reduce(half, async_op=True)

    def finish():
        try:
            work.wait()
            buffer.copy_(half)
            done.set_result(buffer)
        except Exception as error:  # DDP raises it where it waits for the bucket
            done.set_exception(error)

    WAITS.submit(finish)
    return done


# ---- the job ----

def job(r, options):
    """DDP hands over buckets. Events on the GPU say when, since the host runs ahead of it."""
    state = {"clock": None, "buckets": []}

    def hook(_state, bucket):
        if state["clock"] is not None:
            state["clock"].mark()
            state["buckets"].append([id(p) for p in bucket.parameters()])
        return exchange_nothing(_state, bucket)

    ddp = r.ddp(hook)
    names = {id(p): (n, list(p.shape)) for n, p in ddp.module.named_parameters()}
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-4)

    def step(tokens, record):
        clock = Clock(r.dry)
        r.wait()
        dist.barrier()
        begin = time.perf_counter()
        clock.mark()
        optimizer.zero_grad()
        loss = r.loss(ddp, tokens)
        clock.mark()
        state["clock"], state["buckets"] = (clock, []) if record else (None, [])
        loss.backward()
        clock.mark()
        optimizer.step()
        clock.mark()
        r.wait()
        return 1e3 * (time.perf_counter() - begin), clock.ms() if record else None

    def median_ms(size, steps):
        data = r.batches(ddp.module, size)
        found = [step(next(data), False)[0] for _ in range(steps)]
        return statistics.median(found[2:])

    batch, wanted = 8, 40 if r.dry else options.compute_ms
    for _ in range(2):  # the second time at about the right size
        batch = r.agreed(max(1, min(96, round(batch * wanted / median_ms(batch, 7)))))
    data, rows = r.batches(ddp.module, batch), []
    for i in range(18):
        total, ms = step(next(data), True)
        if i >= 3:
            rows.append((total, ms))
    mid = [statistics.median(ms[k] for _, ms in rows) for k in range(len(rows[0][1]))]
    everyone = [None] * r.ranks
    dist.all_gather_object(everyone, (statistics.median(t for t, _ in rows), mid))
    total, mid = max(everyone)  # the slower rank: an exchange waits for it
    forward, ready, ended = mid[1], mid[2:-2], mid[-2]
    tensors = [{"name": names[i][0], "shape": names[i][1], "ready_ms": round(at - forward, 4)}
               for at, bucket in zip(ready, state["buckets"]) for i in bucket]
    found = {"format": "gradwire.job/1", "name": "gpt2-small", "software": f"torch {torch.__version__}", "batch_per_rank": batch,
             "device": "cpu" if r.dry else torch.cuda.get_device_name(0) + f", shared by {r.ranks} ranks",
             "gradient_dtype": "float32", "compute": "float32" if r.dry else "bfloat16",
             "forward_ms": round(forward, 4), "backward_ms": round(ended - forward, 4),
             "optimizer_ms": round(max(total - ended, 0), 4), "tensors": tensors}
    if r.rank == 0:
        (options.out / "job.json").write_text(json.dumps(found, indent=1) + "\n")
    r.say(f"job: batch {batch} per rank, {sum(math.prod(t['shape']) for t in tensors) / 1e6:.1f} M parameters in {len(tensors)} tensors "
          f"and {len(ready)} buckets; forward {forward:.1f} ms, backward {ended - forward:.1f} ms, step {total:.1f} ms")


# ---- the link ----

class Many(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(8, 8)) for _ in range(tensors))

    def forward(self):
        return sum(w.square().sum() for w in self.weights)


def link(r, options):
    """The rate is gloo's. The latency is what one more small tensor costs in a step of gradwire, per phase of its exchange."""
    import gradwire

    peer, size = 1 - r.rank, 8 << 20 if r.dry else (32 << 20 if options.bits < 5e9 else 128 << 20)
    lines = [dist.new_group() for _ in range(2)]  # one each way, as gradwire has them: gloo's send keeps a connection busy
    out, back = torch.zeros(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)

    def both(n):
        work = [dist.irecv(back[:n], peer, lines[peer]), dist.isend(out[:n], peer, lines[r.rank])]
        for w in work:
            w.wait()

    def usual(n, repeats):
        found = []
        for _ in range(repeats):
            dist.barrier()
            begin = time.perf_counter()
            both(n)
            found.append(time.perf_counter() - begin)
        return statistics.median(found)

    both(1 << 20)
    rate = min(8e-9 * size / usual(size, 3), 1e-9 * options.bits)
    times = {}
    for tensors in (8, 72):
        ddp = DistributedDataParallel(Many(tensors), gradient_as_bucket_view=True)
        gradwire.attach(ddp, "dense", dense_below=0, threads=CODING_THREADS, quiet=True)
        found = []
        for i in range(15):
            ddp.zero_grad()
            dist.barrier()
            loss, begin = ddp(), time.perf_counter()
            loss.backward()
            found.append(1e6 * (time.perf_counter() - begin))
        times[tensors] = statistics.median(found[3:])
        gradwire.detach(ddp)
    latency = max((times[72] - times[8]) / 64 / 2, 1.0)
    everyone = [None] * r.ranks
    dist.all_gather_object(everyone, (rate, latency, 1e6 * usual(1024, 15)))
    rate, latency = min(e[0] for e in everyone), max(e[1] for e in everyone)
    found = {"rate": options.rate, "gbit_per_s": rate, "latency_us": latency, "echo_us": max(e[2] for e in everyone),
             "step_of_8_us": times[8], "step_of_72_us": times[72], "coding_threads": CODING_THREADS}
    if r.rank == 0:
        (options.out / f"link-{options.rate}.json").write_text(json.dumps(found, indent=1) + "\n")
    r.say(f"link {options.rate}: {rate:.3f} Gbit/s both ways at once, {latency:.0f} us for one more small tensor per phase, "
          f"1 KiB there and back at once {found['echo_us']:.0f} us")


# ---- the cluster ----

def throughputs(path):
    """GB/s by spec of a table of `gradwire bench codec --json`."""
    rows = json.loads(path.read_text())
    rows = rows.get("codecs", rows.get("rows")) if isinstance(rows, dict) else rows
    return {row["spec"]: row for row in rows}


def cluster(options):
    """The codecs' curves, measured on one thread, with the threads of a rank: a part of a tensor has at least 128 Ki elements."""
    found = json.loads((options.out / "codecs-0.json").read_text())
    said = json.loads((options.out / f"link-{options.rate}.json").read_text())
    threads = said["coding_threads"]
    gains = {}
    for one in options.out.glob("threads-one-*.json"):
        many = options.out / one.name.replace("one", "all")
        a, b = throughputs(one), throughputs(many)
        for spec in a:
            gains[spec] = {k: max(1.0, b[spec][k] / a[spec][k]) for k in ("encode_gbps", "decode_gbps")}
    for entry in found["codecs"]:
        gain = gains.get(entry["spec"])
        if entry["device"] != "cpu" or gain is None or threads == 1:
            continue
        for point in entry["points"]:
            parts = min(threads, max(1, point["bytes"] // 4 // (128 << 10)))
            for way in ("encode", "decode"):
                by = 1 + (gain[f"{way}_gbps"] - 1) * (parts - 1) / (threads - 1)
                point[f"{way}_us"] /= by
                if f"{way}_deviation_us" in point:
                    point[f"{way}_deviation_us"] /= by
        sized = max(p["bytes"] for p in entry["points"])
        if sized // 4 // (128 << 10) < threads:
            print(f"cluster: {entry['spec']}: the largest size measured is too small for {threads} threads")
    found.update(name=f"one GPU of two ranks, {options.rate}", nodes=2, ranks_per_node=1, cpu_workers=1,
                 inter={"latency_us": round(said["latency_us"], 3), "gbit_per_s": round(said["gbit_per_s"], 4)})
    for unused in ("collectives", "intra"):
        found.pop(unused, None)
    words = [s for s in found.get("sources", []) if not s["what"].startswith(("nodes", "intra", "inter", "collectives", "cpu_workers"))]
    found["sources"] = words + [
        {"what": "codecs", "how": f"two ranks measured at the same time; the CPU's with {threads} threads inside a tensor"},
        {"what": "cpu_workers", "how": "a rank codes one tensor after the other, each with all its threads"},
        {"what": "nodes", "how": "two network namespaces of one machine, one rank each"},
        {"what": "inter", "how": f"measured between them at {options.rate}: gloo's rate, and one more small tensor in a step"}]
    (options.out / f"cluster-{options.rate}.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"cluster {options.rate}: {len(found['codecs'])} curves; {threads} coding threads make the CPU faster by "
          + (", ".join(f"{s} {g['encode_gbps']:.2f}/{g['decode_gbps']:.2f}" for s, g in sorted(gains.items())) or "nothing"))


# ---- the contestants ----

def plans_of(options):
    """{name: (path, predicted ms)} in order of name; dense and bf16 as predicted."""
    found, others = {}, {}
    for path in sorted(options.out.glob(f"plan-{options.rate}-*.out.json")):
        predicted = json.loads(path.read_text())
        name = path.name[len(f"plan-{options.rate}-"):-len(".out.json")].replace("_", ":", 1)
        found[name] = (path.with_name(path.name.replace(".out.json", ".json")), predicted["step_ms"])
        others = {"DDP fp32": predicted["dense_ms"], "DDP bf16 hook": predicted["bf16_ms"]}
    return found, others


def shares(layers):
    """Parts of the elements coded on the CPU, on the GPU, on both, on neither."""
    total, found = sum(layer["elements"] for layer in layers), {"cpu": 0, "gpu": 0, "cpu and gpu": 0, "": 0}
    for layer in layers:
        found[layer["coded_on"]] += layer["elements"]
    return {name: n / total for name, n in found.items()}


def sent():
    return int(pathlib.Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def fingerprint(model):
    """Of all weights, by place and bits."""
    total = 0
    for p in model.parameters():
        words = p.detach().reshape(-1).view(torch.int32).long()
        total = (total * 31 + int((words * torch.arange(1, len(words) + 1, device=words.device)).sum())) % (1 << 61)
    return total


def turn(r, name, plan, batch, seconds):
    """One contestant: some steps to warm up, then 2 to 20 timed ones within `seconds`."""
    import gradwire

    ddp = r.ddp({"nothing": exchange_nothing, "DDP bf16 hook": bf16_hook}.get(name))
    if plan is not None:
        gradwire.attach(ddp, str(plan), threads=CODING_THREADS, quiet=True)
    optimizer, data = torch.optim.SGD(ddp.parameters(), lr=1e-4), r.batches(ddp.module, batch)
    times, began, marks, warm = [], time.perf_counter(), None, 2 if plan is None else 3  # DDP's buckets change, and gradwire agrees anew
    while True:
        tokens = next(data)
        r.wait()
        dist.barrier()
        if len(times) == warm:
            usage = resource.getrusage(resource.RUSAGE_SELF)
            marks = sent(), usage.ru_utime + usage.ru_stime, dict(gradwire.stats(ddp)) if plan is not None else None
        begin = time.perf_counter()
        optimizer.zero_grad()
        r.loss(ddp, tokens).backward()
        optimizer.step()
        r.wait()
        times.append(1e3 * (time.perf_counter() - begin))
        late = len(times) >= warm + 2 and time.perf_counter() - began > seconds
        if r.agreed(len(times) >= warm + 20 or late):
            break
    usage, steps = resource.getrusage(resource.RUSAGE_SELF), len(times) - warm
    found = {"name": name, "megabytes": (sent() - marks[0]) / steps / 1e6,
             "cpu_ms": 1e3 * (usage.ru_utime + usage.ru_stime - marks[1]) / steps}
    everyone = [None] * r.ranks
    dist.all_gather_object(everyone, (times[warm:], fingerprint(ddp.module)))
    found["ms"] = [max(t) for t in zip(*(e[0] for e in everyone))]  # the slower rank of each step
    found["equal"] = len({e[1] for e in everyone}) == 1
    if plan is not None:
        now = gradwire.stats(ddp, layers=True)
        found["coded_on"] = shares(now["layers"])
        for part in ("encode", "decode", "exchange"):
            found[f"{part}_ms"] = 1e3 * (now[f"{part}_seconds"] - marks[2][f"{part}_seconds"]) / steps
        found["coding"] = now["coding"]
        gradwire.detach(ddp)
    return found


def run(r, options):
    planned, predicted = plans_of(options)
    batch = json.loads((options.out / "job.json").read_text())["batch_per_rank"]
    measured = json.loads((options.out / "job.json").read_text())
    computing = measured["forward_ms"] + measured["backward_ms"] + measured["optimizer_ms"]
    contestants = [("nothing", None, computing)] + [(name, None, ms) for name, ms in predicted.items()]
    same, seen = {}, {}
    for name, (path, ms) in planned.items():
        text = json.dumps([(t["name"], t["spec"], t["route"]) for t in json.loads(path.read_text())["tensors"]])
        if text in seen:
            same[name] = seen[text]
            continue
        seen[text] = name
        contestants.append((name, path, ms))
    r.say(f"{len(contestants)} contestants; equal plans: {same or 'none'}")
    turns, failed, began = {name: [] for name, _, _ in contestants}, {}, time.perf_counter()
    for round in range(2):
        for place, (name, path, _) in enumerate(contestants):
            left = options.seconds - (time.perf_counter() - began)
            to_come = (2 - round) * len(contestants) - place
            patience = r.agreed(left / to_come)
            if r.agreed(name in failed or round > 0 and left < 2):
                continue
            try:
                found = turn(r, name, path, batch, max(1.0, patience - 2))
            except Exception as error:  # the same on all ranks, or the others run into a timeout
                failed[name] = str(error).splitlines()[0][:200]
                r.say(f"  {options.rate} {name}: failed: {failed[name]}")
                continue
            turns[name].append(found)
            r.say(f"  {options.rate} round {round + 1} {name}: {statistics.median(found['ms']):.1f} ms, {len(found['ms'])} steps, "
                  f"{'equal' if found['equal'] else 'replicas DIFFER' if name != 'nothing' else 'not exchanged'}")
            if r.rank == 0:
                (options.out / f"run-{options.rate}.json").write_text(json.dumps(
                    {"rate": options.rate, "batch": batch, "contestants": [
                        {"name": n, "predicted_ms": ms, "turns": turns[n]} for n, _, ms in contestants],
                     "same": {n: {"as": s, "predicted_ms": planned[n][1]} for n, s in same.items()}}, indent=1) + "\n")


def table(options):
    said = json.loads((options.out / f"run-{options.rate}.json").read_text())
    print(f"\n{options.rate}, batch {said['batch']} per rank, 2 ranks on one device. Coded: parts of the elements, the rest is sent uncoded.")
    print(f"{'contestant':28} {'predicted':>9} {'measured':>9} {'range':>15} {'differs':>8} {'cpu':>5} {'gpu':>5} {'both':>5} "
          f"{'MB sent':>8} {'exchange':>8} {'encode':>7} {'decode':>7} {'cpu ms':>7}  replicas")
    rows = {}
    for c in said["contestants"]:
        if not c["turns"]:
            print(f"{c['name']:28} {c['predicted_ms']:9.1f} not measured")
            continue
        ms = [x for t in c["turns"] for x in t["ms"]]
        mid = statistics.median(ms)
        rows[c["name"]] = mid
        last = c["turns"][-1]
        on = last.get("coded_on", {})
        parts = "".join(f" {100 * on[k]:4.0f}%" if on else "     -" for k in ("cpu", "gpu", "cpu and gpu"))
        more = "".join(f" {statistics.mean(t[k] for t in c['turns']):{w}.1f}" if on else " " * w + "-"
                       for k, w in (("exchange_ms", 8), ("encode_ms", 7), ("decode_ms", 7)))
        equal = "-" if c["name"] == "nothing" else "equal" if all(t["equal"] for t in c["turns"]) else "DIFFER"
        print(f"{c['name']:28} {c['predicted_ms']:9.1f} {mid:9.1f} {min(ms):7.1f}-{max(ms):<7.1f} {100 * (mid / c['predicted_ms'] - 1):+7.1f}%{parts} "
              f"{statistics.mean(t['megabytes'] for t in c['turns']):8.2f}{more} {statistics.mean(t['cpu_ms'] for t in c['turns']):7.1f}  {equal}")
    for name, s in said["same"].items():
        print(f"{name:28} {s['predicted_ms']:9.1f} the same plan as {s['as']}" + (f": {rows[s['as']]:.1f}" if s["as"] in rows else ""))
    sys.stdout.flush()
    if any(not t["equal"] for c in said["contestants"] if c["name"] != "nothing" for t in c["turns"]):
        sys.exit("replicas differ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["job", "link", "cluster", "run", "table"])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("rate", nargs="?", default="1gbit")
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--compute-ms", type=float, default=200, help="what a step shall take where nothing is exchanged")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    options.bits = float(options.rate[:-4]) * {"gbit": 1e9, "mbit": 1e6}[options.rate[-4:]]
    if options.stage in ("cluster", "table"):
        return {"cluster": cluster, "table": table}[options.stage](options)
    r = Rank(options)
    {"job": job, "link": link, "run": run}[options.stage](r, options)
    dist.barrier()
    dist.destroy_process_group()
    return None


if __name__ == "__main__":
    main()
