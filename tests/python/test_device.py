#!/usr/bin/env python3
"""Gradients on a CUDA device. Without one, the library that emulates it takes the CPU's tensors for a device's; what needs a
real one (torch's streams and futures, nccl, AMP) is skipped with its reason."""

import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ranks
from ranks import gradwire

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODECS = ["dense", "cast:to=bf16", "natural:bits=8", "ndither:bits=4", "dither:bits=4", "sign", "topk:density=0.05",
          "randk:density=0.1", "adacomp", "lowrank:rank=2"]
try:
    gradwire.library.parse_params("lowrank")
except gradwire.GradwireError:  # a build without BLAS
    CODECS.pop()
SHAPES = [(30, 40), (7,), (64, 3, 3, 3), (128, 65), (1,), (2000,)]


def emulated():
    """The emulated library, or None."""
    named = os.environ.get("GRADWIRE_EMULATED")
    places = [pathlib.Path(named)] if named else [ROOT / f"build/{b}/tests/libgradwire_cuda_emulated.so" for b in ("dev", "release")]
    return next((str(p) for p in places if p.exists()), None)


def has_cuda(rank, n):
    return torch.cuda.is_available()


_asked = []


def no_device():
    """Why tests that need a device are skipped. Asked in a child: CUDA does not survive a fork."""
    if not _asked:
        there = pathlib.Path("/dev/nvidiactl").exists() and ranks.run(1, has_cuda)[0]
        _asked.append(None if there else "no CUDA device here")
    return _asked[0]


def has_library(rank, n):
    """One that is there and does not open is no reason to skip."""
    return gradwire.device._file() is not None or gradwire.device.open_library()[0] is not None


def no_library():
    """Why tests that code on a device are skipped."""
    return no_device() or (None if ranks.run(1, has_library)[0] else "libgradwire_cuda.so was not built here")


class Given(torch.nn.Module):
    """Parameters whose gradients are given: exactly what `loss_of` is told, on any device."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(s, dtype=dtype)) for s in SHAPES])

    def forward(self, given):
        return sum((w * g).sum() for w, g in zip(self.weights, given))


def gradients_of(rank, step, device, dtype=torch.float32):
    g = torch.Generator().manual_seed(1000 * step + rank)
    return [torch.randn(s, generator=g).to(dtype).to(device) for s in SHAPES]


def pretend(path):
    """From now on the CPU's tensors are a device's."""
    from gradwire import device

    os.environ["GRADWIRE_CUDA_LIBRARY"] = path
    device.of = lambda parameters, names: device.Device(torch.device("cpu"), *device.open_library())


def means(rank, spec, where, dtype=torch.float32, steps=4, group=None, **options):
    """All means of some steps, and the state after them."""
    model = Given(dtype).to(where)
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.02, process_group=group)
    gradwire.attach(ddp, spec, dense_below=100, quiet=True, seed=5, **options)
    found = []
    for step in range(steps):
        model.zero_grad()
        ddp(gradients_of(rank, step, where, dtype)).backward()
        found += [w.grad.detach().cpu().clone() for w in model.weights]
    for tensor in found[-len(SHAPES):]:
        ranks.same_everywhere(tensor, spec)
    gradwire.verify(ddp)  # a state has the hashes of means that were not compared, which tell where they were made
    stats, state = gradwire.stats(layers=True), gradwire.state_dict()
    gradwire.detach(ddp)
    return found, state, stats


def apart(a, b):
    """Of two lists of tensors, as one; what rounds to the next number of their type is not counted."""
    wrong = whole = 0.0
    for x, y in zip(a, b):
        d = (x.double() - y.double()).abs()
        d[d <= torch.finfo(x.dtype).eps * x.double().abs()] = 0
        wrong, whole = wrong + d.square().sum(), whole + x.double().square().sum()
    return float((wrong / whole).sqrt())


def same_but_seals(here, there):
    """Layers whose messages go together, which are the host's, have one seal; on a device each has its own, of up to 64 bytes."""
    assert abs(here["bytes_sent"] - there["bytes_sent"]) <= 64 * len(SHAPES) * here["steps"], (here["bytes_sent"], there["bytes_sent"])


def compare(spec, here, there):
    if spec.startswith("lowrank") and "gpu" in coders(there[2]):
        for step in range(0, len(here[0]), len(SHAPES)):
            off = apart(here[0][step:step + len(SHAPES)], there[0][step:step + len(SHAPES)])
            assert off <= 1e-5, f"{spec}: {off} off in step {step // len(SHAPES)}"
        assert here[1]["residuals"].shape == there[1]["residuals"].shape
        same_but_seals(here[2], there[2])
        return
    for i, (a, b) in enumerate(zip(here[0], there[0])):
        bits = torch.int32 if a.dtype == torch.float32 else torch.int16
        assert torch.equal(a.view(bits), b.view(bits)), f"{spec}: mean {i} differs: {(a.float() - b.float()).abs().max()}"
    assert torch.equal(here[1]["residuals"], there[1]["residuals"]), f"{spec}: residuals differ"
    same_but_seals(here[2], there[2])


