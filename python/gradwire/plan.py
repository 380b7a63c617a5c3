"""Which codec and which route every layer takes: from a spec, from rules by name, or from a plan file."""

import fnmatch
import json
import os
import stat

from ctypes import byref

from .library import FLAG_ROUNDS, FLAG_WANTS_FEEDBACK, GradwireError, lib, parse_adapt, parse_auto, parse_params, parse_route


class Layer:
    """A parameter: its name, its dims in the order of memory, how it goes."""

    def __init__(self, name, dims, dtype, elements):
        self.name, self.dims, self.dtype, self.elements = name, dims, dtype, elements
        self.spec, self.route = None, None  # no route: the usual one
        self.coder = ""  # "@gpu": where a route that does not say codes

    def go(self, spec, route=None):
        self.spec, self.route = None if spec in (None, "dense") else with_shape(spec, self.dims), route
        if self.spec is not None:
            parse_params(self.spec)
        if route is None:
            return
        if self.spec is not None and not set(route) & set("@:") and "dense" not in route:  # a name, of a route that codes
            self.route += self.coder
        parse_route(self.route)


def with_shape(spec, dims):
    """adacomp's bins are 50 for convolutions and 500 for others, unless the spec says."""
    if spec.split(":")[0] == "adacomp" and "bin=" not in spec:
        return spec + ("," if ":" in spec else ":") + f"bin={50 if len(dims) > 2 else 500}"
    return spec


def is_file(what):
    return what.endswith(".json")


def chooser(what):
    """Who chooses levels while training: "adapt" (bytes), "auto" (time and error), or None."""
    name = what.replace("/", ":").split(":")[0]
    return name if name in ("adapt", "auto") else None


class Warmup:
    """The first steps of a run, in which layers that will be compressed are sent dense or by a codec without residuals."""

    def __init__(self, steps, spec):
        self.steps, self.spec = steps, spec  # None: uncompressed

    def on(self, number):
        """Whether step `number` is one of them."""
        return number < self.steps

    def stats(self, number):
        return {"codec": self.spec or "dense", "steps": self.steps, "left": max(0, self.steps - number)}


def check_warmup(steps, codec, what):
    """Of attach's arguments. Returns the codec, None for dense."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise GradwireError(f"warmup={steps!r} is not a number of steps")
    if steps and chooser(what) == "auto":
        raise GradwireError("warmup= is not for \"auto\", which begins with uncompressed steps of its own")
    if chooser(codec) or is_file(codec):
        raise GradwireError(f"warmup_codec={codec!r} is not one codec, such as \"dense\" or \"dither:bits=4\"")
    if codec != "dense" and lib.gw_params_flags(byref(parse_params(codec))) & (FLAG_WANTS_FEEDBACK | FLAG_ROUNDS):
        raise GradwireError(f"warmup_codec={codec!r} keeps residuals; the warm-up is dense, or takes a codec that keeps none: cast, "
                            "natural, dither or ndither")
    return None if codec == "dense" else codec


def warmup(steps, codec, what):
    """The Warmup of attach's arguments, or None."""
    steps = 0 if steps is None else steps
    codec = check_warmup(steps, codec or "dense", what)
    return Warmup(steps, codec) if steps else None


class Wire:
    """The order of the wire, as numbers of layers; and of each layer its bucket's number, from 1, or 0."""

    def __init__(self, order, buckets):
        self.order, self.buckets = order, buckets


def choose(layers, what, route, rules, dense_below, device=None):
    """Fills in spec and route of every layer. Vectors (biases, norms) and small layers stay dense, unless a rule says.
    Returns the Wire of a plan file; None: it is learnt. `device` is where gradients lie, None: on the CPU."""
    if is_file(what):
        if route is not None or rules:
            raise GradwireError("a plan file says all: route and rules cannot stand beside it")
        return follow(layers, read(what), what, device)
    if chooser(what) == "adapt":
        what = parse_adapt(what).uniform.decode()  # to begin with
    if chooser(what) == "auto":
        parse_auto(what)
        if route is not None or rules:
            raise GradwireError("auto finds routes and codecs: route and rules cannot stand beside it")
        what = "dense"  # to begin with
    Layer("", (2, 2), None, 4).go(what, route)  # a wrong spec is one even if no layer is large enough
    matched = set()
    for layer in layers:
        spec = what if len(layer.dims) > 1 and layer.elements >= dense_below else "dense"
        for pattern, of_rule in (rules or {}).items():
            if fnmatch.fnmatchcase(layer.name, pattern):
                spec = of_rule
                matched.add(pattern)
        try:
            layer.go(spec, route if spec not in (None, "dense") else None)
        except GradwireError as error:
            raise GradwireError(f"layer '{layer.name}': {error}", error.status) from None
    missing = set(rules or {}) - matched
    if missing:
        raise GradwireError(f"no parameter is called '{sorted(missing)[0]}'; the first is '{layers[0].name}'")


