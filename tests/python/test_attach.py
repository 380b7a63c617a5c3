#!/usr/bin/env python3
"""Ranks that do not attach, and a Python without torch or without the library: each error says what to do."""

import os
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

import models
import ranks
from ranks import gradwire

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 1.5  # seconds: attach_timeout of ranks that wait for one that never comes


def attach(ddp, seconds=30.0):
    gradwire.attach(ddp, "natural:bits=8", dense_below=200, attach_timeout=seconds, quiet=True)


def some_attach(rank, n, absent):
    """All that attach hear who does not. A rank that comes when they have given up waits for them, and is named the next time it does
    not come. When all come, they train."""
    ddp, store, words = models.ddp(models.mixed()), dist.distributed_c10d._get_default_store(), []
    wait = gradwire.groups._published

    def said(store, key, seconds):
        """Patience ends when all that come have come, however busy the machine is."""
        if seconds == PATIENCE:
            while store.add(key.replace("/decision", "/arrived"), 0) < n - len(absent):
                pass
            return False
        return wait(store, key, seconds)

    gradwire.groups._published = said
    whose = f"rank {absent[0]} of {n}" if len(absent) == 1 else f"ranks {absent[0]} and {absent[1]} of {n}"
    for attempt in range(2):
        if rank in absent:
            store.wait([f"given up {attempt}"])
            continue
        words.append(ranks.raises(gradwire.GradwireError, lambda: attach(ddp, PATIENCE), f"{whose} did not call gradwire.attach",
                                  "attach_timeout", "gradwire.run"))
        ranks.raises(gradwire.GradwireError, gradwire.stats, "0 models")
        store.set(f"given up {attempt}", "1")
    attach(ddp)
    models.train(ddp, models.batches(rank), 2)
    ranks.same_everywhere(ranks.flat(ddp), "after an attach that failed")
    gradwire.detach(ddp)
    return words


def test_only_some_ranks_attach():
    for n, absent in ((2, [1]), (3, [0]), (4, [0, 2])):
        words = [w for w in ranks.run(n, some_attach, absent) if w]
        assert len(words) == n - len(absent) and len(set(map(tuple, words))) == 1, words


def shards_of_some(rank, n):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(models.mixed(), mesh=init_device_mesh("cpu", (n,)))
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(model, attach_timeout=PATIENCE), "rank 1 of 2 did not call")
        store.set("given up", "1")
    else:
        store.wait(["given up"])


def test_only_some_ranks_attach_shards():
    if not hasattr(torch, "compile"):
        return f"torch {torch.__version__} has no fully_shard"
    ranks.run(2, shards_of_some)


def tcp_store(rank, n):
    """As torchrun has it; the ranks here have a file."""
    shared = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, n, True, wait_for_workers=False)
        shared.set("port", str(store.port))
        return store
    return dist.TCPStore("127.0.0.1", int(shared.get("port")), n, False)


def meetings(rank, n, seed, rounds, make_store):
    """What this rank heard, by the meeting's number, where one after the other loses patience, early or when all are there already."""
    chance, heard, groups = random.Random(f"{seed} {rank}"), {}, gradwire.groups
    wait, numbers = groups._published, groups._numbers
    if make_store is not None:
        store = make_store(rank, n)
        groups.job_store = lambda: store
    groups._published = lambda store, key, seconds: wait(store, key, 0.001 if seconds == 30 and chance.random() > 0.8 else seconds)
    while True:
        try:
            groups.meet(None, 30)
            words = "all"
        except gradwire.GradwireError as error:
            words = str(error).split(" did not")[0]
        (number,) = numbers.values()
        heard[number] = words
        if number >= rounds and words == "all":
            dist.barrier()  # rank 0 has the store
            return heard


def test_all_ranks_hear_the_same():
    seed = 20261119
    for make_store in (None, tcp_store):
        heard = ranks.run(4, meetings, seed, 150, make_store)
        outcomes = []
        for number in range(1, max(heard[0]) + 1):
            words = [each[number] for each in heard if number in each]
            assert len(set(words)) == 1 and (words[0] != "all" or len(words) == 4), f"seed {seed}, meeting {number}: {words}"
            outcomes.append(words[0])
        assert {"all"} < set(outcomes), "ranks always met, or never: the test shows nothing"


def patient(rank, n):
    """A wait that has really ended without an answer, at a TCPStore. After it the store's answers are still those to what is asked."""
    shared, store, heard = dist.distributed_c10d._get_default_store(), tcp_store(rank, n), []
    gradwire.groups.job_store = lambda: store
    if rank == 1:
        shared.wait(["given up"])
    while "all" not in heard:
        try:
            gradwire.groups.meet(None, PATIENCE)
            heard.append("all")
        except gradwire.GradwireError as error:
            heard.append(str(error))
            shared.set("given up", "1")
        assert len(heard) < 20, heard
    dist.barrier()  # rank 0 has the store
    return heard


