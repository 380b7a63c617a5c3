"""Ranks and what joins them: what they tell each other at attach, and the process groups that our messages go by.

These are made once, and lent to one attached model after the other: torch keeps a group until the process ends, with a socket for every
rank and threads. A message finds its receive by order alone, so that only groups come back on which every message has arrived.
"""

import hashlib
import pickle
import time
import weakref

import torch.distributed as dist

from .library import ERR_CHECKSUM, GradwireError, lib, version

PATIENCE = 10  # seconds, for the decision of a rank that is known to have made one
GAVE_UP = 1 << 20  # more than there are ranks
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


def named(ranks):
    """ranks 0, 2 and 5"""
    text = [str(rank) for rank in ranks]
    return f"rank {text[0]}" if len(text) == 1 else f"ranks {', '.join(text[:-1])} and {text[-1]}"


# ---- agreement at attach ----

def _publish(store, key, words):
    store.set(key, words)
    store.add(key + "/published", 1)


def _published(store, key, seconds):
    """Whether the key is there within so many seconds. Polls: after a wait that times out, torch 1's TCPStore takes the late answer for
    that to its next call."""
    deadline, pause = time.monotonic() + seconds, 0.001
    while store.add(key + "/published", 0) == 0:
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    return True


def meet(group, seconds, call="gradwire.attach"):
    """Fails unless all ranks of the group make this call within so many seconds of each other, and names the missing ranks. Uses the job's
    store: a collective call would wait for a missing rank until the process group's timeout.

    One rank decides for all: the last to arrive, or the first whose patience ends before. A rank that comes when the others have given up
    waits for them to try again."""
    store, n = job_store(), dist.get_world_size(group)
    if store is None or n == 1:  # MPI has none
        return
    late, missing = True, None
    while late and missing != "all":
        late, missing = _meet_once(store, dist.get_rank(group), n, new_name(call, ranks_of(group)), seconds)
    if missing != "all" and call != "gradwire.attach":
        raise GradwireError(f"{missing} of {n} did not call {call} within {seconds:g} s")
    if missing != "all":
        raise GradwireError(
            f"{missing} of {n} did not call gradwire.attach within {seconds:g} s. All ranks must attach. If the script calls attach: does "
            "every rank reach it? If a rank only takes longer: attach_timeout=SECONDS. If the script runs under gradwire.run and its "
            "launcher starts the other ranks by itself, as Lightning does, these run without gradwire: start every rank by "
            "'torchrun … -m gradwire.run … SCRIPT', or call gradwire.attach in the script")


def _meet_once(store, rank, n, key, seconds):
    """Whether the others gave up before this rank came, and which ranks were missing ("all": none was)."""
    arrivals, decision = key + "/arrived", key + "/decision"
    store.add(f"{key}/{rank}", 1)
    arrived = store.add(arrivals, 1)
    if arrived == n:
        _publish(store, decision, "all")
    elif arrived < GAVE_UP and not _published(store, decision, seconds):
        if store.add(arrivals, GAVE_UP) - GAVE_UP < n:
            absent = [r for r in range(n) if store.add(f"{key}/{r}", 0) == 0]
            _publish(store, decision, named(absent) if absent else "all")  # the last may have come in this moment
    return arrived > GAVE_UP, store.get(decision).decode() if _published(store, decision, PATIENCE) else "another rank"


def alike(group, name, value):
    """Fails on all ranks if the value differs between them."""
    everyone = gather(group, value)
    for rank, other in enumerate(everyone):
        if other != everyone[0]:
            raise GradwireError(f"rank {rank} has {name}={other!r}, rank 0 has {everyone[0]!r}: pass the same on all ranks")


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
