"""fully_shard (FSDP2): a compressed reduce-scatter, by its socket for custom communication.

FSDP hands over the gradients of one group of parameters as rows, one a rank: row r has everyone's part of each
parameter that r will keep, padded to equal lengths. Each compressed parameter becomes a layer whose pieces are those
parts, the others together one uncompressed layer; every layer goes half a route, encode · flat:alltoall · decode.
Rows come in the policy's reduce_dtype, and are posted in it.
"""

import functools
import math

import torch
import torch.distributed as dist
from ctypes import byref

from . import plan
from .ddp import clean
from .groups import alike, gather, meet, say_together
from .library import FLAG_ROUNDS, FLAG_WANTS_FEEDBACK, GradwireError, lib, parse_params
from .session import DTYPES, SHARDED, Session, Totals, make_carrier


class Part:
    """A parameter of a group: its name, how it goes, and where its part stands in a row."""

    def __init__(self, layer, chunk, at):
        self.layer, self.chunk, self.at = layer, chunk, at


def groups_of(module):
    """Parameter groups of all FSDP modules inside, each once, in the order of modules."""
    found = []
    for inner in module.modules():
        if not hasattr(inner, "set_custom_reduce_scatter"):
            continue
        state = inner._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [g for g in (getattr(state, "_fsdp_param_group", None),) if g is not None]
        if len(groups) > 1:
            raise GradwireError("parameters of one module on several meshes are not supported")
        if groups and all(g is not groups[0] for _, g in found):
            found.append((inner, groups[0]))
    if not found:
        raise GradwireError("no parameters are sharded here: call fully_shard first")
    return found


def dtype_of(group):
    """In which FSDP reduces the group's gradients. Without a reduce_dtype some versions of torch take the parameters' own type and
    some the type of computing: the wider one holds both."""
    found = set()
    for p in (p for p in group.fsdp_params if p.sharded_param.requires_grad):
        policy, own = getattr(p, "mp_policy", None) or group.mp_policy, p.sharded_param.dtype
        found.add(policy.reduce_dtype or torch.promote_types(policy.param_dtype or own, own))
    dtype = functools.reduce(torch.promote_types, found, next(iter(found), torch.float32))
    if dtype not in DTYPES:
        raise GradwireError(f"gradients are reduced in {dtype}; float32, float16 and bfloat16 are supported")
    return dtype


