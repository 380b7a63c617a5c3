"""One attached model: its layers in a gw_step, the thread that completes futures, state and statistics."""

import datetime
import os
import queue
import threading
from ctypes import byref, c_double, c_size_t, c_uint32, c_uint64, c_void_p, cast

import torch
import torch.distributed as dist

from .carrier import REST, Carrier
from .device import join_nccl
from .groups import backend_of, borrow, job_store, new_name, ranks_of, say_together
from .library import BF16, ERR_STATE, ERR_TIMEOUT, ERR_UNSUPPORTED, F16, F32, GradwireError, AutoDecision, Blob, Decision, LayerStats, Params, Place, Route, StepConfig, StepResult
from .library import Tensor, Told, Why, check, counts, lib, parse_params, parse_route, print_params, print_route
from .state import heirs

SHARDED = "flat:reduce_scatter, flat:allgather"  # half of it: uncompressed, to shards
DTYPES = {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16}


def spare_threads(neighbours):
    """Cores of this rank's share of its node that torch's own threads leave, 1 to 4. `neighbours`: ranks on this node."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        cores = os.cpu_count() or 1
    return max(1, min(4, cores // neighbours - torch.get_num_threads()))


def make_carrier(group, timeout, node=None):
    patience = 2 * timeout + datetime.timedelta(seconds=30)  # a step's timeout comes first
    lines = borrow(group, patience)
    key = new_name("carrier", ranks_of(group))
    return Carrier(lines, backend_of(group), dist.get_rank(group), dist.get_world_size(group), job_store(), key,
                   timeout.total_seconds(), node)


class Totals:
    def __init__(self):
        self.steps, self.bytes_sent, self.dense_bytes_sent = 0, [0, 0], [0, 0]  # inside the node, to other nodes
        self.encode_seconds, self.decode_seconds, self.exchange_seconds, self.skipped = 0.0, 0.0, 0.0, 0

    def add(self, result):
        self.steps += 1
        self.add_sent(result)
        for link in range(2):
            self.dense_bytes_sent[link] += result.dense_bytes_sent[link]
        self.skipped += result.non_finite != 0

    def add_sent(self, result):
        """Of an exchange in addition to the step's own: DDP would not send it."""
        for link in range(2):
            self.bytes_sent[link] += result.bytes_sent[link]
        self.encode_seconds += result.encode_seconds
        self.decode_seconds += result.decode_seconds
        self.exchange_seconds += result.seconds


def _value_or_raise(completed):
    """Of a future: what went wrong is its value, to be raised by whoever waits for what comes `then`."""
    value = completed.value()
    if isinstance(value, Exception):
        raise value
    return value