# ---- plan files ----

def _no_duplicates(pairs):
    found = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key '{key}' stands there twice")
        found[key] = value
    return found


_KEYS = {"name": str, "elements": int, "spec": str, "route": str, "bucket": int}


def _check_keys(path, place, found, known):
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise GradwireError(f"{path}: {place}unknown key '{unknown[0]}'")


def _open_at_once(path, flags):
    """Does not wait for the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def read(path):
    """The tensors of a gradwire.plan/1 file, in wire order: dicts of name, elements, spec, route, bucket."""
    try:
        with open(path, encoding="utf-8", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise GradwireError(f"{path}: not a regular file")
            plan = json.load(file, object_pairs_hook=_no_duplicates)
    except OSError as error:
        raise GradwireError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise GradwireError(f"{path}: {error}") from None
    if not isinstance(plan, dict) or plan.get("format") != "gradwire.plan/1":
        raise GradwireError(f"{path}: format is not gradwire.plan/1")
    _check_keys(path, "", plan, ("format", "job", "cluster", "predicted", "tensors"))
    tensors = plan.get("tensors")
    if not isinstance(tensors, list):
        raise GradwireError(f"{path}: tensors: not a list")
    for i, tensor in enumerate(tensors):
        for key, kind in _KEYS.items():
            if not isinstance(tensor, dict) or type(tensor.get(key)) is not kind:
                raise GradwireError(f"{path}: tensors[{i}].{key}: missing, or of another type")
        _check_keys(path, f"tensors[{i}]: ", tensor, _KEYS)
        before = tensors[i - 1] if i else tensor
        if tensor["bucket"] < max(before["bucket"], 0):
            raise GradwireError(f"{path}: tensors[{i}]: bucket {tensor['bucket']} comes after bucket {before['bucket']}")
        if tensor["bucket"] == before["bucket"] and any(tensor[key] != before[key] for key in ("spec", "route")):
            raise GradwireError(f"{path}: tensors[{i}]: bucket {tensor['bucket']} goes two ways")
    return tensors


def _way(tensor, device):
    """Spec and route as the plan has them; what cannot run here is refused."""
    spec, route = tensor["spec"], parse_route(tensor["route"])
    if chooser(spec):
        raise GradwireError(f"spec '{spec}': a plan has one codec for each tensor; levels are not chosen beside it")
    coded = lib.gw_route_encodes(byref(route)) != 0
    if coded == (spec == "dense"):
        raise GradwireError(f"the route encodes {'something' if coded else 'nothing'}, and the spec is {spec}")
    if coded:
        parse_params(spec)
    if "@gpu" in tensor["route"] and (device is None or device.cuda is None):
        reason = "this model's gradients lie on the CPU" if device is None else device.why
        raise GradwireError(f"it is coded on a GPU, and cannot be here ({reason}): plan with --devices cpu")
    return spec if coded else None


def follow(layers, tensors, path, device=None):
    """A plan is for this model: the same names and sizes, each once. Its buckets and its order are the wire's."""
    number = {layer.name: i for i, layer in enumerate(layers)}
    order, buckets = [], [0] * len(layers)
    for tensor in tensors:
        name, elements = tensor["name"], tensor["elements"]
        at = number.get(name)
        if at is None:
            raise GradwireError(f"{path}: the plan has a tensor '{name}', this model has not: a plan for another model?")
        layer = layers[at]
        if layer.elements != elements:
            raise GradwireError(f"{path}: '{name}' has {elements} elements in the plan, {layer.elements} in this model")
        if buckets[at]:
            raise GradwireError(f"{path}: '{name}' stands there twice")
        try:
            layer.spec, layer.route = _way(tensor, device), tensor["route"]
        except GradwireError as error:
            raise GradwireError(f"{path}: '{name}': {error}", error.status) from None
        joins = order and tensors[len(order) - 1]["bucket"] == tensor["bucket"]
        buckets[at] = buckets[order[-1]] if joins else at + 1
        order.append(at)
    missing = [layer.name for i, layer in enumerate(layers) if not buckets[i]]
    if missing:
        raise GradwireError(f"{path}: the plan says nothing of '{missing[0]}' ({len(missing)} such): "
                            "a plan for another model?")
    return Wire(order, buckets)