def parts_of(group, names, world):
    """Only parameters with gradients are in a row, in the group's order."""
    parts, at, dtype = [], 0, dtype_of(group)
    for p in group.fsdp_params:
        if not p.sharded_param.requires_grad:
            continue
        size = p._orig_size
        rows = size[0] if len(size) else 1
        name = names.get(id(p.sharded_param)) or p._param_fqn
        chunk = (-(-rows // world) * (size.numel() // rows if rows else 0))
        layer = plan.Layer(name, tuple(size), dtype, size.numel())
        parts.append(Part(layer, chunk, at))
        at += chunk
    return parts, at


class ReduceScatter:
    """What FSDP calls for one group."""

    def __init__(self, owner, parts, row, group, carrier, options):
        self.parts, self.row, self.world, self.rank = parts, row, dist.get_world_size(group), dist.get_rank(group)
        self.coded = [p for p in parts if p.layer.spec is not None]
        self.plain = [p for p in parts if p.layer.spec is None]
        self.dtype = parts[0].layer.dtype
        self._owner, layers, self._staging = owner, [], []
        warm = options["warmup"].spec if options["warmup"] is not None else None
        for part in self.coded:
            grain = math.lcm(*(max(lib.gw_codec_grain(byref(parse_params(spec))), 1) for spec in (part.layer.spec, warm) if spec))
            width = -(-part.chunk // grain) * grain
            layers.append(self._stage(part.layer.name, part.layer.spec, "sra", width))
        if self.plain:
            width = sum(p.chunk for p in self.plain)
            layers.append(self._stage(self.plain[0].layer.name + " and others", None, SHARDED, width))
        self.session = Session(layers, group, fuse_below=0, sharded=True, total=True, carrier=carrier, **options)

    def _stage(self, name, spec, route, width):
        self._staging.append(torch.zeros(self.world, width, dtype=self.dtype))
        layer = plan.Layer(name, (self.world, width), self.dtype, self.world * width)
        layer.spec, layer.route = spec, route
        return layer

    def _places(self):
        """(buffer, its columns, columns of a row) of every part."""
        for buffer, part in zip(self._staging, self.coded):
            yield buffer, slice(0, part.chunk), slice(part.at, part.at + part.chunk)
        at = 0
        for part in self.plain:
            yield self._staging[-1], slice(at, at + part.chunk), slice(part.at, part.at + part.chunk)
            at += part.chunk

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        if input_tensor.numel() != self.world * self.row:
            raise GradwireError(f"'{self.parts[0].layer.name}' and others: some parameter has no gradient in this step: "
                                "set_reduce_scatter_unused_params(True)")
        if torch.promote_types(input_tensor.dtype, self.dtype) != self.dtype:
            raise GradwireError(f"'{self.parts[0].layer.name}' and others: reduced in {input_tensor.dtype}, attached for {self.dtype}")
        divisor = self._divisor(op)
        rows = input_tensor.view(self.world, self.row)
        for buffer, there, here in self._places():
            buffer[:, there].copy_(rows[:, here])
        for buffer in self._staging:
            self.session.measure(buffer)
        self.session.run([buffer.data_ptr() for buffer in self._staging])
        for buffer, there, here in self._places():
            output_tensor[here].copy_(buffer[self.rank, there] if divisor == 1 else buffer[self.rank, there] / divisor)
        return None

    def _divisor(self, op):
        if op == dist.ReduceOp.AVG:
            return self.world
        if op == dist.ReduceOp.SUM:
            return 1
        raise GradwireError(f"reduce-scatter by {op} is not supported: sums and means are")


class AllReduce:
    """Hybrid sharding: what FSDP calls with a group's shard, to be averaged over the replicas."""

    def __init__(self, parts, row, replicas, carrier, options):
        layers = []
        for part in parts:
            if part.chunk:
                layer = plan.Layer(part.layer.name, (part.chunk,), part.layer.dtype, part.chunk)
                layer.spec = part.layer.spec
                layers.append(layer)
        self._staging = torch.empty(row, dtype=parts[0].layer.dtype)
        self._at = [part.at for part in parts if part.chunk]
        self.session = Session(layers, replicas, fuse_below=0, carrier=carrier, **options)

    def __call__(self, reduce_output):
        self._staging.copy_(reduce_output)
        begin = self._staging.data_ptr()
        self.session.run([begin + self._staging.element_size() * at for at in self._at])
        reduce_output.copy_(self._staging)


class Fsdp:
    """All of an attached module. To others it looks like one session."""

    adam = None
    chooser, chooses = None, False  # every group of layers would have a budget of its own
    lost = None

    def __init__(self, module, what, rules, dense_below, residual, replicas, attach_timeout, warmup, options):
        found = groups_of(module)
        self.group = found[0][1].mesh_info.shard_process_group
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        names = {id(p): clean(name) for name, p in module.named_parameters()}
        self.device = next(module.parameters()).device
        self.layers, all_parts = [], []
        for _, group in found:
            all_parts.append(parts_of(group, names, self.ranks))
            self.layers += [part.layer for part in all_parts[-1][0]]
        meet(self.group, attach_timeout)
        options["warmup"] = self.warmup = say_together(self.group, lambda: self._choose(what, rules, dense_below, residual, warmup))
        alike(self.group, "(warmup, warmup_codec)", warmup)
        node = options.pop("node")
        options["threads"] = options["threads"] or 1
        self._carriers = [make_carrier(self.group, options["timeout"], node)]
        if replicas is not None:
            self._carriers.append(make_carrier(replicas, options["timeout"], node))
        self._modules, self._scatters, self._sums = [], [], []
        for (inner, _), (parts, row) in zip(found, all_parts):
            if not parts:
                continue
            self._modules.append(inner)
            self._scatters.append(ReduceScatter(self, parts, row, self.group, self._carriers[0], options))
            inner.set_custom_reduce_scatter(self._scatters[-1])
            if replicas is not None:
                self._sums.append(AllReduce(parts, row, replicas, self._carriers[1], options))
                inner.set_all_reduce_hook(self._sums[-1])

    def _choose(self, what, rules, dense_below, residual, warmup):
        if plan.is_file(what):
            raise GradwireError("a plan file is for DDP: its routes end with everyone's gradients")
        plan.choose(self.layers, what, None, rules, dense_below)
        for layer in self.layers:
            if layer.spec is None:
                continue
            flags = lib.gw_params_flags(byref(parse_params(layer.spec)))
            if flags & FLAG_ROUNDS:
                raise GradwireError(f"'{layer.name}': {layer.spec} works on whole matrices, which fully_shard cuts")
            if flags & FLAG_WANTS_FEEDBACK and residual != "full":
                cost = sum(l.elements for l in self.layers if l.spec is not None) * 8 / 1e6
                raise GradwireError(f"'{layer.name}': {layer.spec} needs a residual of full size on every rank: "
                                    f"{cost:.1f} MB for this model; residual=\"full\" if that is wanted")
        return plan.warmup(*warmup, what)

    # ---- as one session ----

    @property
    def _sessions(self):
        return [s.session for s in self._scatters + self._sums]

    @property
    def totals(self):
        total = Totals()
        for session in self._sessions:
            for name, value in vars(session.totals).items():
                before = getattr(total, name)
                both = [a + b for a, b in zip(before, value)] if isinstance(value, list) else before + value
                setattr(total, name, max(before, value) if name == "steps" else both)
        return total

    def card_bytes(self):
        return [sum(both) for both in zip(*(session.card_bytes() for session in self._sessions))]

    def where(self):
        return {**self._scatters[0].session.where(), "device": str(self.device)}

    @property
    def on_step(self):
        return self._scatters[0].session.on_step

    @property
    def number(self):
        return self._scatters[0].session.number

    def save(self):
        return [(session.number, session.save()) for session in self._sessions]

    def verify(self):
        if not self._sums:
            raise GradwireError("no two ranks have the same shard: there is nothing to compare without replicas=")
        for all_reduce in self._sums:
            all_reduce.session.verify()

    def check_world(self, world):
        if world != self.ranks:
            raise GradwireError(f"saved by {world} ranks, loaded by {self.ranks}: shards of residuals cannot be dealt out anew yet")

    def norm_of(self, residuals):
        """Of what one rank saved; what hybrid sharding keeps of means is only checked."""
        norms = [session.norm_of(blob) for session, (_, blob) in zip(self._sessions, residuals)]
        return sum(norm * norm for norm in norms[:len(self._scatters)]) ** 0.5

    def load(self, world, number, blobs, _levels, some_lost=False):
        own = blobs.get(self.rank)
        numbers = [n for n, _ in own] if own is not None else None
        if some_lost:  # ranks are in the same step
            numbers = next(n for n in gather(self.group, numbers) if n is not None)
        for i, session in enumerate(self._sessions):
            session.load(session.ranks, numbers[i], {session.rank: own[i][1]} if own is not None else {}, some_lost=some_lost)
        return f"{len(self._sessions)} groups loaded"

    def measured(self):
        return [s.session for s in self._scatters]

    def stats_of_layers(self):
        return [layer for session in self._sessions for layer in session.stats_of_layers()]

    def stop(self):
        from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter

        for module in self._modules:
            module.set_custom_reduce_scatter(DefaultReduceScatter())
            if self._sums:
                module.set_all_reduce_hook(None)

    def rest(self):
        for carrier in self._carriers:
            carrier.rest()

    def close(self):
        whole = all(session.whole() for session in self._sessions)
        for session in self._sessions:
            session.close()
        for carrier in self._carriers:
            carrier.close(whole)
