"""gradwire: gradients on the wire in few bytes.

    import gradwire
    gradwire.attach(ddp, "natural:bits=8")

docs/pytorch.md is the manual.
"""

import atexit
import datetime
import sys

from . import plan as _plan
from .library import VERIFY_NEVER, GradwireError, compression, counts, version

__all__ = ["AdamW", "Checkpoint", "GradwireError", "attach", "detach", "load_state_dict", "profile", "state_dict", "stats", "summary",
           "tell_loss", "verify", "version"]

_attached = []  # in the order of attach


def __getattr__(name):
    """AdamW is a class of torch's, which is not imported before it is needed."""
    if name == "AdamW":
        _need_torch()
        from .adamw import AdamW

        return AdamW
    raise AttributeError(f"module 'gradwire' has no attribute '{name}'")


def _need_torch():
    """For functions that then import modules of ours that import torch."""
    try:
        from torch import distributed as dist
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError("gradwire.attach and gradwire.profile need PyTorch, and this Python has none: 'pip install torch', or run the "
                          f"script with the Python that has it (this one is {sys.executable})") from None
    if not dist.is_available():
        raise ImportError("this PyTorch was built without torch.distributed: install one that has it, such as 'pip install torch' for Linux")


class _Attached:
    def __init__(self, model, hook, session, what, quiet):
        self.model, self.hook, self.session, self.what, self.quiet = model, hook, session, what, quiet


def _unwrap(model):
    """torch.compile wraps a module; the one inside has the hooks."""
    return getattr(model, "_orig_mod", model)


def attach(model, what="natural:bits=8", *, route=None, rules=None, dense_below=16384, seed=0, timeout=1800.0, lanes=0,
           threads=0, piece=None, scaler=None, residual=None, replicas=None, writer=None, quiet=False,
           payloads="host", verify_every=50, node=None, attach_timeout=45.0, warmup=None, warmup_codec=None, optimizer=None):
    """From now on the model's gradients go through gradwire. All ranks call it, with the same arguments.

    what         a codec ("natural:bits=8", "adacomp", "dense", ...), a plan file (.json), whose buckets and order are run too, "adapt/dither:bits=4": every layer its
                 own level of the codec, chosen again and again at no more error than this one everywhere, or "auto": every layer's
                 codec and route, planned from measured steps and links and watched (docs/auto.md)
    route        of compressed layers ("sra", "gather", ...); by default the codec's usual one. Where nodes have several ranks that is
                 uncompressed inside a node, and compressed once between nodes
    rules        {pattern of parameter names: codec}, the last that fits counts: {"embed.*": "topk", "head.*": "dense"}
    dense_below  layers of fewer elements go together, uncompressed; so do vectors (biases, norms) of any size
    threads      for coding; 0: of DDP's gradients as many as this rank's cores leave beside torch's own threads, 1 to 4
    piece        elements from which a tensor is cut, to overlap coding and wire. By default 2 Mi, more than elsewhere, since a message
                 costs more here; with a plan file as the planner counts on (docs/step.md, "Pieces")
    timeout      seconds without an answer from another rank before it counts as gone
    scaler       a GradScaler: residuals follow its scale, and stay as they were in a step that it skips
    residual     "full": allows codecs with feedback under fully_shard, at the price of a full-size residual a rank
    replicas     of a fully_shard module, the group of ranks that hold the same shards (hybrid sharding): gradients are
                 averaged over it too, compressed
    writer       a SummaryWriter of TensorBoard's
    payloads     of DDP on CUDA devices: "host": payloads go through host memory and gloo; "nccl": what is coded on the device, and
                 sums, go from device to device by NCCL, one rank a device
    node         this rank's node by name, the same for ranks of one machine; by default boot id and network namespace tell
    verify_every steps after which ranks compare hashes of the means they have had (docs/trust.md); None: never, and nothing is hashed
    attach_timeout  seconds that ranks wait for each other to call attach; then it fails, and names the missing ranks
    warmup       the first steps, of the run's step number, in which layers that `what` compresses are sent by warmup_codec. By default
                 none; with optimizer= until the variance has settled
    warmup_codec "dense", or a codec that keeps no residuals ("dither:bits=4", the default with optimizer=)
    optimizer    the model's torch.optim.AdamW. Layers whose codec keeps residuals then exchange momenta instead of gradients, so that
                 codecs such as "adacomp" train as well as with SGD (docs/adam.md)
    """
    _need_torch()
    model = _unwrap(model)
    if any(a.model is model for a in _attached):
        raise GradwireError("this model is attached already: detach it first")
    if optimizer is None:
        warmup = 0 if warmup is None else warmup
    warmup_codec = warmup_codec or ("dense" if optimizer is None else "dither:bits=4")
    if piece is None:
        piece = 0 if _plan.is_file(what) else 1 << 21
    options = dict(seed=seed, timeout=datetime.timedelta(seconds=timeout), lanes=lanes, threads=threads, piece=piece, node=node,
                   verify_every=VERIFY_NEVER if verify_every is None else int(verify_every))
    from . import ddp

    ddp.check_kind(model)
    if hasattr(model, "set_custom_reduce_scatter"):
        from . import fsdp

        if route is not None or scaler is not None:
            raise GradwireError("route= and scaler= are for DDP: a shard's route is half of sra")
        if payloads != "host":
            raise GradwireError("payloads= is for DDP: shards are coded on the CPU")
        if _plan.chooser(what) is not None:
            raise GradwireError("levels are chosen under DDP only: give fully_shard one codec")
        if optimizer is not None:
            raise GradwireError("optimizer= is for DDP: every rank keeps a momentum of the whole model, which fully_shard is there to avoid")
        hook = fsdp.Fsdp(model, what, rules, dense_below, residual, replicas, attach_timeout, (warmup, warmup_codec), options)
        attached = _Attached(model, hook, hook, what, quiet)
    else:
        if replicas is not None:
            raise GradwireError("replicas= is for fully_shard")
        attached = _attach_ddp(model, what, route, rules, dense_below, scaler, residual, quiet, payloads, attach_timeout,
                               (warmup, warmup_codec), optimizer, options)
    if not _attached:
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)  # now: it must run before what torch registers when it is imported
    _attached.append(attached)
    _warn_of_more_bytes(attached)
    if writer is not None:
        _write_scalars(attached, writer)
    return model


