"""Input files of --against, and the comparison with them."""

import ast
import json
import math
from array import array

from .numbers import BF16, F16, F32, widen


class InputError(Exception):
    """An input file of --against cannot be used."""


def _floats(raw, dtype):
    size = 4 if dtype == F32 else 2
    if len(raw) % size:
        raise InputError("%d bytes are not a whole number of elements" % len(raw))
    return array("f", widen(raw, dtype).tobytes())


def read_npy(data):
    """The numbers of a .npy file, in C order."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        raise InputError("not an .npy file")
    start = 10 if data[6] == 1 else 12
    length = int.from_bytes(data[8:start], "little")
    try:
        head = ast.literal_eval(data[start:start + length].decode("latin-1").strip())
        descr, fortran, shape = head["descr"], head["fortran_order"], head["shape"]
    except (ValueError, SyntaxError, KeyError, TypeError):
        raise InputError("the .npy header cannot be read") from None
    if descr not in ("<f4", "<f2"):
        raise InputError(".npy type %r is neither <f4 nor <f2" % (descr,))
    if fortran and len(shape) > 1:
        raise InputError("the .npy array is in Fortran order")
    values = _floats(data[start + length:], F32 if descr == "<f4" else F16)
    expected = 1
    for dim in shape:
        expected *= dim
    if len(values) != expected:
        raise InputError("the .npy file has %d elements, its shape %d" % (len(values), expected))
    return values


def read_safetensors(data):
    """{name: (shape, numbers)}."""
    dtypes = {"F32": F32, "F16": F16, "BF16": BF16}
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise InputError("not a .safetensors file")
    body = data[8 + length:]
    tensors = {}
    try:
        for name, entry in json.loads(data[8:8 + length].decode("utf-8")).items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if entry["dtype"] in dtypes:  # others cannot be in a frame
                tensors[name] = (entry["shape"], _floats(body[begin:end], dtypes[entry["dtype"]]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("the .safetensors header cannot be read") from None
    return tensors


INPUT_KINDS = (".safetensors", ".npy", ".f32")


def inputs_for(frame, path):
    """The input of every segment: by name from .safetensors, else in order and end to end."""
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith(".safetensors"):
        tensors = read_safetensors(data)
        found = []
        for segment in frame.segments:
            if segment.name not in tensors:
                raise InputError("no tensor %r in it" % segment.name)
            shape, values = tensors[segment.name]
            if shape != segment.dims or len(values) != segment.count:
                raise InputError("tensor %r has shape %s there and %s in the frame"
                                 % (segment.name, shape, segment.dims))
            found.append(values)
        return found
    values = read_npy(data) if path.endswith(".npy") else _floats(data, F32)
    total = sum(segment.count for segment in frame.segments)
    if len(values) != total:
        raise InputError("%d elements in it, %d in the frame" % (len(values), total))
    found, at = [], 0
    for segment in frame.segments:
        found.append(values[at:at + segment.count])
        at += segment.count
    return found


def compare(x, y):
    """(rel_error, cosine) of decoded values y against the input x."""
    try:
        xx = math.fsum([a * a for a in x])
        yy = math.fsum([b * b for b in y])
        xy = math.fsum([a * b for a, b in zip(x, y)])
        dd = math.fsum([(a - b) * (a - b) for a, b in zip(x, y)])
    except ValueError:  # infinities of both signs
        return math.nan, math.nan
    if xx == 0.0:
        return (0.0, 1.0) if yy == 0.0 else (math.inf, 0.0)
    # Each root by itself: the product of the sums could underflow.
    cosine = xy / (math.sqrt(xx) * math.sqrt(yy)) if yy != 0.0 else 0.0
    return dd / xx, cosine