class Session:
    """Layers are told apart by number: their place in `layers`, which is the order of the wire at first."""

    def __init__(self, layers, group, *, seed, timeout, lanes, threads, piece, fuse_below, scaler=None,
                 sharded=False, total=False, verify_every=0, carrier=None, device=None, chooser=None, spec=None, payloads="host",
                 node=None, wire=None, warmup=None, all_or_nothing=False):
        self.layers, self.scaler, self.totals = layers, scaler, Totals()
        self.warmup, self._warm, self._sharded = warmup, False, sharded
        self._plans = [(layer.spec, layer.route) for layer in layers]  # after the warm-up
        self.chooser, self.chooses, self._spec = chooser, False, spec
        self.wire = wire  # a plan's; None: it is learnt
        self.device, self._pinned = device, {}  # pinned: of gradients on a device that are coded here, by layer
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.group = group
        self._step, self.scale, self._error = c_void_p(), None, None
        self._between = False  # steps: every message of those before has arrived
        self.lost, self._compared, self._squares = None, None, 0.0  # at the last load; until it has a gradient
        self._own_carrier = carrier is None
        self._carrier = carrier or make_carrier(group, timeout, node)
        self.on_step = []  # called with the result after every step
        self.on_scale = []  # called with the factor by which the loss scale changed
        self.adam = None
        nodes = self._carrier.node_of
        self.node_of = list(nodes)
        threads = threads or spare_threads(list(nodes).count(nodes[self.rank]))
        config = StepConfig(comm=self._carrier.comm, seed=seed, piece=piece, fuse_below=fuse_below,
                            timeout=timeout.total_seconds(), node_of=nodes, lanes=lanes, threads=threads,
                            own_thread=1, sum=int(total),
                            all_or_nothing=int(all_or_nothing or scaler is not None), sharded=int(sharded), verify_every=verify_every)
        if device is not None and device.cuda is not None:
            config.place = Place(device.cuda, device.index)
        why, self._device_comm = Why(), None
        try:
            if payloads == "nccl":
                self._device_comm = join_nccl(device, self._carrier.comm, min(timeout.total_seconds(), 300.0))
                config.device_comm = cast(self._device_comm, c_void_p)
            check(lib.gw_step_create(byref(config), byref(self._step), byref(why)), why)
            self._add_layers()
            self._agree()
            self._begin_choosing()
        except GradwireError:
            self._between = False  # one rank alone may have failed
            self._free()
            raise
        self._posted, self._finisher, self._moved = queue.SimpleQueue(), None, []

    def _choosing(self, call):
        return getattr(lib, f"gw_step_{self.chooser}_{call}")

    def _add_layers(self):
        why, number = Why(), c_uint32()
        for i, layer in enumerate(self.layers):
            dims = (c_uint64 * len(layer.dims))(*layer.dims)
            check(lib.gw_step_add(self._step, layer.name.encode(), dims, len(dims), DTYPES[layer.dtype], byref(number),
                                  byref(why)), why)
            assert number.value == i
        self._plan_layers()
        if self.wire is not None:
            numbers, n = c_uint32 * len(self.layers), len(self.layers)
            check(lib.gw_step_order(self._step, numbers(*self.wire.order), n, byref(why)), why)
            check(lib.gw_step_buckets(self._step, numbers(*self.wire.buckets), n, byref(why)), why)

    def _is_warm(self, number):
        return self.warmup is not None and self.warmup.on(number)

    def _plan_layers(self):
        """Plans every layer for the phase of the current step, which is the same on all ranks."""
        self._warm = self._is_warm(self.number)
        why = Why()
        for i, (layer, (spec, route)) in enumerate(zip(self.layers, self._plans)):
            if self._warm and spec is not None:
                spec = self.warmup.spec
                route = None if not self._sharded else SHARDED if spec is None else "sra"
            params, made = byref(parse_params(spec)) if spec is not None else None, Route()
            along = byref(parse_route(route)) if route is not None else None
            check(lib.gw_step_plan(self._step, i, params, along, byref(why)), why)
            check(lib.gw_step_planned(self._step, i, byref(Params()), byref(made)), why)
            layer.route = print_route(made)

    def _begin_choosing(self):
        """Lets the chooser begin, unless the warm-up is still on."""
        why = Why()
        if self.chooser is not None and not self.chooses and not self._warm:
            check(self._choosing("begin_spec")(self._step, self._spec.encode(), byref(why)), why)
            self.chooses = True

    def _change_phase(self):
        """All ranks, between the same two steps. The warm-up keeps no residuals: after it they begin at zero, before it they are added
        to what is sent first."""
        self._plan_layers()
        self._agree()
        self._begin_choosing()

    def _agree(self):
        why, self._between = Why(), False
        check(lib.gw_step_agree(self._step, byref(why)), why)
        self._between = True

    def _free(self):
        if self._carrier is None:
            return
        if self._carrier.under_way() == 0:  # else messages still read and write its memory
            lib.gw_step_destroy(self._step)
            if self._device_comm is not None:
                self._device_comm.contents.table.contents.close(self._device_comm)
        self._step = self._device_comm = None
        if self._own_carrier:
            self._carrier.close(self.whole())
        self._carrier = None

    def whole(self):
        """Every step that was begun has ended well."""
        return self._between and self._error is None

    def close(self):
        if self._step is not None:
            if self._finisher is not None:
                self._posted.put(None)
                self._finisher.join()
            self._free()

    def rest(self):
        """At the end of the script, from where threads do not go on: one that is in the middle of a call of torch would abort the process
        as it comes back. Those that have all but done are waited for; not those that wait for other ranks."""
        if self._step is not None:
            if self._finisher is not None:
                self._posted.put(None)
                self._finisher.join(REST)
            if self._own_carrier:
                self._carrier.rest()

    # ---- a step ----

    def open(self):
        """Before the first post of a step."""
        self.live()
        self._between = False
        if self._warm != self._is_warm(self.number):
            self._change_phase()
            self._between = False
        if self.scaler is not None:
            scale = float(self.scaler.get_scale())
            if self.scale not in (None, scale):
                self.scale_residuals(scale / self.scale)
                for call in self.on_scale:
                    call(scale / self.scale)
            self.scale = scale

    def scale_residuals(self, factor):
        """Between steps."""
        why = Why()
        check(lib.gw_feedback_scale(self._feedback(), factor, byref(why)), why)

    def follow(self, buckets):
        """The wire's order is that of DDP's buckets; layers of one become ready together. All ranks, between steps."""
        why, order = Why(), [layer for bucket in buckets for layer in bucket]
        bucket_of = {layer: i + 1 for i, bucket in enumerate(buckets) for layer in bucket}
        check(lib.gw_step_order(self._step, (c_uint32 * len(order))(*order), len(order), byref(why)), why)
        if self.chooser != "auto":  # which prices every layer's messages by themselves
            groups = (c_uint32 * len(order))(*(bucket_of[layer] for layer in range(len(order))))
            check(lib.gw_step_ready_together(self._step, groups, len(groups), byref(why)), why)
        self._agree()

    def post(self, layer, address, stream=None):
        of = self.layers[layer]
        tensor, why = Tensor(address, of.elements, DTYPES[of.dtype]), Why()
        check(lib.gw_step_post_after(self._step, layer, byref(tensor), stream, byref(why)), why)

    def post_tensor(self, layer, gradient):
        """A gradient of where the session's are, dense in memory."""
        self.measure(gradient)
        if self.device is None:
            self.post(layer, gradient.data_ptr())
        elif self.device.cuda is not None:
            self.post(layer, gradient.data_ptr(), self.device.stream())
        else:
            here = self._pinned.get(layer)
            if here is None:
                here = self._pinned[layer] = torch.empty(gradient.numel(), dtype=gradient.dtype, pin_memory=gradient.is_cuda)
            here.copy_(self.line(gradient))
            self._moved.append((self.line(gradient), here))
            self.post(layer, here.data_ptr())

    @staticmethod
    def line(gradient):
        """Its numbers in the order of memory."""
        return gradient.as_strided((gradient.numel(),), (1,), gradient.storage_offset())

    def future(self, layers, tensor, last):
        """Done with `tensor` as its value when these layers have arrived, and after the last also the step."""
        self._start_finisher()
        # what a device has is done when a layer has arrived: nobody's stream has to wait
        done = torch.futures.Future(devices=[self.device.torch]) if tensor.is_cuda else torch.futures.Future()
        self._posted.put((layers, done, tensor, last, self._moved, None))
        self._moved = []
        return done.then(_value_or_raise)

    def failed_future(self, error):
        """Fails with what kept a layer from being posted. The session has then failed, also if it was the first to fail."""
        done = torch.futures.Future()
        if self._error is None:
            self._start_finisher()
            self._posted.put(((), done, None, False, (), error))
        else:
            done.set_result(error)
        return done.then(_value_or_raise)

    def _start_finisher(self):
        if self._finisher is None:
            self._finisher = threading.Thread(target=self._finish, name="gradwire-finish", daemon=True)
            self._finisher.start()

    def _finish(self):
        while True:
            item = self._posted.get()
            if item is None:
                return
            layers, done, tensor, last, moved, refused = item
            why, value = Why(), tensor
            try:
                if refused is not None:
                    raise refused
                numbers = (c_uint32 * len(layers))(*layers)
                check(lib.gw_step_wait_layers(self._step, numbers, len(layers), byref(why)), why)
                for there, here in moved:
                    there.copy_(here)  # waits for it
                if last:
                    self._end_step()
            except Exception as error:  # whoever waits for the future gets it
                self._error = value = self._named(error)
            done.set_result(value)
            if last:
                self._carrier.refill()
            item = tensor = value = done = moved = refused = None

    def _named(self, error):
        if getattr(error, "status", 0) != ERR_TIMEOUT or self._error is not None:
            return self._error or error
        silent = self._carrier.silent_rank()
        return GradwireError(f"{error}: rank {silent}" if silent is not None else str(error), ERR_TIMEOUT)

    def _end_step(self):
        why, result = Why(), StepResult()
        check(lib.gw_step_wait(self._step, byref(result), byref(why)), why)
        self._between = True
        self._measured_step(result.number)
        self.totals.add(result)
        for call in self.on_step:
            call(result)

    def verify(self):
        """All ranks, between steps: have all of them had the same means?"""
        self.live()
        why, self._between = Why(), False
        try:
            check(lib.gw_step_verify(self._step, byref(why)), why)
        except GradwireError as error:
            if error.status not in (ERR_STATE, ERR_UNSUPPORTED):
                self._error = self._named(error)
            raise
        self._between = True

    def run(self, addresses):
        """A whole step at once: addresses of all layers, in order."""
        self._whole_step(addresses, self.post)

    def exchange(self, tensors):
        """The same of tensors, where the session's gradients are."""
        self._whole_step(tensors, self.post_tensor)

    def _whole_step(self, posted, post):
        self.open()
        try:
            for layer, one in enumerate(posted):
                post(layer, one)
            self._end_step()
            for there, here in self._moved:
                there.copy_(here)
            self._moved = []
            self._carrier.refill()
        except GradwireError as error:
            self._error = self._named(error)
            raise self._error from None

    def fail(self, error):
        """Ends the session with an error from outside, such as a failed refresh: every later step raises it."""
        self._error = self._error or error

    @property
    def carrier(self):
        return self._carrier

    def live(self):
        if self._error is not None:
            raise GradwireError(f"an earlier step failed: {self._error}", getattr(self._error, "status", 0))

    # ---- state ----

    def _feedback(self):
        return lib.gw_step_feedback(self._step)

    @property
    def number(self):
        return lib.gw_step_number(self._step)

    def set_number(self, number):
        """Of the next step. All ranks."""
        lib.gw_step_set_number(self._step, number)
        self._agree()

    def save(self):
        self.live()
        why, size = Why(), c_size_t()
        check(lib.gw_feedback_save_bytes(self._feedback(), byref(size), byref(why)), why)
        blob = torch.empty(size.value, dtype=torch.uint8)
        check(lib.gw_feedback_save(self._feedback(), blob.data_ptr(), size.value, byref(size), byref(why)), why)
        return blob

    def save_levels(self):
        """What choosing needs to go on."""
        why, size = Why(), c_size_t()
        check(self._choosing("save_bytes")(self._step, byref(size), byref(why)), why)
        blob = torch.empty(size.value, dtype=torch.uint8)
        check(self._choosing("save")(self._step, blob.data_ptr(), size.value, byref(size), byref(why)), why)
        return blob[:size.value]

    def check_world(self, world):
        """Whether what so many ranks saved can be loaded. It can."""

    def norm_of(self, residuals):
        """Of what one rank saved. Fails if that is damaged."""
        why, norm, blob = Why(), c_double(), residuals.contiguous()
        check(lib.gw_feedback_checkpoint_norm(blob.data_ptr(), blob.numel(), byref(norm), byref(why)), why)
        return norm.value

    def load(self, world, number, blobs, levels=None, some_lost=False):
        """All ranks. `blobs` by old rank. `some_lost`: on all ranks, if the blobs that any rank inherits are not all there."""
        held = [blobs[r].contiguous() for r in heirs(world, self.ranks, self.rank) if r in blobs]
        array, why, told = (Blob * max(len(held), 1))(*[Blob(b.data_ptr(), b.numel()) for b in held]), Why(), Told()
        take = lib.gw_feedback_load_surviving if some_lost else lib.gw_feedback_load

        def phase():
            other = self._is_warm(number) != self._warm
            if other and self.chooses:
                raise GradwireError(f"the state is of step {number}, in the warm-up, and levels are being chosen already: detach, attach "
                                    "again, then load")
            lib.gw_step_set_number(self._step, number)
            if other:
                self._plan_layers()
            return other

        def choices():
            if levels is not None and self.chooses:
                check(self._choosing("load")(self._step, levels.data_ptr(), levels.numel(), byref(why)), why)

        if say_together(self.group, phase, "load"):
            self._agree()
            self._begin_choosing()
        say_together(self.group, choices, "load")
        self._agree()
        say_together(self.group, lambda: check(take(self._feedback(), world, array, len(held), byref(told), byref(why)), why), "load")
        return told.text.decode("utf-8", "replace")

    # ---- a gradient beside what was loaded ----

    def measured(self):
        return [self]

    def compare(self, lost):
        """From now on gradients are measured, until `lost` has one."""
        self._compared, self._squares = lost, 0.0

    def measure(self, gradient):
        if self._compared is not None:
            self._squares += float(torch.linalg.vector_norm(gradient.detach(), dtype=torch.float64)) ** 2

    def _measured_step(self, number):
        if self._compared is not None:
            self._compared = None if self._compared.add(self, number, self._squares) else self._compared
            self._squares = 0.0

    # ---- statistics ----

    def card_bytes(self):
        """What the busiest node's network card will send in a step, at most, and what DDP's ring would; 0 on one node."""
        card, ring, why = c_uint64(), c_uint64(), Why()
        check(lib.gw_step_card_bytes(self._step, byref(card), byref(ring), byref(why)), why)
        return card.value, ring.value

    def where(self):
        on_device = self.device is not None
        return {"device": str(self.device.torch) if on_device else "cpu",
                "nodes": len(set(self.node_of)), "coding": "gpu" if on_device and self.device.cuda is not None else "cpu",
                "carrier": "nccl" if self._device_comm is not None else self._carrier.backend}

    def layer_stats(self, layer):
        stats = LayerStats()
        lib.gw_step_stats(self._step, layer, byref(stats))
        return stats

    def last_choice(self):
        """How often was chosen, and what came of the last time."""
        n = c_uint64()
        if self.chooser == "auto":
            decision = AutoDecision()
            check(lib.gw_step_auto_last(self._step, byref(n), byref(decision)), Why())
            return {"decisions": n.value, "reason": lib.gw_auto_reason_name(decision.reason).decode() if n.value else None,
                    "outcome": lib.gw_auto_outcome_name(decision.outcome).decode() if n.value else None,
                    "words": decision.text.decode("utf-8", "replace"),
                    **{name: getattr(decision, name) for name in ("step", "bound_at", "predicted_seconds", "dense_seconds", "bytes",
                                                                  "dense_bytes", "alpha", "budget", "error", "noise_ratio")}}
        decision = Decision()
        check(lib.gw_step_adapt_last(self._step, byref(n), byref(decision)), Why())
        return {"decisions": n.value, "bytes": decision.bytes, "uniform_bytes": decision.uniform_bytes,
                "error": decision.error, "budget": decision.budget, "words": decision.text.decode("utf-8", "replace")}

    def tell_loss(self, loss):
        check(lib.gw_step_auto_loss(self._step, float(loss)), Why())

    def spec_of(self, layer):
        params, route = Params(), Route()
        check(lib.gw_step_planned(self._step, layer, byref(params), byref(route)), Why())
        return print_params(params) if params.codec else "dense"

    def stats_of_layers(self):
        found = []
        for i, layer in enumerate(self.layers):
            s = self.layer_stats(i)
            arrived = s.step != 2**64 - 1
            found.append({"name": layer.name, "elements": layer.elements, "spec": self.spec_of(i), "route": layer.route,
                          "step": s.step if arrived else None, "posted_ms": 1e3 * s.posted, "begun_ms": 1e3 * s.begun,
                          "arrived_ms": 1e3 * s.arrived, "encode_ms": 1e3 * s.encode_seconds,
                          "decode_ms": 1e3 * s.decode_seconds, **counts(s.bytes_sent, s.dense_bytes_sent), "together": bool(s.fused), "copy_ms": 1e3 * s.copy_seconds,
                          "coded_on": " and ".join(name for bit, name in ((1, "cpu"), (2, "gpu")) if s.coded_on & bit)})
        return found