def test_patience_at_a_tcp_store():
    heard = ranks.run(3, patient)
    given_up = [words.split(" did not")[0] for each in heard for words in each if words != "all"]
    assert given_up and any("1" in words for words in given_up), heard


def differ(rank, n):
    ddp = models.ddp(models.mixed())
    ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp, warmup=rank), "rank 1 has", "warmup", "rank 0")


def test_ranks_that_differ():
    ranks.run(2, differ)


# Rank 0 starts the other one itself, as Lightning does: by the script's name, not by how Python was called.
LAUNCHER = """
import os, subprocess, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ.get("LOCAL_RANK", "0"))
if rank == 0:
    subprocess.Popen([sys.executable, *sys.argv], env=dict(os.environ, LOCAL_RANK="1"))
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
model = DistributedDataParallel(torch.nn.Linear(256, 256))
for _ in range(3):
    model(torch.randn(4, 256)).sum().backward()
"""


def test_a_launcher_that_starts_the_other_ranks():
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "pl.py"
        script.write_text(LAUNCHER)
        done = subprocess.run([sys.executable, "-m", "gradwire.run", "--attach-timeout", str(PATIENCE), str(script), folder + "/store"],
                              env=dict(os.environ, PYTHONPATH=str(ROOT / "python")), capture_output=True, text=True, timeout=90)
    assert done.returncode == 1, done
    assert "GradwireError: rank 1 of 2 did not call gradwire.attach within 1.5 s" in done.stderr, done.stderr
    assert "as Lightning does" in done.stderr and "torchrun" in done.stderr, done.stderr


def python(code, *arguments, **environment):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, PYTHONPATH=str(ROOT / "python"), **environment))


def test_without_torch():
    begin = "import sys; sys.modules['torch'] = None\n"
    done = python(begin + "import gradwire; print(gradwire.version(), gradwire.GradwireError.__name__)\n"
                  "for call in gradwire.attach, gradwire.profile:\n"
                  "    try: call(None)\n"
                  "    except ImportError as error: print(error)\n"
                  "try: gradwire.stats()\n"
                  "except gradwire.GradwireError as error: print(error)")
    assert done.returncode == 0 and done.stdout.count("need PyTorch") == 2 and "pip install torch" in done.stdout, done
    assert gradwire.version() + " GradwireError" in done.stdout and "0 models are attached" in done.stdout, done
    run = begin + "import runpy; sys.argv[0] = 'run'; runpy.run_module('gradwire.run', run_name='__main__')"
    done = python(run, "--help")
    assert done.returncode == 0 and "--codec" in done.stdout and not done.stderr, done
    done = python(run, "nothing.py")
    assert done.returncode == 1 and "ImportError: gradwire.attach and" in done.stderr and "need PyTorch" in done.stderr, done


def test_without_the_library():
    code = "try: import gradwire\nexcept ImportError as error: print(error)"
    with tempfile.TemporaryDirectory() as folder:
        done = python(code, GRADWIRE_LIBRARY=folder + "/libgradwire.so")
        assert done.returncode == 0 and "make build" in done.stdout and "pip install ./python" in done.stdout, done
        # as where OpenBLAS is not installed: this one needs a file that is nowhere
        built = pathlib.Path(os.environ["GRADWIRE_LIBRARY"]).read_bytes()
        assert b"libopenblas.so.0\0" in built, "made without OpenBLAS"
        other = pathlib.Path(folder) / "libgradwire.so"
        other.write_bytes(built.replace(b"libopenblas.so.0\0", b"libopenblas.so.?\0"))
        done = python(code, GRADWIRE_LIBRARY=str(other))
        assert done.returncode == 0 and "libopenblas.so.?" in done.stdout, done
        assert "apt install libopenblas0" in done.stdout and "GRADWIRE_BLAS=OFF" in done.stdout, done
        other.write_bytes(b"not a library")
        done = python(code, GRADWIRE_LIBRARY=str(other))
        assert done.returncode == 0 and "cannot be loaded" in done.stdout and "make build" in done.stdout, done


def unknown(rank, n):
    ddp = models.ddp(models.mixed())
    ranks.raises(gradwire.GradwireError, lambda: gradwire.attach(ddp, "quantize"), "no codec named 'quantize'", "cast, natural, ", "topk")


def test_an_unknown_codec():
    ranks.run(2, unknown)


if __name__ == "__main__":
    ranks.main(globals())
