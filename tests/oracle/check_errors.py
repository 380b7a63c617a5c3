#!/usr/bin/env python3
"""Real gradients: the error tables against the textbook in numpy.

check_errors.py LIBGRADWIRE GRADS.safetensors; skips (77) without numpy.
"""

import ctypes
import json
import struct
import sys

DENSITIES = [0.001, 0.003, 0.01, 0.03, 0.1]
BUCKET = 512
RANK_ELEMENTS = 300_000  # of the largest matrix that numpy decomposes here


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_size_t), ("dtype", ctypes.c_int)]


class Exec(ctypes.Structure):
    _fields_ = [("isa", ctypes.c_int), ("pool", ctypes.c_void_p), ("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class Params(ctypes.Structure):
    _fields_ = [("codec", ctypes.c_void_p), ("value", ctypes.c_double * 8)]


def tensors(path, np):
    """Name and fp32 array of every tensor in a .safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        body = file.read()
    for name, entry in header.items():
        if name != "__metadata__":
            assert entry["dtype"] == "F32", entry
            begin, end = entry["data_offsets"]
            yield name, np.frombuffer(body[begin:end], np.float32).reshape(entry["shape"])


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)

    def params(self, spec):
        params = Params()
        assert self.lib.gw_params_parse(ctypes.byref(params), spec.encode(), None) == 0, spec
        return params

    def table(self, call, measure, x, before, after, entries):
        """What `call` fills: its arguments are `before`, exec, tensor, no residual, `after`, the table, no why."""
        size = ctypes.c_size_t()
        status = getattr(self.lib, measure[0])(*measure[1:], ctypes.byref(size))
        if status == -2:
            return None
        assert status == 0, (measure, status)
        workspace = ctypes.create_string_buffer(size.value)
        how = Exec(0, None, ctypes.addressof(workspace), size.value)
        tensor = Tensor(x.ctypes.data, x.size, 1)
        out = (ctypes.c_double * entries)()
        status = getattr(self.lib, call)(*before, ctypes.byref(how), ctypes.byref(tensor), None, *after, out, None)
        assert status == 0, (call, status)
        return list(out)


def expected(x, bits, natural, np):
    """E‖x − x̂‖² of unbiased rounding between neighbouring levels: the sum of (b − v)(v − a)."""
    flat = np.abs(x.ravel().astype(np.float64))
    v = np.pad(flat, (0, -flat.size % BUCKET)).reshape(-1, BUCKET)
    scale = v.max(axis=1, keepdims=True)
    v, scale = v[scale[:, 0] > 0], scale[scale[:, 0] > 0]
    s = 2 ** (bits - 1) - 1
    levels = np.array([0.0] + [2.0 ** (k - s) for k in range(1, s + 1)] if natural else [k / s for k in range(s + 1)])
    z = v / scale
    above = np.clip(np.searchsorted(levels, z, side="left"), 1, s)
    return float((((levels[above] - z) * (z - levels[above - 1])) * scale**2).sum())


def main():
    library, grads = sys.argv[1:]
    try:
        import numpy as np
    except ImportError:
        print("skip: no numpy")
        sys.exit(77)
    lib = Library(library)
    size = ctypes.c_size_t
    compared = 0
    for name, x in tensors(grads, np):
        squares = np.sort(x.ravel().astype(np.float64) ** 2)
        tails = np.concatenate([[0], np.cumsum(squares)])
        if tails[-1] == 0:
            continue
        n = len(DENSITIES)
        params = lib.params("topk")
        got = lib.table("gw_errors_topk", ("gw_errors_workspace", size(n)), x, [ctypes.byref(params)],
                        [(ctypes.c_double * n)(*DENSITIES), size(n)], n)
        for density, error in zip(DENSITIES, got):
            kept = min(max(int(density * x.size + 0.5), 1), x.size)
            assert abs(error - tails[x.size - kept]) <= 1e-9 * error, (name, density, error)
            compared += 1
        for codec in ("dither", "ndither"):
            params = lib.params(f"{codec}:bucket={BUCKET}")
            got = lib.table("gw_errors_dither", ("gw_errors_workspace", size(0)), x, [ctypes.byref(params)], [], 7)
            for bits, error in zip(range(2, 9), got):
                want = expected(x, bits, codec == "ndither", np)
                assert abs(error - want) <= 1e-4 * want + 1e-12 * tails[-1], (name, codec, bits, error, want)
                compared += 1
        matrix = x.reshape(x.shape[0], -1) if x.ndim > 1 else x.reshape(1, -1)
        if matrix.shape[0] > 1 and x.size <= RANK_ELEMENTS:
            shape, ranks = [size(d) for d in matrix.shape], min(16, *matrix.shape)
            got = lib.table("gw_errors_rank", ("gw_errors_rank_workspace", *shape, size(ranks)), x, [],
                            [*shape, size(ranks), ctypes.c_uint64(1)], ranks + 1)
            sigma = np.linalg.svd(matrix.astype(np.float64), compute_uv=False) ** 2
            for rank in range(ranks + 1 if got else 0):
                tail = sigma[rank:].sum()
                assert tail - 1e-11 * tails[-1] <= got[rank] <= 1.01 * tail + 1e-11 * tails[-1], (name, rank, got[rank], tail)
                compared += 1
    assert compared > 150
    print(f"{compared} errors as in numpy")


if __name__ == "__main__":
    main()