def coders(stats):
    return {layer["coded_on"] for layer in stats["layers"] if layer["spec"] != "dense"} - {""}


def same_bits(rank, n, where, path, dtypes=(torch.float32,)):
    """Each codec: on the device what it is on the CPU, to the bit (`lowrank`: near); and coded where it should be."""
    for dtype in dtypes:
        here = {spec: means(rank, spec, "cpu", dtype) for spec in CODECS}
        from gradwire import device

        usual = device.of
        if path is not None:
            pretend(path)
        for spec in CODECS:
            there = means(rank, spec, where, dtype)
            compare(spec, here[spec], there)
            assert there[2]["coding"] == "gpu" and there[2]["carrier"] == "gloo", there[2]
            assert coders(there[2]) <= {"gpu"} and (spec == "dense" or coders(there[2])), (spec, coders(there[2]))
        device.of = usual


def test_emulated_device_has_the_same_bits():
    if emulated() is None:
        return "no libgradwire_cuda_emulated.so in build/dev/tests: build it, or name it by GRADWIRE_EMULATED"
    ranks.run(2, same_bits, "cpu", emulated(), (torch.float32, torch.float16))


def routes(rank, n, where, path):
    """A route may say where it codes."""
    here = means(rank, "topk:density=0.05", "cpu", route="gather")
    sums = means(rank, CODECS[-1], "cpu", route="sum") if CODECS[-1].startswith("lowrank") else None
    if path is not None:
        pretend(path)
    for route, on in (("gather", {"gpu"}), ("gather@cpu", {"cpu"}),
                      ("encode@gpu, flat:allgather, decode@cpu", {"cpu and gpu"})):
        there = means(rank, "topk:density=0.05", where, route=route)
        compare(route, here, there)
        assert coders(there[2]) == on, (route, coders(there[2]))
    if CODECS[-1].startswith("lowrank"):
        there = means(rank, CODECS[-1], where, route="sum@cpu")
        assert coders(there[2]) == {"cpu"}
        compare("sum@cpu", sums, there)


def test_emulated_routes_say_where():
    if emulated() is None:
        return "no libgradwire_cuda_emulated.so in build/dev/tests"
    ranks.run(2, routes, "cpu", emulated())


def without_library(rank, n, where):
    """Gradients come to the CPU, and one line says so."""
    here = means(rank, "topk:density=0.05", "cpu")
    if where == "cpu":
        pretend("/nowhere/libgradwire_cuda.so")
    os.environ["GRADWIRE_CUDA_LIBRARY"] = "/nowhere/libgradwire_cuda.so"
    reading, writing = os.pipe()
    kept = os.dup(2)
    os.dup2(writing, 2)
    sys.stderr.flush()
    there = means(rank, "topk:density=0.05", where)
    sys.stderr.flush()
    os.dup2(kept, 2)
    os.close(writing)
    said = os.read(reading, 1 << 16).decode()
    compare("topk", here, there)
    assert there[2]["coding"] == "cpu" and coders(there[2]) == {"cpu"}
    lines = [line for line in said.splitlines() if line.startswith("gradwire: ")]
    if rank == 0:
        assert len(lines) == 1 and "on the CPU: no CUDA: /nowhere/libgradwire_cuda.so" in lines[0], said
    else:
        assert not lines, said


def test_without_library():
    ranks.run(2, without_library, "cpu")


# ---- on a device ----

def on_device(function, n, *arguments):
    return no_device() or ranks.run(n, function, *arguments) and None


def coded_on_device(function, n, *arguments):
    return no_library() or ranks.run(n, function, *arguments) and None


def test_cuda_has_the_same_bits():
    return coded_on_device(same_bits, 2, "cuda:0", None, (torch.float32, torch.float16, torch.bfloat16))


def test_cuda_routes_say_where():
    return coded_on_device(routes, 2, "cuda:0", None)


def test_cuda_without_library():
    return on_device(without_library, 2, "cuda:0")


