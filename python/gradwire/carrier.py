"""Carries the library's messages by torch.distributed.

The C side posts operations and looks whether they are done; it never calls Python. One thread takes them in the order
of posts and begins them; others only wait, outside the interpreter lock. An operation that is waited for has a thread
for itself, so that none is ever kept waiting by another's.

With gloo a connection is busy while a message is written to it, and whoever brings what has come in by it spins until it
is not, for milliseconds if the writer has lost its core. So messages to higher and to lower ranks have connections of
their own, and short messages find receives that were posted before the step: an answer to a receive would come
while it is still being posted. docs/decisions/014
"""

import collections
import ctypes
import datetime
import functools
import queue
import re
import threading
from ctypes import byref, c_uint32, c_void_p

import torch

from .library import ERR_PEER, ERR_STATE, OK, GradwireError, Why, Work, check, lib, memory

SHORT = 64 * 1024  # bytes, at most, of a message that finds a receive posted and is copied from there
READY = 16  # receives that wait for one peer's messages of one tag, at most
PATIENCE = 10  # seconds, for the words of the rank that failed first: it may have died before it could say them
REST = 5  # seconds, for a thread that is not needed any more


@functools.lru_cache(4096)  # the library's buffers are where they were in the last step
def _bytes_at(address, size):
    return torch.frombuffer(memory(address, size), dtype=torch.uint8)


class Mailbox:
    """Receives of one peer's short messages with one tag. They may be longer than what comes."""

    def __init__(self, group, peer, tag):
        self._group, self._peer, self._tag = group, peer, tag
        self._lock, self._posted, self._free, self._taken = threading.Lock(), collections.deque(), [], 0

    def take(self):
        """The receive of the next message, and where it will be."""
        with self._lock:
            self._taken += 1
            if not self._posted:
                self._post()
            return self._posted.popleft()

    def give_back(self, slot):
        with self._lock:
            self._free.append(slot)

    def refill(self):
        """As many as were taken since the last time."""
        with self._lock:
            while len(self._posted) < min(self._taken, READY):
                self._post()
            self._taken = 0

    def _post(self):
        slot = self._free.pop() if self._free else torch.empty(SHORT, dtype=torch.uint8)
        self._posted.append((self._group.recv([slot], self._peer, self._tag), slot))