def _attach_ddp(model, what, route, rules, dense_below, scaler, residual, quiet, payloads, attach_timeout, warmup, optimizer, options):
    import torch.distributed as dist

    from . import ddp, device
    from .groups import alike, gather, meet, say_together
    from .session import Session

    if residual is not None:
        raise GradwireError("residual= is for fully_shard; with DDP codecs that want feedback always have it")
    ddp.check_module(model)

    def prepare():
        layers, parameters = ddp.layers_of(model)
        where = device.of(parameters, [layer.name for layer in layers])
        device.check_payloads(payloads, where)
        for layer in layers:
            layer.coder = "@gpu" if where is not None else ""
        wire = _plan.choose(layers, what, route, rules, dense_below, where)
        adam = None if optimizer is None else _make_adam(optimizer, model, layers, parameters, what, warmup, quiet)
        return layers, parameters, ddp.hook_of(model), where, wire, _plan.warmup(*warmup, what) if adam is None else adam, adam

    group = model.process_group
    meet(group, attach_timeout)
    layers, parameters, hook, where, wire, phase, adam = say_together(group, prepare)
    alike(group, "(optimizer is given)", optimizer is not None)
    alike(group, "(warmup, warmup_codec)", warmup)
    reasons = gather(group, where.why if where is not None else None)
    if dist.get_rank(group) == 0:
        device.warn(reasons)
    # a plan decides for small layers too; else they go together
    fuse_below = 0 if _plan.is_file(what) else dense_below
    session = Session(layers, group, fuse_below=fuse_below, scaler=scaler, device=where, chooser=_plan.chooser(what), spec=what,
                      payloads=payloads, wire=wire, warmup=phase, all_or_nothing=adam is not None, **options)
    if adam is not None:
        adam.use(session, attach_timeout, {"device": where, "payloads": payloads, **options})
    hook.use(session, parameters)
    return _Attached(model, hook, session, what, quiet)


