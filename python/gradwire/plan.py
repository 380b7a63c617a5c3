"""Which codec and which route every layer takes: from a spec, from rules by name, or from a plan file."""

import fnmatch
import os

from ctypes import POINTER, byref, c_char_p, c_uint32, c_uint64

from .library import DEVICE_CPU, DEVICE_GPU, ERR_UNSUPPORTED, FLAG_ROUNDS, FLAG_WANTS_FEEDBACK, OK, GradwireError, PlanFile, Why
from .library import check, files, lib, parse_adapt, parse_auto, parse_params, parse_route, print_params


class Layer:
    """A parameter: its name, its dims in the order of memory, how it goes."""

    def __init__(self, name, dims, dtype, elements):
        self.name, self.dims, self.dtype, self.elements = name, dims, dtype, elements
        self.spec, self.route = None, None  # no route: the usual one
        self.coder = ""  # "@gpu": where a route that does not say codes

    def go(self, spec, route=None):
        self.spec, self.route = None if spec in (None, "dense") else fitted(spec, self.dims), route
        if route is None:
            return
        if self.spec is not None and not set(route) & set("@:") and "dense" not in route:  # a name, of a route that codes
            self.route += self.coder
        parse_route(self.route)


def fitted(spec, dims):
    """The spec with what a tensor's dims decide: adacomp's bin."""
    params = parse_params(spec, dims)
    return spec if lib.gw_params_equal(byref(params), byref(parse_params(spec))) else print_params(params)


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
    steps = steps or 0
    codec = check_warmup(steps, codec, what)
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
        return follow(layers, what, device)
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

def follow(layers, path, device=None):
    """Gives layers the codecs and routes of a plan file, and returns the Wire: its buckets and order. A plan for another model, or that
    cannot run here, is refused."""
    library, plan, why, n = files(), POINTER(PlanFile)(), Why(), len(layers)
    check(library.gw_plan_read(os.fsencode(path), byref(plan), byref(why)), why)
    try:
        names, elements = (c_char_p * n)(*(layer.name.encode() for layer in layers)), (c_uint64 * n)(*(layer.elements for layer in layers))
        order, buckets = (c_uint32 * n)(), (c_uint32 * n)()
        devices = DEVICE_CPU | (DEVICE_GPU if device is not None and device.cuda is not None else 0)
        if lib.gw_plan_runs_on(plan, devices, byref(why)) != OK:
            reason = "this model's gradients lie on the CPU" if device is None else device.why
            raise GradwireError(f"{why.text.decode()} ({reason})", ERR_UNSUPPORTED)
        check(lib.gw_plan_match(plan, names, elements, n, order, buckets, byref(why)), why)
        for i, at in enumerate(order):
            tensor = library.gw_plan_file_at(plan, i).contents
            spec = tensor.spec.decode()
            layers[at].spec, layers[at].route = None if spec == "dense" else spec, tensor.along.decode()
    finally:
        library.gw_plan_file_free(plan)
    return Wire(list(order), list(buckets))