class Carrier:
    """`node_of`: for each rank the lowest rank on its node. `node`: this rank's node by name; None: found out."""

    def __init__(self, lines, backend, rank, ranks, store, key, timeout, node=None):
        self.backend = backend
        self._lines, self._rank, self._store, self._key = lines, rank, store, key
        self._short = SHORT if backend == "gloo" else 0
        self._handle = c_void_p()
        self._idle, self._lock, self._begun = 0, threading.Lock(), queue.SimpleQueue()
        self._telling, self._told = threading.Lock(), None  # why the session failed, once that is known
        self._waits = {}  # for which peer each operation waits, the oldest first
        why = Why()
        check(lib.gw_hosted_create(rank, ranks, byref(self._handle), byref(why)), why)
        self._thread = threading.Thread(target=self._take, name="gradwire-carrier", daemon=True)
        self._thread.start()
        self._waiters = []
        self.node_of = (c_uint32 * ranks)()
        try:
            check(lib.gw_comm_nodes(self.comm, None if node is None else node.encode(), timeout, self.node_of, byref(why)), why)
        except GradwireError:
            self.close(False)
            raise

    @property
    def comm(self):
        return lib.gw_hosted_comm(self._handle)

    def under_way(self):
        return lib.gw_hosted_under_way(self._handle)

    def close(self, whole):
        """Ends the threads; frees the C side unless messages are still under way, as after a failure. Whole: all that was sent to this
        rank has arrived."""
        lib.gw_hosted_stop(self._handle)
        self._thread.join()
        busy = self.under_way() != 0
        for _ in self._waiters:
            self._begun.put(None)
        if not busy:
            for waiter in self._waiters:
                waiter.join()
            lib.gw_hosted_destroy(self._handle)
        if whole and not busy and self._told is None:
            self._lines.give_back()
        self._lines = None

    def refill(self):
        """Between steps: whoever sends finds receives waiting."""
        try:
            for mailbox in list(self._lines.mailboxes.values()):
                mailbox.refill()
        except RuntimeError:  # a peer is gone, as at the end of a script; else the next operation says so
            pass

    def rest(self):
        """Of Session.rest."""
        if self.under_way() == 0:
            lib.gw_hosted_stop(self._handle)
            for _ in self._waiters:
                self._begun.put(None)
            for thread in (self._thread, *self._waiters):
                thread.join(REST)

    # ---- the one thread that begins operations ----

    def _take(self):
        lib.gw_hosted_hurry(1)
        work, why = Work(), Why()
        while True:
            status = lib.gw_hosted_take(self._handle, byref(work), byref(why))
            if status == ERR_STATE:
                return
            if status == ERR_PEER:
                self._tell(why.text.decode("utf-8", "replace"))
                continue
            messages, peer = [], 0
            try:
                for i in range(work.n_messages):
                    m = work.messages[i]
                    peer = m.peer
                    messages.append(self._begin(peer, work.tag, m.incoming, m.data, m.bytes))
            except RuntimeError as error:
                self._failed(work.id, peer, error)
                continue
            self._hand_over(work.id, messages)

    def _begin(self, peer, tag, incoming, data, size):
        """Who is waited for, what for, the memory of it, and of a short message that comes in where it belongs."""
        lines = self._lines
        group = lines.up if (peer < self._rank) == bool(incoming) else lines.down
        short = size <= self._short
        tag = 2 * tag + short
        if incoming and short:
            mailbox = lines.mailboxes.get((peer, tag))
            if mailbox is None:
                mailbox = lines.mailboxes[peer, tag] = Mailbox(group, peer, tag)
            return (peer, *mailbox.take(), mailbox, data, size)
        tensor = _bytes_at(data, size)
        return (peer, (group.recv if incoming else group.send)([tensor], peer, tag), tensor, None, data, size)

    def _hand_over(self, identity, messages):
        with self._lock:
            free = self._idle > 0
            self._idle -= free
        if not free:
            waiter = threading.Thread(target=self._wait, name="gradwire-wait", daemon=True)
            self._waiters.append(waiter)
            waiter.start()
        self._begun.put((identity, messages))

    # ---- threads that wait ----

    def _wait(self):
        while True:
            item = self._begun.get()
            if item is None:
                return
            identity, messages = item
            peer = 0
            try:
                for peer, work, tensor, mailbox, data, size in messages:
                    self._waits[identity] = peer
                    work.wait()
                    if mailbox is not None:
                        ctypes.memmove(data, tensor.data_ptr(), size)
                        mailbox.give_back(tensor)
            except RuntimeError as error:
                self._failed(identity, peer, error)
            else:
                lib.gw_hosted_done(self._handle, identity, OK, None)
            item = messages = None
            self._waits.pop(identity, None)
            with self._lock:
                self._idle += 1

    def _failed(self, identity, peer, error):
        text = re.sub(r"^\[[^\]]*\]\s*", "", str(error).strip().split("\n")[0])
        words = self._first_word(f"rank {peer} is gone: {text}")
        lib.gw_hosted_done(self._handle, identity, ERR_PEER, words.encode())

    def _tell(self, reason):
        self._first_word(reason)

    def _first_word(self, words):
        """Ranks fail one after the other, each because of the one before: who fails first knows best why. Returns its
        words, by the store of the job, as far as that can still be reached. One thread of a rank asks: whoever waits on
        the store keeps others from speaking, and no thread may end the process between a claim and its words."""
        with self._telling:
            if self._told is None:
                self._told = self._ask_who_was_first(words)
            return self._told

    def _ask_who_was_first(self, words):
        try:
            if self._store.add(self._key + "/failed", 1) == 1:
                self._store.set(self._key + "/why", f"{words} (said rank {self._rank})")
            elif self._said(self._key + "/why", PATIENCE):
                return self._store.get(self._key + "/why").decode("utf-8", "replace")
        except RuntimeError:
            pass
        return words

    def silent_rank(self):
        """After a timeout: the rank that all wait for in the end. Everyone says whom it waits for; a rank that others
        wait for and that says nothing is the one. None if nobody is found."""
        waits = list(self._waits.values())
        try:
            self._store.set(f"{self._key}/waits/{self._rank}", str(waits[0] if waits else self._rank))
            rank, seen = self._rank, set()
            while rank not in seen:
                seen.add(rank)
                if not self._said(f"{self._key}/waits/{rank}"):
                    return rank
                rank = int(self._store.get(f"{self._key}/waits/{rank}"))
        except RuntimeError:
            pass
        return None

    def _said(self, key, seconds=2):
        try:
            self._store.wait([key], datetime.timedelta(seconds=seconds))
            return True
        except RuntimeError:
            return False
