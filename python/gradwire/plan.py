"""Which codec and which route every layer takes: from a spec, from rules by name, or from a plan file."""

import fnmatch
import json

from .library import GradwireError, parse_adapt, parse_auto, parse_params, parse_route


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


def choose(layers, what, route, rules, dense_below):
    """Fills in spec and route of every layer. Vectors (biases, norms) and small layers stay dense, unless a rule says."""
    if is_file(what):
        if route is not None or rules:
            raise GradwireError("a plan file says all: route and rules cannot stand beside it")
        return follow(layers, read(what), what)
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


def read(path):
    """The tensors of a gradwire.plan/1 file, in wire order: [(name, elements, spec, route)]."""
    try:
        with open(path, encoding="utf-8") as file:
            plan = json.load(file, object_pairs_hook=_no_duplicates)
    except OSError as error:
        raise GradwireError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise GradwireError(f"{path}: {error}") from None
    if not isinstance(plan, dict) or plan.get("format") != "gradwire.plan/1":
        raise GradwireError(f"{path}: format is not gradwire.plan/1")
    tensors = plan.get("tensors")
    if not isinstance(tensors, list):
        raise GradwireError(f"{path}: tensors: not a list")
    found = []
    for i, tensor in enumerate(tensors):
        for key, kind in (("name", str), ("elements", int), ("spec", str), ("route", str)):
            if not isinstance(tensor, dict) or not isinstance(tensor.get(key), kind):
                raise GradwireError(f"{path}: tensors[{i}].{key}: missing, or of another type")
        found.append((tensor["name"], tensor["elements"], tensor["spec"], tensor["route"]))
    return found


def follow(layers, tensors, path):
    """A plan is for this model: the same names and sizes, each once."""
    by_name = {layer.name: layer for layer in layers}
    seen = set()
    for name, elements, spec, route in tensors:
        layer = by_name.get(name)
        if layer is None:
            raise GradwireError(f"{path}: the plan has a tensor '{name}', this model has not: a plan for another model?")
        if layer.elements != elements:
            raise GradwireError(f"{path}: '{name}' has {elements} elements in the plan, {layer.elements} in this model")
        if name in seen:
            raise GradwireError(f"{path}: '{name}' stands there twice")
        seen.add(name)
        try:
            layer.go(None if spec in ("", "none", "dense") else spec, route)
        except GradwireError as error:
            raise GradwireError(f"{path}: '{name}': {error}", error.status) from None
    missing = [layer.name for layer in layers if layer.name not in seen]
    if missing:
        raise GradwireError(f"{path}: the plan says nothing of '{missing[0]}' ({len(missing)} such): "
                            "a plan for another model?")
