"""Runs a function as N ranks: processes forked from this one, which has imported torch already."""

import datetime
import os
import pathlib
import pickle
import select
import signal
import sys
import tempfile
import time
import traceback

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print(f"skip: {sys.executable} has no torch")
    sys.exit(77)

# test_adam_controls.py names a package with a planted fault
sys.path.insert(0, os.environ.get("GRADWIRE_TEST_PACKAGE") or str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import gradwire
import gradwire.session  # once, not in every rank

try:
    import torch._dynamo  # what DDP imports when it is first made: once here, not in every rank
    import torch.distributed.fsdp
except ImportError:
    pass

DEADLINE = 120  # seconds, of one run


class Failed(AssertionError):
    pass


def _child(function, rank, ranks, folder, out, arguments):
    code, result = 0, None
    try:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks,
                                timeout=datetime.timedelta(seconds=60))
        result = function(rank, ranks, *arguments)
    except BaseException:
        lines = traceback.format_exc().splitlines()
        result, code = "\n".join(lines[:1] + lines[-9:]), 1
    with os.fdopen(out, "wb") as pipe:
        pickle.dump((code, result), pipe)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _fork(ranks, function, arguments, folder):
    children = {}
    for rank in range(ranks):
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _child(function, rank, ranks, folder, theirs, arguments)
        os.close(theirs)
        children[rank] = (pid, ours)
    return children


def run(ranks, function, *arguments, may_die=()):
    """Results of function(rank, ranks, *arguments), in rank order. None for one of `may_die` that died."""
    with tempfile.TemporaryDirectory() as folder:
        return _collect(_fork(ranks, function, arguments, folder), may_die)


def run_with_stopped(ranks, function, stopped):
    """The same, where rank `stopped` stops itself (SIGSTOP) and is ended when the others are done."""
    with tempfile.TemporaryDirectory() as folder:
        children = _fork(ranks, function, (signal.SIGSTOP,), folder)
        sleeper = children.pop(stopped)
        try:
            return _collect(children, ())
        finally:
            os.kill(sleeper[0], signal.SIGKILL)
            os.waitpid(sleeper[0], 0)
            os.close(sleeper[1])


def _collect(children, may_die):
    deadline = time.monotonic() + DEADLINE
    got = {rank: b"" for rank in children}
    open_ = {out: rank for rank, (_, out) in children.items()}
    while open_ and time.monotonic() < deadline:
        for out in select.select(list(open_), [], [], 1)[0]:
            data = os.read(out, 1 << 20)
            got[open_[out]] += data
            if not data:
                del open_[out]
    hung = sorted(open_.values())
    for rank, (pid, out) in children.items():
        if rank in hung:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(out)
    if hung:
        raise Failed(f"ranks {hung} did not end within {DEADLINE} s")
    results, words = [], []
    for rank in sorted(children):
        code, result = pickle.loads(got[rank]) if got[rank] else (2, None if rank in may_die else "died")
        if code != 0 and rank not in may_die:
            words.append(f"rank {rank}: {result}")
        results.append(result)
    if words:
        raise Failed("\n".join(words))
    return results


def same_everywhere(tensor, what):
    """Bit for bit, on all ranks."""
    flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
    everyone = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, flat)
    for rank, other in enumerate(everyone):
        assert torch.equal(other, everyone[0]), f"{what}: rank {rank} differs from rank 0"


def flat(model):
    return torch.cat([p.detach().float().reshape(-1) for p in model.parameters()])


def flat_gradients(model):
    return torch.cat([p.grad.detach().float().reshape(-1) for p in model.parameters()])


def raises(kind, function, *needles):
    """The error's words, which hold all of `needles`."""
    try:
        function()
    except kind as error:
        for needle in needles:
            assert needle in str(error), f"'{needle}' is not in: {error}"
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def main(tests):
    """Runs the functions whose names begin with test_, or those named on the command line."""
    chosen = sys.argv[1:] or [name for name in tests if name.startswith("test_")]
    failed = skipped = 0
    for name in chosen:
        begin = time.monotonic()
        try:
            said = tests[name]()
            skipped += isinstance(said, str)
            word = f"skip: {name}: {said}" if isinstance(said, str) else f"ok {name}"
        except Exception:
            failed += 1
            word = f"FAILED {name}\n{traceback.format_exc()}"
        print(f"{word} ({time.monotonic() - begin:.1f} s)", flush=True)
    print(f"{len(chosen) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)