def _make_adam(optimizer, model, layers, parameters, what, warmup, quiet):
    """None if no layer's codec keeps residuals: torch's own Adam is then right."""
    from . import adam

    adam.check_optimizer(optimizer)
    if _plan.chooser(what) or _plan.is_file(what):
        raise GradwireError(f"optimizer= takes one codec, such as \"adacomp\", and rules=, not {what!r}")
    if not any(adam.is_converted(layer) for layer in layers):
        return None
    steps, codec = warmup
    codec = _plan.check_warmup(1 if steps is None else steps, codec, what)
    if steps == 0:
        raise GradwireError("warmup=0: with optimizer= compression needs a variance, and so a warm-up; leave warmup= out, and it ends by itself")
    return adam.Adam(optimizer, model, layers, parameters, steps, codec, quiet)


def _warn_of_more_bytes(attached):
    """Before training: a route by which a network card sends more than DDP would."""
    session = attached.session
    if session.rank != 0:
        return
    card, ring = session.card_bytes()
    if card > 1.01 * ring + 4096:  # a ring's pieces differ by an element
        print(f"gradwire: {attached.what} sends up to {card / 1e6:.2f} MB/step through a node's network card along this route; DDP sends "
              f"{ring / 1e6:.2f} in this model's dtype: take a codec that sends less, or name no route", file=sys.stderr)


def _find(model):
    if model is None:
        if len(_attached) != 1:
            raise GradwireError(f"{len(_attached)} models are attached: say which")
        return _attached[0]
    for attached in _attached:
        if attached.model is _unwrap(model):
            return attached
    raise GradwireError("this model is not attached")


def detach(model=None):
    """Gradients go as they would without us. What residuals hold is lost: save state_dict() first, to attach again. With optimizer= it
    goes into the optimizer's momentum, if all ranks call this within attach_timeout of each other."""
    attached = _find(model)
    _attached.remove(attached)
    _say(attached)
    attached.hook.stop()
    if attached.session.adam is not None:
        attached.session.adam.release()
    attached.session.close()


def verify(model=None):
    """All ranks, between steps: raises on every rank if replicas have had different means since they were last compared, with the first
    layer that differs and the ranks. Ranks also compare by themselves: verify_every of attach. docs/trust.md"""
    _find(model).session.verify()


# ---- state ----

def state_dict(model=None):
    """Residuals and step number of this rank, by parameter name. Every rank saves its own. Refused once a step has failed."""
    session = _find(model).session
    from . import state

    return state.made_by(session)


def load_state_dict(state, model=None, *, missing="error"):
    """All ranks. `state` is what this rank saved; or, if the number of ranks was another, a list of all ranks' states,
    which are dealt out so that nothing is lost. Returns what was done, in words.

    missing   "drop": go on without the states that are gone with their machines. They are left out of the list, or are None. Their
              residuals begin at zero, and all others are kept. One line says whose were lost, and how large the others are compared
              with the next gradient; stats()["lost"] has the same. A damaged state is an error: leave it out to drop it
    """
    attached = _find(model)
    from . import state as _state

    return _state.load(attached.session, lambda: state, missing, attached.quiet)


class Checkpoint:
    """For torch.distributed.checkpoint: dcp.save({"gradwire": gradwire.Checkpoint(ddp), ...}), and the same with dcp.load, also on
    another number of ranks. Every rank's state is saved. Each rank reads only the states that it takes over."""

    def __init__(self, model=None):
        self._attached = _find(model)

    def state_dict(self):
        from . import state

        return state.slots(self._attached.session)

    def load_state_dict(self, slots):
        from . import state

        session = self._attached.session
        state.load(session, lambda: state.of_slots(session, slots), "error", self._attached.quiet)


def tell_loss(loss, model=None):
    """After a step, by every rank: lets "auto", and a model with optimizer=, see a loss that diverges, and train without lossy
    compression until it is back."""
    session = _find(model).session
    if session.adam is not None:
        session.adam.tell_loss(loss)
    elif session.chooser == "auto":
        session.tell_loss(loss)
    else:
        raise GradwireError("only \"auto\" and attach(…, optimizer=) look at the loss")


# ---- statistics ----

