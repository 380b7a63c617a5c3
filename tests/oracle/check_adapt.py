#!/usr/bin/env python3
"""Real gradients: `gradwire adapt` against tables and an optimum of our own.

check_adapt.py GRADWIRE GRADS.safetensors; skips (77) without numpy.

Tables: topk by sorting, dither by its textbook expectation, low rank by singular values; bytes by the formulas of
docs/wire-format.md. Optimum: a dynamic programme over bytes, which are whole numbers, so that nothing is rounded: the
least error with at most b bytes, for every b.
"""

import json
import subprocess
import sys

import check_errors

LEAST = {"dither": 1.14, "topk": 1.7, "lowrank": 1.15}  # uniform bytes over chosen ones; of whole networks it is more
DEFAULTS = {"dither": "dither:bits=4", "topk": "topk:density=0.01", "lowrank": "lowrank:rank=4"}
CLOSE = {"dither": 1e-4, "topk": 1e-9, "lowrank": 1e-2}  # how far our own errors may be off


def topk_levels(count):
    steps = [1000, 1155, 1334, 1540, 1778, 2054, 2371, 2738, 3162, 3652, 4217, 4870, 5623, 6494, 7499, 8660]
    densities = [float(f"{1e-2 * decade * s / 1000:.3g}") for decade in (0.1, 1, 10) for s in steps]
    for density in [d for d in densities if d < 0.5] + [0.5]:
        kept = min(max(int(density * count + 0.5), 1), count)
        low = 0
        while kept << (low + 1) <= count:
            low += 1
        yield density, kept, 4 * kept + (kept * low + 7) // 8 + (kept + ((count - 1) >> low) + 7) // 8


def topk(xs, np):
    tails = [np.concatenate([[0], np.cumsum(np.sort(x.ravel().astype(np.float64) ** 2))]) for x in xs]
    for density, kept, size in topk_levels(xs[0].size):
        yield f"topk:density={density:g}", size, [tail[-1 - kept] for tail in tails]


def dither(xs, np):
    n, bucket = xs[0].size, check_errors.BUCKET
    for bits in range(2, 9):
        size = sum(4 + (min(bucket, n - at) * bits + 7) // 8 for at in range(0, n, bucket))
        yield f"dither:bits={bits}", size, [check_errors.expected(x, bits, False, np) if x.any() else 0.0 for x in xs]


def lowrank(xs, np):
    rows, cols = (xs[0].shape[0], xs[0].size // xs[0].shape[0]) if xs[0].ndim > 1 else (1, xs[0].size)
    if 4 * (rows + cols) >= rows * cols:
        return
    sigma = [np.linalg.svd(x.reshape(rows, cols).astype(np.float64), compute_uv=False) ** 2 for x in xs]
    for rank in range(1, min(16, rows, cols) + 1):
        if rank * (rows + cols) < rows * cols:
            yield f"lowrank:rank={rank}", 8 + 4 * rank * (rows + cols), [s[rank:].sum() for s in sigma]


FAMILIES = {"dither": dither, "topk": topk, "lowrank": lowrank}
CACHE = {}


def levels_of(name, xs, family, np):
    if (name, family) not in CACHE:
        CACHE[name, family] = list(FAMILIES[family](xs, np))
    return CACHE[name, family]


def table(layers, families, metric, np):
    """Of each layer its levels: spec -> (bytes, error)."""
    tables = {}
    for name, xs in layers.items():
        norms = [float((x.astype(np.float64) ** 2).sum()) for x in xs]
        levels = {"cast:to=f32": (4 * xs[0].size, 0.0)}
        for family in families:
            for spec, size, squared in levels_of(name, xs, family, np):
                if size < 4 * xs[0].size:
                    damage = {"norms": [s**0.5 for s in squared], "squares": squared,
                              "relative": [s / n if n else 0 for s, n in zip(squared, norms)]}[metric]
                    levels[spec] = (size, sum(damage) / len(damage))
        tables[name] = levels
    return tables


def optimum(tables, most, np):
    """least[b]: the least error with at most b bytes, b = 0 … most."""
    least = np.zeros(most + 1)
    for levels in tables.values():
        after = np.full(most + 1, np.inf)
        for size, error in levels.values():
            if size <= most:
                after[size:] = np.minimum(after[size:], least[: most + 1 - size] + error)
        least = after
    return least


def fewest(least, budget, np):
    return int(np.argmax(least <= budget)) if least[-1] <= budget else None


def check(gradwire, path, layers, families, default, metric, np):
    run = subprocess.run([gradwire, "adapt", path, "--family", ",".join(families), "--default", DEFAULTS[default],
                          "--metric", metric, "--json"], check=True, capture_output=True, text=True)
    got = json.loads(run.stdout)
    what = (path.rpartition("/")[2], families, metric)
    tables, close = table(layers, families, metric, np), max(CLOSE[f] for f in families)
    close *= 1 if metric == "norms" else 2
    uniform = {name: t.get(DEFAULTS[default], t["cast:to=f32"]) for name, t in tables.items()}
    assert got["uniform_bytes"] == sum(u[0] for u in uniform.values()), what
    assert got["dense_bytes"] == sum(t["cast:to=f32"][0] for t in tables.values()), what
    budget = sum(u[1] for u in uniform.values())
    assert abs(got["budget"] - budget) <= close * budget, (what, got["budget"], budget)
    assert got["error"] <= got["budget"] and got["bytes"] <= got["uniform_bytes"], what
    assert got["lower_bound_bytes"] <= got["bytes"], what
    assert {layer["name"] for layer in got["layers"]} == set(tables), what
    for layer in got["layers"]:
        size, error = tables[layer["name"]][layer["spec"]]
        assert layer["bytes"] == size, (what, layer, size)
        assert abs(layer["error"] - error) <= close * error + 1e-12, (what, layer, error)
    assert got["bytes"] == sum(layer["bytes"] for layer in got["layers"]), what
    least = optimum(tables, got["uniform_bytes"], np)
    best, worst = (fewest(least, budget * f, np) for f in (1 + close, 1 - close))
    assert best <= got["bytes"] <= (worst or got["uniform_bytes"]), (what, best, got["bytes"], worst)
    assert got["lower_bound_bytes"] <= (worst or got["uniform_bytes"]), (what, worst)
    ratio = got["uniform_bytes"] / got["bytes"]
    assert metric != "norms" or ratio >= LEAST[default], (what, ratio)
    print(f"{'+'.join(families)}, {metric}: {got['uniform_bytes']} -> {got['bytes']} bytes, {ratio:.2f}; "
          f"optimum {best} to {worst}, bound {got['lower_bound_bytes']}, {got['outcome']}")


def main():
    gradwire, path = sys.argv[1:]
    try:
        import numpy as np
    except ImportError:
        print("skip: no numpy")
        sys.exit(77)
    listed = json.loads(subprocess.run([gradwire, "codec", "list", "--json"], check=True, capture_output=True).stdout)
    known = [f for f in FAMILIES if f in {codec["name"] for codec in listed}]
    layers = {}
    for name, x in check_errors.tensors(path, np):
        layers.setdefault(name.partition("/")[2], []).append(x)
    for family in known:
        check(gradwire, path, layers, [family], family, "norms", np)
    check(gradwire, path, layers, known, "dither", "norms", np)
    for metric in ("squares", "relative"):
        check(gradwire, path, layers, ["dither"], "dither", metric, np)


if __name__ == "__main__":
    main()
