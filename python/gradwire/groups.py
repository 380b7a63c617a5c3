"""Ranks and what joins them: what they tell each other at attach, and the process groups that our messages go by.

These are made once, and lent to one attached model after the other: torch keeps a group until the process ends, with a socket for every
rank and threads. A message finds its receive by order alone, so that only groups come back on which every message has arrived.
"""

import hashlib
import pickle
import weakref

import torch.distributed as dist

from .library import ERR_CHECKSUM, GradwireError, lib, version

MESSAGES = 4  # counts how they were told apart and cut so far: ranks that do it differently would wait for each other
_numbers = {}  # of what was made of the same ranks so far
_idle = weakref.WeakKeyDictionary()  # lines that came back, by job (its default group), by ranks and timeout, by name


def global_rank(group, rank):
    if group is None or group is dist.group.WORLD:
        return rank
    find = getattr(dist, "get_global_rank", None) or dist.distributed_c10d._get_global_rank
    return find(group, rank)


def ranks_of(group):
    return [global_rank(group, i) for i in range(dist.get_world_size(group))]


def job_store():
    return dist.distributed_c10d._get_default_store()


def _sealed(rank, value):
    said = pickle.dumps(value)
    return said, hashlib.blake2b(said + b"%d" % rank, digest_size=8).digest()


def gather(group, value):
    """Everyone's value, in rank order. A hash goes with each: these messages are torch's, which has no seals."""
    values = [None] * dist.get_world_size(group)
    try:
        dist.all_gather_object(values, _sealed(dist.get_rank(group), value), group=group)
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, UnicodeDecodeError) as error:
        raise GradwireError(f"what a rank says of itself was changed on its way to rank {dist.get_rank(group)}: {error}", ERR_CHECKSUM) from None
    for rank, sealed in enumerate(values):
        said, seal = sealed if isinstance(sealed, tuple) and len(sealed) == 2 else (b"", None)
        if not isinstance(said, bytes) or seal != hashlib.blake2b(said + b"%d" % rank, digest_size=8).digest():
            raise GradwireError(f"what rank {rank} says of itself was changed on its way to rank {dist.get_rank(group)}, or that rank "
                                "has another version of gradwire", ERR_CHECKSUM)
        values[rank] = pickle.loads(said)
    return values


def say_together(group, make, doing="attach"):
    """Runs `make`; if it fails on any rank it fails on all, with the words and rank of the first. So does another version of ours."""
    result, error = None, None
    try:
        result = make()
    except Exception as caught:  # whatever it is, the others must hear of it
        error = caught
    here = f"{version()} (messages {MESSAGES})"
    said = gather(group, (here, None if error is None else f"{type(error).__name__}: {error}"))
    for rank, other in enumerate(said):
        there = other[0] if isinstance(other, tuple) else "of before its ranks said which"
        if there != here:
            raise GradwireError(f"rank {rank} has gradwire {there}, rank {dist.get_rank(group)} has {here}: install the same on all ranks")
    if error is not None:
        raise error
    for rank, (_, text) in enumerate(said):
        if text is not None:
            raise GradwireError(f"rank {rank} cannot {doing}: {text}")
    return result


# ---- lines ----

class Lines:
    """`up` and `down`: process groups of the same ranks, for messages to higher and to lower ones; the receives that wait on them."""

    def __init__(self, up, down, name, idle):
        self.up, self.down, self.mailboxes, self._name, self._idle = up, down, {}, name, idle

    def give_back(self):
        """Nothing is under way on them, nor will be: every step of theirs has ended, with all ranks."""
        self._idle[self._name] = self


def new_name(what, ranks):
    """The same on all of these ranks, which make such things in the same order."""
    key = f"gradwire/{what}/{','.join(map(str, ranks))}"
    _numbers[key] = _numbers.get(key, 0) + 1
    return f"{key}/{_numbers[key]}"


def _gloo(ranks, timeout):
    store = dist.PrefixStore(new_name("group", ranks), job_store())
    return dist.ProcessGroupGloo(store, ranks.index(dist.get_rank()), len(ranks), timeout)


def _own_group(ranks, backend, timeout):
    if len(ranks) < dist.get_world_size():
        if backend == "gloo":  # ranks outside know nothing of it, so that new_group would wait for them
            return _gloo(ranks, timeout)
        raise GradwireError("a part of the ranks: with gloo only")
    return dist.new_group(ranks, backend=backend, timeout=timeout)


def backend_of(group):
    """Payloads are in host memory, so that beside nccl it is gloo."""
    backend = dist.get_backend(group)
    if any(name in backend for name in ("gloo", "nccl", "undefined")):
        return "gloo"
    if backend != "mpi":
        raise GradwireError(f"backend '{backend}' is not supported yet: gloo, mpi and nccl are")
    return backend


def borrow(group, timeout):
    """Lines among the group's ranks for one carrier alone. All ranks."""
    ranks, backend = ranks_of(group), backend_of(group)
    idle = _idle.setdefault(dist.distributed_c10d._get_default_group(), {}).setdefault((*ranks, timeout), {})
    common = set.intersection(*map(set, gather(group, list(idle))))  # a rank may have none back yet, or never
    if common:
        lines = idle.pop(min(common))
    else:
        name = new_name("lines", ranks)
        lib.gw_hosted_hurry(1)  # threads that gloo starts inherit this
        try:
            up = _own_group(ranks, backend, timeout)
            lines = Lines(up, _own_group(ranks, backend, timeout) if backend == "gloo" else up, name, idle)
        finally:
            lib.gw_hosted_hurry(0)
    return lines
