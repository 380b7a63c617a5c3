"""Codecs: names, parameters, sizes; what a frame and a segment are."""

import math
from decimal import Decimal

from . import lowrank
from .numbers import BF16, DTYPE_NAMES, F32, TYPE_NAMES


class FrameError(Exception):
    """The frame breaks a rule of the wire page; the message says what and where."""


def check(holds, message, *values):
    if not holds:
        raise FrameError(message % values)


CAST, NATURAL, NDITHER, DITHER, ADACOMP, TOPK, RANDK, SIGN, LOWRANK = range(1, 10)
NATURAL_BLOCK = 4096
ADACOMP_HEADER = 16


class Param:
    """A parameter's name, rule, and default; words are names for some of its values."""

    def __init__(self, name, low, high, default, power_of_two=False, words=None, whole=True):
        self.name, self.low, self.high, self.default = name, low, high, default
        self.power_of_two, self.words, self.whole = power_of_two, words or {}, whole

    def check(self, value, where):
        """The fp64 value, as an int unless it may be any number; or FrameError."""
        if not self.whole:
            if not self.low <= value <= self.high:  # nor is NaN
                raise FrameError("%s: parameter %s is %r, not in %r ... %r"
                                 % (where, self.name, value, self.low, self.high))
            return value
        if not math.isfinite(value) or value != int(value):
            raise FrameError("%s: parameter %s is %r, not a whole number" % (where, self.name, value))
        value = int(value)
        if not self.low <= value <= self.high:
            raise FrameError("%s: parameter %s is %d, not in %d ... %d"
                             % (where, self.name, value, self.low, self.high))
        if self.power_of_two and value & (value - 1):
            raise FrameError("%s: parameter %s is %d, not a power of two" % (where, self.name, value))
        return value


_BITS = Param("bits", 2, 8, 4)
_BUCKET = Param("bucket", 64, 8192, 512, power_of_two=True)
_NORM = Param("norm", 0, 1, 0, words={0: "max", 1: "l2"})
_DENSITY = Param("density", 1e-6, 1.0, 0.01, whole=False)
_VALUES = Param("values", 0, 1, 0, words={0: "f32", 1: "natural"})
CODECS = {
    CAST: ("cast", [Param("to", F32, BF16, BF16, words=TYPE_NAMES)]),
    NATURAL: ("natural", [Param("bits", 8, 9, 8)]),
    NDITHER: ("ndither", [_BITS, _BUCKET, _NORM]),
    DITHER: ("dither", [_BITS, _BUCKET, _NORM,
                        Param("rounding", 0, 1, 0, words={0: "stochastic", 1: "nearest"})]),
    ADACOMP: ("adacomp", [Param("bin", 1, 16383, 500), Param("factor", 1.0, 8.0, 2.0, whole=False),
                          Param("cap", 0, 1 << 40, 0)]),
    TOPK: ("topk", [_DENSITY, _VALUES]),
    RANDK: ("randk", [_DENSITY, _VALUES]),
    SIGN: ("sign", [Param("bucket", 64, 8192, 4096, power_of_two=True)]),
    LOWRANK: ("lowrank", [Param("rank", 1, 256, 4), Param("cols", 0, (1 << 31) - 1, 0)]),
}


class Segment:
    """One tensor of a frame. params holds every parameter by name, defaults filled in."""

    def __init__(self, codec, dtype, dims, count, params, name, tensor, payload):
        self.codec, self.codec_name = codec, CODECS[codec][0]
        self.dtype, self.dtype_name = dtype, DTYPE_NAMES[dtype]
        self.dims, self.count, self.params = dims, count, params
        self.name, self.tensor, self.payload = name, tensor, payload

    @property
    def spec(self):
        def show(param, value):
            if not param.whole:  # as short as it can be told, and never with an exponent
                return format(Decimal(repr(value)), "f") if value != int(value) else int(value)
            return param.words.get(value, value)
        return self.codec_name + ":" + ",".join(
            "%s=%s" % (p.name, show(p, self.params[p.name])) for p in CODECS[self.codec][1])


class Frame:
    """A frame's header fields and its segments."""

    def __init__(self, flags, seed, step, rank, point, segments):
        self.flags, self.seed, self.step, self.rank, self.point = flags, seed, step, rank, point
        self.segments = segments


def bucket_sizes(count, size):
    """The elements of each block or bucket: all of them size, the last perhaps shorter."""
    return [size] * (count // size) + ([count % size] if count % size else [])


def sent_of(density, count):
    """k: how many elements topk and randk send."""
    return min(count, max(1, math.floor(density * count + 0.5))) if count else 0


def value_bytes(values, k):
    """The bytes of k sent values."""
    return k + -(-k // NATURAL_BLOCK) if values else 4 * k


def low_bits(count, k):
    """l: the largest number with k 2^l <= n."""
    return (count // k).bit_length() - 1 if k else 0


def list_sizes(count, k):
    """(l, bytes of the low bits, bytes of the high bits) of a list of k indices below count."""
    low = low_bits(count, k)
    upper = k + (count - 1 >> low) if k else 0
    return low, -(-k * low // 8), -(-upper // 8)


def entry_bytes_of(bin_size):
    """w: the bytes of an adacomp entry."""
    return 1 if bin_size <= 63 else 2


def adacomp_most(params, count):
    """The most bytes that an adacomp payload may have."""
    bitmap = -(-count // 8)
    if params["cap"] == 0:
        return ADACOMP_HEADER + 2 * bitmap
    empty = entry_bytes_of(params["bin"]) * -(-count // params["bin"])
    return max(params["cap"], ADACOMP_HEADER + min(bitmap, empty))


def payload_sizes(codec, params, count):
    """(fewest, most) bytes a payload must have: the same but for adacomp."""
    if codec == ADACOMP:
        return ADACOMP_HEADER, adacomp_most(params, count)
    size = payload_size(codec, params, count)
    return size, size


def payload_size(codec, params, count):
    """The bytes a payload must have, where they follow from the number of elements."""
    if codec == CAST:
        return count * (4 if params["to"] == F32 else 2)
    if codec == NATURAL:
        return count + (-(-count // NATURAL_BLOCK) if params["bits"] == 8 else -(-count // 8))
    if codec in (TOPK, RANDK):
        k = sent_of(params["density"], count)
        size = value_bytes(params["values"], k)
        return size + (8 if codec == RANDK else sum(list_sizes(count, k)[1:]))
    if codec == LOWRANK:
        return lowrank.size_of(params, count)
    bits, bucket = 1 if codec == SIGN else params["bits"], params["bucket"]
    # Only the last bucket can end inside a byte: a full one has a multiple of 64 elements.
    full, rest = divmod(count, bucket)
    return full * (4 + bucket * bits // 8) + (4 + -(-rest * bits // 8) if rest else 0)