def stats(model=None, layers=False):
    """What was sent and what it cost, by this rank, in all steps since attach; where gradients lie (`device`) and may be coded
    (`coding`), and what carries payloads (`carrier`). With `layers` also each layer's last step.

    `bytes_sent` counts all links, `far_bytes_sent` those to other nodes. `dense_bytes` and `far_dense_bytes` are this rank's part of what
    DDP sends along a ring, in this model's dtype. `ratio` is the compression that a network card sees: far_dense_bytes / far_bytes_sent, or
    dense_bytes / bytes_sent where nothing goes to other nodes."""
    attached = _find(model)
    totals = attached.session.totals
    found = {"steps": totals.steps, "skipped": totals.skipped, **counts(totals.bytes_sent, totals.dense_bytes_sent),
             "encode_seconds": totals.encode_seconds,
             "decode_seconds": totals.decode_seconds, "exchange_seconds": totals.exchange_seconds,
             "ratio": compression(totals.bytes_sent, totals.dense_bytes_sent),
             **attached.session.where()}
    if attached.session.chooses:
        found[attached.session.chooser] = attached.session.last_choice()
    if attached.session.adam is not None:
        found["adam"] = attached.session.adam.stats()
    elif attached.session.warmup is not None:
        found["warmup"] = attached.session.warmup.stats(attached.session.number)
    if attached.session.lost is not None:
        found["lost"] = attached.session.lost.stats()
    if layers:
        found["layers"] = attached.session.stats_of_layers()
    return found


def summary(model=None):
    """One line."""
    attached = _find(model)
    s, session = stats(attached.model), attached.session
    n = max(s["steps"], 1)
    elements = sum(layer.elements for layer in session.layers)
    nodes = "1 node" if s["nodes"] == 1 else f"{s['nodes']} nodes"
    links = {"inside the node": (s["bytes_sent"] - s["far_bytes_sent"], s["dense_bytes"] - s["far_dense_bytes"]),
             "to other nodes": (s["far_bytes_sent"], s["far_dense_bytes"])}
    sent = [f"{1e-6 * own / n:.2f} MB/step {where} (DDP: {1e-6 * ring / n:.2f})" for where, (own, ring) in reversed(links.items()) if own or ring]
    return (f"gradwire: {attached.what}, {elements / 1e6:.1f} M parameters, {session.ranks} ranks on {nodes}, {s['steps']} steps: "
            f"rank {session.rank} sent {' and '.join(sent) or 'nothing'}, compression {s['ratio']:.1f}x of DDP's bytes "
            f"{'to other nodes' if s['far_dense_bytes'] else 'inside the node'}, encode {1e3 * s['encode_seconds'] / n:.1f} ms, "
            f"decode {1e3 * s['decode_seconds'] / n:.1f} ms/step" + (f", {s['skipped']} skipped" if s["skipped"] else ""))


def _say(attached):
    if not attached.quiet and attached.session.rank == 0 and attached.session.totals.steps:
        _attached.append(attached)
        print(summary(attached.model), file=sys.stderr)
        if attached.session.where()["device"] == "cpu" and getattr(attached.model, "gradient_as_bucket_view", None) is False:
            print("gradwire: DDP copied every gradient into a bucket and back, on the processor; DistributedDataParallel(..., "
                  "gradient_as_bucket_view=True) does not", file=sys.stderr)
        _attached.remove(attached)


def _at_exit():
    for attached in list(_attached):
        _say(attached)
        attached.session.rest()


def _write_scalars(attached, writer):
    if attached.session.rank != 0:
        return

    def write(result):
        step = attached.session.totals.steps
        writer.add_scalar("gradwire/megabytes_sent", sum(result.bytes_sent) / 1e6, step)
        writer.add_scalar("gradwire/megabytes_to_other_nodes", result.bytes_sent[1] / 1e6, step)
        writer.add_scalar("gradwire/ratio", compression(result.bytes_sent, result.dense_bytes_sent), step)
        writer.add_scalar("gradwire/encode_ms", 1e3 * result.encode_seconds, step)
        writer.add_scalar("gradwire/decode_ms", 1e3 * result.decode_seconds, step)
        writer.add_scalar("gradwire/non_finite_layers", result.non_finite, step)

    attached.session.on_step.append(write)


def profile(model, steps=20, path="job.json", **about):
    """Records when each gradient is ready and writes the job file: see gradwire.job."""
    _need_torch()
    from . import job

    return job.profile(model, steps, path, **about)