def amp(rank, n):
    """A step that overflows on one rank is skipped by all, leaves residuals as they were, and the next goes on."""
    for spec in ("topk:density=0.05", "natural:bits=8"):
        model = Given().cuda()
        ddp = DistributedDataParallel(model)
        scaler = torch.cuda.amp.GradScaler(init_scale=1024.0, growth_interval=2)
        gradwire.attach(ddp, spec, dense_below=100, scaler=scaler, quiet=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(6):
            given = gradients_of(rank, step, "cuda")
            if step == 3 and rank == 1:
                given[3][0, 0] = float("inf")
            before, weights, scale = gradwire.state_dict()["residuals"].clone(), ranks.flat(model).clone(), scaler.get_scale()
            optimizer.zero_grad()
            scaler.scale(ddp(given)).backward()
            after = gradwire.state_dict()["residuals"]
            scaler.step(optimizer)
            scaler.update()
            ranks.same_everywhere(ranks.flat(model).cpu(), f"{spec}, step {step}")
            skipped = torch.equal(weights, ranks.flat(model))
            assert skipped == (step == 3), f"{spec}: step {step}, skipped {skipped}"
            if step == 3:
                assert torch.equal(before, after), f"{spec}: a step that never happened left a residual"
                assert scaler.get_scale() == scale / 2
        assert gradwire.stats()["skipped"] == 1
        gradwire.detach(ddp)


def test_cuda_amp():
    return on_device(amp, 2)


def training(rank, n):
    """A network on one device for all ranks, in several buckets, other streams beside it: replicas stay equal and learn."""
    for spec in ("natural:bits=8", "adacomp", CODECS[-1], "topk:density=0.01"):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(),
                                    torch.nn.Flatten(), torch.nn.Linear(32 * 64, 256), torch.nn.ReLU(),
                                    torch.nn.Linear(256, 10)).cuda()
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.5, gradient_as_bucket_view=spec == "adacomp")
        gradwire.attach(ddp, spec, dense_below=1000, quiet=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        g = torch.Generator().manual_seed(rank)
        x = torch.randn(64, 1, 12, 12, generator=g).cuda()
        y = torch.randint(0, 10, (64,), generator=g).cuda()
        losses, side = [], torch.cuda.Stream()
        for step in range(30):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side if step % 2 else torch.cuda.current_stream()):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(ddp(x), y)
                loss.backward()
                optimizer.step()
            torch.cuda.current_stream().wait_stream(side)
            losses.append(loss.item())
        ranks.same_everywhere(ranks.flat(model).cpu(), spec)
        assert losses[-1] < 0.9 * losses[0], f"{spec}: {losses[0]} to {losses[-1]}"
        gradwire.detach(ddp)


def test_cuda_training():
    return on_device(training, 2)


def state(rank, n):
    """Residuals on the device go into a checkpoint and back."""
    where = "cuda"
    model = Given().to(where)
    ddp = DistributedDataParallel(model)
    for spec in ("topk:density=0.05", CODECS[-1]):
        runs = []
        for again in (False, True):
            gradwire.attach(ddp, spec, dense_below=100, quiet=True)
            if again:
                gradwire.load_state_dict(saved)
            for step in range(2 if again else 0, 4):
                model.zero_grad()
                ddp(gradients_of(rank, step, where)).backward()
                if step == 1:
                    saved = gradwire.state_dict()
            runs.append([w.grad.detach().cpu().clone() for w in model.weights])
            gradwire.detach(ddp)
        assert all(torch.equal(a, b) for a, b in zip(*runs)), f"{spec}: a run that was resumed went another way"


def test_cuda_state():
    return on_device(state, 2)


def nccl(rank, n):
    """DDP by nccl; payloads by a gloo group of ours."""
    torch.cuda.set_device(0)
    group = dist.new_group([0], backend="nccl")
    for spec in ("natural:bits=8", "topk:density=0.05", "dense"):
        found, _, stats = means(rank, spec, "cuda:0", group=group)
        assert stats["carrier"] == "gloo" and stats["device"] == "cuda:0" and stats["coding"] == "gpu"
        assert all(torch.isfinite(f).all() for f in found)
        stayed, _, stats = means(rank, spec, "cuda:0", group=group, payloads="nccl")
        assert stats["carrier"] == "nccl" and all(torch.equal(a, b) for a, b in zip(found, stayed)), "by NCCL they are others"


def test_cuda_nccl_alone():
    return coded_on_device(nccl, 1)


def test_devices_that_do_not_fit():
    from gradwire import device

    ranks.raises(gradwire.GradwireError, lambda: device.check_payloads("nccl", None), "is for models on CUDA devices")
    ranks.raises(gradwire.GradwireError, lambda: device.check_payloads("gloo", None), "'host' or 'nccl'")
    ranks.raises(gradwire.GradwireError, lambda: device.check_payloads("nccl", device.Device(None, None, "gone")), "gone")

    cpu, meta = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1, device="meta"))
    ranks.raises(gradwire.GradwireError, lambda: device.of([cpu, meta], ["a", "b"]), "'b' is on meta", "all on one device")
    ranks.raises(gradwire.GradwireError, lambda: device.of([meta], ["b"]), "the CPU and CUDA devices are supported")


def fsdp(rank, n):
    """fully_shard by nccl with one rank: gradients are coded on the CPU, and the result is the device's."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.destroy_process_group()
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29517", rank=0, world_size=1)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).cuda()
    fully_shard(module, mesh=init_device_mesh("cuda", (1,)))
    gradwire.attach(module, "natural:bits=8", dense_below=100, quiet=True)
    module(torch.randn(16, 64, device="cuda")).square().mean().backward()
    gradients = [p.grad.to_local() for p in module.parameters()]
    assert all(g.is_cuda and torch.isfinite(g).all() for g in gradients)
    stats = gradwire.stats()
    assert stats["device"] == "cuda:0" and stats["coding"] == "cpu", stats
    gradwire.detach(module)


def test_cuda_fsdp_alone():
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except Exception:  # Debian's fails in other ways than by ImportError
        return f"torch {torch.__version__} has no fully_shard"
    return on_device(fsdp, 1)


if __name__ == "__main__":
    ranks.main(globals())
