#!/usr/bin/env python3
"""A second reader of gradwire frames, and a slow reference encoder.

Written from docs/wire-format.md ("the wire page") and docs/numerics.md ("the numerics page") alone,
never from the C sources: where the two implementations agree, the pages are what they agree on.
Standard library only, Python 3.9 or later.

    python3 gwframe.py FILE.gw                        a table of the segments, then "ok"
    python3 gwframe.py FILE.gw --json                 the same as a JSON list
    python3 gwframe.py FILE.gw --floats OUT.f32       all decoded values, raw little-endian fp32
    python3 gwframe.py FILE.gw --against IN.safetensors|IN.npy|IN.f32
                                                      with each tensor's error against its input
    python3 gwframe.py --known-answers                random words for the numerics page

Exit status: 0 fine, 1 failed (one line on stderr), 2 misuse.
"""

import argparse
import ast
import json
import math
import struct
import sys
from array import array
from decimal import Decimal

M32 = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF


class FrameError(Exception):
    """The frame breaks a rule of the wire page; the message says what and where."""


class InputError(Exception):
    """An input file of --against cannot be used."""


# ---- XXH3-64, seed 0, default secret -------------------------------------------------------------

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

STRIPE = 64
STRIPES_PER_BLOCK = (len(SECRET) - STRIPE) // 8  # the secret moves on 8 bytes a stripe
BLOCK = STRIPE * STRIPES_PER_BLOCK
SECRET_WORDS = struct.unpack("<24Q", SECRET)


def _u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def _u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def _fold(a, b):
    product = a * b
    return (product & M64) ^ (product >> 64)


def _rotl64(v, n):
    return (v << n | v >> (64 - n)) & M64


def _avalanche_xxh64(h):
    h ^= h >> 33
    h = h * P64_2 & M64
    h ^= h >> 29
    h = h * P64_3 & M64
    return h ^ h >> 32


def _avalanche(h):
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & M64
    return h ^ h >> 32


def _mix16(data, at, secret_at):
    return _fold(_u64(data, at) ^ _u64(SECRET, secret_at),
                 _u64(data, at + 8) ^ _u64(SECRET, secret_at + 8))


def _accumulate(acc, data, at, stripes, keys):
    """Add whole stripes to the eight sums; keys[s + lane] is the secret of stripe s.

    Lane by lane instead of stripe by stripe, and reduced modulo 2^64 once at the end: the sums are
    the same and Python's integers do not wrap.
    """
    words = struct.unpack_from("<%dQ" % (8 * stripes), data, at)
    for lane in range(8):
        total = acc[lane] + sum(words[lane ^ 1::8])
        for word, key in zip(words[lane::8], keys[lane:]):
            word ^= key
            total += (word & M32) * (word >> 32)
        acc[lane] = total & M64


def _xxh3_long(data):
    n = len(data)
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    blocks = (n - 1) // BLOCK
    scramble_keys = SECRET_WORDS[-8:]
    for block in range(blocks):
        _accumulate(acc, data, block * BLOCK, STRIPES_PER_BLOCK, SECRET_WORDS)
        acc = [((v ^ v >> 47) ^ key) * P32_1 & M64 for v, key in zip(acc, scramble_keys)]
    stripes = (n - 1 - blocks * BLOCK) // STRIPE
    _accumulate(acc, data, blocks * BLOCK, stripes, SECRET_WORDS)
    # The last stripe always ends with the input, overlapping the one before, under its own secret.
    _accumulate(acc, data, n - STRIPE, 1, struct.unpack_from("<8Q", SECRET, len(SECRET) - STRIPE - 7))
    h = n * P64_1
    for i in range(4):
        h += _fold(acc[2 * i] ^ _u64(SECRET, 11 + 16 * i), acc[2 * i + 1] ^ _u64(SECRET, 19 + 16 * i))
    return _avalanche(h & M64)


def xxh3_64(data):
    """XXH3-64 of a bytes object with seed 0."""
    n = len(data)
    if n == 0:
        return _avalanche_xxh64(_u64(SECRET, 56) ^ _u64(SECRET, 64))
    if n <= 3:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return _avalanche_xxh64(combined ^ _u32(SECRET, 0) ^ _u32(SECRET, 4))
    if n <= 8:
        h = (_u32(data, n - 4) + (_u32(data, 0) << 32)) ^ _u64(SECRET, 8) ^ _u64(SECRET, 16)
        h ^= _rotl64(h, 49) ^ _rotl64(h, 24)
        h = h * 0x9FB21C651E98DF25 & M64
        h ^= (h >> 35) + n
        h = h * 0x9FB21C651E98DF25 & M64
        return h ^ h >> 28
    if n <= 16:
        low = _u64(data, 0) ^ _u64(SECRET, 24) ^ _u64(SECRET, 32)
        high = _u64(data, n - 8) ^ _u64(SECRET, 40) ^ _u64(SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((n + swapped + high + _fold(low, high)) & M64)
    if n <= 128:
        h = n * P64_1
        for i in range((n - 1) // 32 + 1):  # pairs from both ends towards the middle
            h += _mix16(data, 16 * i, 32 * i) + _mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return _avalanche(h & M64)
    if n <= 240:
        h = n * P64_1 + sum(_mix16(data, 16 * i, 16 * i) for i in range(8))
        h = _avalanche(h & M64)
        h += sum(_mix16(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, n // 16))
        h += _mix16(data, n - 16, 136 - 17)
        return _avalanche(h & M64)
    return _xxh3_long(data)


# ---- Number formats ------------------------------------------------------------------------------

F32, F16, BF16 = 1, 2, 3
TYPE_NAMES = {F32: "f32", F16: "f16", BF16: "bf16"}
DTYPE_NAMES = {F32: "fp32", F16: "fp16", BF16: "bf16"}

INF_BITS = 0x7F800000
NAN_BITS = 0x7FC00000  # the NaN the wire page names for scales; taken for every NaN a decoder makes


def le_array(typecode, data):
    """The little-endian numbers in data as an array."""
    out = array(typecode)
    out.frombytes(data)
    if sys.byteorder == "big":
        out.byteswap()
    return out


def le_bytes(values):
    """The opposite of le_array."""
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def fl(value):
    """A Python float rounded to fp32, to nearest even.

    One rounding of an exact product, and for quotients and sums of fp32 numbers a second rounding
    that changes nothing (53 >= 2 * 24 + 2), so fl(a op b) is the IEEE fp32 operation.
    """
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:  # struct refuses what rounds to infinity
        return math.copysign(math.inf, value)


def bits_of(value):
    """The fp32 pattern of an fp32 number held in a Python float."""
    return struct.unpack("<I", struct.pack("<f", value))[0]


def float_of(pattern):
    """The fp32 number with this pattern, as a Python float."""
    return struct.unpack("<f", struct.pack("<I", pattern))[0]


def f16_from_f32(b):
    """fp32 pattern -> fp16 pattern, to nearest even; NaN quiet with its upper payload bits."""
    sign, a = b >> 16 & 0x8000, b & 0x7FFFFFFF
    if a > INF_BITS:
        return sign | 0x7E00 | a >> 13 & 0x3FF
    if a >= 0x477FF000:  # 65520, halfway to what would be the next number
        return sign | 0x7C00
    if a >= 0x38800000:  # 2^-14, the smallest normal number: rebias 127 -> 15
        return sign | (a - 0x38000000 + 0xFFF + (a >> 13 & 1)) >> 13
    if a < 0x33000000:  # below 2^-25, half the smallest subnormal number
        return sign
    mantissa = a & 0x7FFFFF | 0x800000
    shift = 126 - (a >> 23)  # the result counts units of 2^-24
    kept, rest, half = mantissa >> shift, mantissa & ((1 << shift) - 1), 1 << (shift - 1)
    return sign | kept + (rest > half or (rest == half and kept & 1))


def f32_from_f16(h):
    """fp16 pattern -> fp32 pattern, exactly; a NaN keeps its bits."""
    sign, e, m = (h & 0x8000) << 16, h >> 10 & 31, h & 0x3FF
    if e == 31:
        return sign | INF_BITS | m << 13
    if e:
        return sign | (e + 112) << 23 | m << 13
    return sign | bits_of(m * 2.0 ** -24)


def bf16_from_f32(b):
    """fp32 pattern -> bf16 pattern, to nearest even; NaN quiet with its upper payload bits."""
    if b & 0x7FFFFFFF > INF_BITS:
        return b >> 16 | 0x40
    return (b + 0x7FFF + (b >> 16 & 1)) >> 16


_f16_table = []


def widen(data, dtype):
    """Raw little-endian elements -> fp32 patterns, array('I')."""
    if dtype == F32:
        return le_array("I", data)
    if dtype == BF16:
        out = bytearray(2 * len(data))
        out[2::4] = data[0::2]
        out[3::4] = data[1::2]
        return le_array("I", out)
    if not _f16_table:
        _f16_table.extend(f32_from_f16(h) for h in range(65536))
    return array("I", [_f16_table[h] for h in le_array("H", data)])


def rounded(patterns, dtype):
    """fp32 patterns rounded to nearest even to dtype, and widened again."""
    if dtype == F32:
        return patterns
    if dtype == BF16:
        return array("I", [
            (b + 0x7FFF + (b >> 16 & 1)) & 0xFFFF0000 if b & 0x7FFFFFFF <= INF_BITS
            else bf16_from_f32(b) << 16 for b in patterns])
    # The normal numbers of fp16 inline, since a call for each element is slow.
    return array("I", [
        (b + 0xFFF + (b >> 13 & 1)) & 0xFFFFE000 if 0x38800000 <= b & 0x7FFFFFFF < 0x477FF000
        else f32_from_f16(f16_from_f32(b)) for b in patterns])


# ---- Codecs: names, parameters, sizes ------------------------------------------------------------

CAST, NATURAL, NDITHER, DITHER, ADACOMP, TOPK, RANDK, SIGN = 1, 2, 3, 4, 5, 6, 7, 8
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
    bits, bucket = 1 if codec == SIGN else params["bits"], params["bucket"]
    # Only the last bucket can end inside a byte: a full one has a multiple of 64 elements.
    full, rest = divmod(count, bucket)
    return full * (4 + bucket * bits // 8) + (4 + -(-rest * bits // 8) if rest else 0)


def _check(holds, message, *values):
    if not holds:
        raise FrameError(message % values)


def _check_unused(data, at, bits, what, where):
    """The bits of a string of so many bits that begins at byte at, from its end to its last byte's."""
    end = at + -(-bits // 8)
    if bits % 8 and data[end - 1] >> bits % 8:
        raise FrameError("%s: unused %s bits are not zero at byte %d of the payload"
                         % (where, what, end - 1))


def _check_natural8(data, at, count, where):
    for m in bucket_sizes(count, NATURAL_BLOCK):
        _check(1 <= data[at] <= 128, "%s: base %d at byte %d of the payload is not in 1 ... 128",
               where, data[at], at)
        at += 1 + m


def _check_natural9(data, count, where):
    at = 0
    for m in bucket_sizes(count, NATURAL_BLOCK):
        _check_unused(data, at + m, m, "sign", where)
        at += m + -(-m // 8)


def _check_buckets(data, count, bucket, bits, what, where):
    at = 0
    for m in bucket_sizes(count, bucket):
        scale = _u32(data, at)
        _check(scale < INF_BITS or scale == NAN_BITS,
               "%s: scale 0x%08X at byte %d of the payload is corrupt", where, scale, at)
        _check_unused(data, at + 4, m * bits, what, where)
        at += 4 + -(-m * bits // 8)


def check_payload(segment, where):
    """The rules that a payload of the right size can still break."""
    data, params, count = segment.payload, segment.params, segment.count
    if segment.codec == CAST:
        return  # every bit pattern is a number
    if segment.codec == NATURAL and params["bits"] == 8:
        _check_natural8(data, 0, count, where)
    elif segment.codec == NATURAL:
        _check_natural9(data, count, where)
    elif segment.codec == ADACOMP:
        adacomp_sent(data, count, params["bin"], where)
    elif segment.codec in (TOPK, RANDK):
        if params["values"]:
            k = sent_of(params["density"], count)
            _check_natural8(data, 8 if segment.codec == RANDK else 0, k, where)
        if segment.codec == TOPK:
            topk_indices(data, count, params, where)
    elif segment.codec == SIGN:
        _check_buckets(data, count, params["bucket"], 1, "sign", where)
    else:
        _check_buckets(data, count, params["bucket"], params["bits"], "code", where)


# ---- Which elements a payload sends --------------------------------------------------------------

_SET_BITS = [[j for j in range(8) if v >> j & 1] for v in range(256)]


def set_bits(data):
    """The numbers of the set bits, ascending."""
    return [8 * at + j for at, v in enumerate(data) if v for j in _SET_BITS[v]]


def unpack_wide(packed, bits, count):
    """Packed codes of any width, as a list. Eight of them fill `bits` bytes."""
    if bits == 0:
        return [0] * count
    mask = (1 << bits) - 1
    shifts = [bits * j for j in range(8)]
    packed = packed + bytes(-len(packed) % bits)
    groups = [int.from_bytes(packed[at:at + bits], "little") for at in range(0, len(packed), bits)]
    return [group >> shift & mask for group in groups for shift in shifts][:count]


def topk_indices(payload, count, params, where):
    """The indices of a topk payload of the right size, ascending; or FrameError."""
    k = sent_of(params["density"], count)
    low, low_size, _ = list_sizes(count, k)
    at = value_bytes(params["values"], k)
    _check_unused(payload, at, k * low, "low", where)
    positions = set_bits(payload[at + low_size:])
    _check(len(positions) == k, "%s: %d ones in the high bits, but %d elements are sent",
           where, len(positions), k)
    lows = unpack_wide(payload[at:at + low_size], low, k)
    indices = [position - j << low | rest for j, (position, rest) in enumerate(zip(positions, lows))]
    for before, after in zip(indices, indices[1:]):
        if after <= before:
            raise FrameError("%s: index %d after index %d" % (where, after, before))
    _check(not indices or indices[-1] < count, "%s: index %d of %d elements",
           where, indices[-1] if indices else 0, count)
    return indices


def randk_indices(key, count, k):
    """The elements that randk sends: one of each stratum."""
    if k == 0:
        return []
    size, longer = divmod(count, k)
    longer_words = words(key, longer)
    out = [j * (size + 1) + (word_j * (size + 1) >> 32) for j, word_j in enumerate(longer_words)]
    if size == 1:
        return out + list(range(longer * 2, count))
    first = longer * (size + 1)
    return out + [first + j * size + (word_j * size >> 32)
                  for j, word_j in enumerate(words(key, k - longer, longer))]


def _adacomp_entries(payload, count, bin_size, entries, where):
    """Form 0 -> (indices, signs)."""
    width = entry_bytes_of(bin_size)
    _check(len(payload) == ADACOMP_HEADER + width * entries,
           "%s: %d bytes, but %d entries of %d bytes take %d", where, len(payload), entries, width,
           ADACOMP_HEADER + width * entries)
    empty = 0x3F if width == 1 else 0x3FFF  # the index of a bin that sends nothing
    sign, last = empty + 1, 2 * (empty + 1)
    bins = -(-count // bin_size)
    indices, signs = [], []
    first = marks = 0  # the bin's first element, the bins that have ended
    least, length = 0, min(bin_size, count)  # of the next index
    for j, v in enumerate(le_array("B" if width == 1 else "H", payload[ADACOMP_HEADER:])):
        _check(marks < bins, "%s: entry %d of %d comes after the last of %d bins", where, j, entries, bins)
        index = v & empty
        if index == empty:
            _check(not v & sign, "%s: entry %d, of an empty bin, has a sign", where, j)
            _check(v & last and least == 0, "%s: entry %d, of an empty bin, is not alone in it", where, j)
        else:
            _check(index < length, "%s: entry %d has index %d in a bin of %d elements",
                   where, j, index, length)
            _check(index >= least, "%s: entry %d has index %d after index %d", where, j, index, least - 1)
            indices.append(first + index)
            signs.append(1 if v & sign else 0)
            least = index + 1
        if v & last:
            marks += 1
            first += bin_size
            least, length = 0, min(bin_size, count - first)
    _check(marks == bins, "%s: %d last marks, but %d bins", where, marks, bins)
    return indices, signs


def _adacomp_bitmap(payload, count, sent, where):
    """Form 1 -> (indices, signs)."""
    middle = ADACOMP_HEADER + -(-count // 8)
    _check(len(payload) == middle + -(-sent // 8),
           "%s: %d bytes, but a bitmap of %d elements and %d signs take %d", where, len(payload), count,
           sent, middle + -(-sent // 8))
    _check_unused(payload, ADACOMP_HEADER, count, "bitmap", where)
    _check_unused(payload, middle, sent, "sign", where)
    indices = set_bits(payload[ADACOMP_HEADER:middle])
    _check(len(indices) == sent, "%s: %d bits of the bitmap are set, but %d elements are sent",
           where, len(indices), sent)
    signs = [0] * sent
    for j in set_bits(payload[middle:]):
        signs[j] = 1
    return indices, signs


def adacomp_sent(payload, count, bin_size, where):
    """(pattern of S, indices, signs), or None for a non-finite tensor; or FrameError.

    Everything about the payload but its length's bound is checked here.
    """
    _check(len(payload) >= ADACOMP_HEADER, "%s: %d bytes, fewer than a header's 16", where, len(payload))
    form, zero, scale, sent = payload[0], payload[1:4], _u32(payload, 4), _u64(payload, 8)
    _check(form <= 2, "%s: form %d is unknown", where, form)
    _check(not any(zero), "%s: the zero bytes at byte 1 of the payload are not zero", where)
    if form == 2:
        _check(scale == NAN_BITS, "%s: scale 0x%08X in form 2", where, scale)
        _check(sent == 0, "%s: %d elements sent in form 2", where, sent)
        _check(len(payload) == ADACOMP_HEADER, "%s: %d bytes in form 2, not 16", where, len(payload))
        return None
    _check(scale < INF_BITS, "%s: scale 0x%08X at byte 4 of the payload is corrupt", where, scale)
    if form == 0:
        return (scale, *_adacomp_entries(payload, count, bin_size, sent, where))
    return (scale, *_adacomp_bitmap(payload, count, sent, where))


# ---- Reading a frame -----------------------------------------------------------------------------

HEADER_BYTES = 64
ENTRY_BYTES = 40
MAGIC = b"GWF\x1a"


def _read_entry(data, at, header_end, index, hashed):
    """One entry -> (a Segment still without payload, payload bytes, payload hash, next offset)."""
    where = "segment %d, entry at byte %d" % (index, at)
    _check(header_end - at >= ENTRY_BYTES, "%s: runs past the header's end at %d", where, header_end)
    codec, dtype, ndims, nparams, name_bytes, count, size, digest, tensor = struct.unpack_from(
        "<BBBBIQQQQ", data, at)
    _check(codec in CODECS, "%s: codec id %d is unknown", where, codec)
    _check(dtype in DTYPE_NAMES, "%s: dtype %d is unknown", where, dtype)
    _check(ndims <= 8, "%s: %d dims, more than 8", where, ndims)
    codec_name, known = CODECS[codec]
    _check(nparams <= len(known), "%s: %d parameters, but %s has %d",
           where, nparams, codec_name, len(known))
    _check(name_bytes <= 1024, "%s: name of %d bytes, more than 1024", where, name_bytes)
    used = ENTRY_BYTES + 8 * ndims + 8 * nparams + name_bytes
    entry_bytes = -(-used // 8) * 8
    _check(entry_bytes <= header_end - at, "%s: runs past the header's end at %d", where, header_end)

    dims = list(struct.unpack_from("<%dQ" % ndims, data, at + ENTRY_BYTES))
    product = 1
    for dim in dims:
        product *= dim
        _check(product <= 1 << 48, "%s: the product of the dims is beyond 2^48", where)
    _check(count == product, "%s: %d elements, but the product of the dims is %d",
           where, count, product)
    _check(count < 1 << 48, "%s: %d elements, not below 2^48", where, count)
    _check(size < 1 << 56, "%s: payload of %d bytes, not below 2^56", where, size)
    _check(hashed or digest == 0, "%s: a payload hash, but flag bit 0 is not set", where)

    params = {p.name: p.default for p in known}
    given = struct.unpack_from("<%dd" % nparams, data, at + ENTRY_BYTES + 8 * ndims)
    for param, value in zip(known, given):
        params[param.name] = param.check(value, where)

    raw_name = data[at + used - name_bytes:at + used]
    _check(0 not in raw_name, "%s: the name has a NUL byte", where)
    try:
        name = raw_name.decode("utf-8")
    except UnicodeDecodeError:
        raise FrameError("%s: the name is not UTF-8" % where) from None
    _check(not any(data[at + used:at + entry_bytes]), "%s: padding after the name is not zero", where)

    fewest, most = payload_sizes(codec, params, count)
    _check(fewest <= size <= most, "%s: payload of %d bytes, but %d elements of %s take %s",
           where, size, count, codec_name, fewest if fewest == most else "%d to %d" % (fewest, most))
    segment = Segment(codec, dtype, dims, count, params, name, tensor, b"")
    return segment, size, digest, at + entry_bytes


def read_frame(data):
    """bytes -> Frame, with every rule of the wire page checked; raises FrameError."""
    data = bytes(data)
    _check(len(data) >= HEADER_BYTES, "frame: %d bytes, fewer than a header's 64", len(data))
    (magic, version, flags, n, header_end, frame_bytes, seed, step, rank, point, zero,
     header_hash) = struct.unpack_from("<4sHHIIQQQIIQQ", data, 0)
    _check(magic == MAGIC, "header: magic is %s, not 47 57 46 1A, at byte 0", magic.hex(" ").upper())
    _check(version == 1, "header: wire version is %d, this reader knows 1, at byte 4", version)
    _check(flags & ~1 == 0, "header: unknown flag in 0x%04X at byte 6", flags)
    _check(n <= 1 << 20, "header: %d segments, more than 1048576, at byte 8", n)
    _check(header_end % 8 == 0 and HEADER_BYTES <= header_end < 1 << 31,
           "header: header bytes %d at byte 12 is not a multiple of 8 from 64 to below 2^31", header_end)
    _check(frame_bytes == len(data), "header: frame bytes at byte 16 says %d, but %d were given",
           frame_bytes, len(data))
    _check(frame_bytes % 8 == 0, "header: frame bytes %d at byte 16 is not a multiple of 8", frame_bytes)
    _check(header_end <= frame_bytes, "header: header bytes %d at byte 12 is more than the frame's %d",
           header_end, frame_bytes)
    _check(zero == 0, "header: the zero field at byte 48 is not zero")
    found = xxh3_64(data[:56] + bytes(8) + data[64:header_end])
    _check(found == header_hash, "header: hash at byte 56 is %016X, but the bytes give %016X",
           header_hash, found)

    entries = []
    at = HEADER_BYTES
    for i in range(n):
        segment, size, digest, at = _read_entry(data, at, header_end, i, flags & 1)
        entries.append((segment, size, digest))
    _check(at == header_end, "header: the entries end at byte %d, header bytes says %d", at, header_end)

    for i, (segment, size, digest) in enumerate(entries):
        where = "segment %d, payload at byte %d" % (i, at)
        end = at + size
        padded = -(-end // 8) * 8
        _check(padded <= frame_bytes, "%s: its %d bytes run past the frame's end at %d",
               where, size, frame_bytes)
        segment.payload = data[at:end]
        _check(not any(data[end:padded]), "%s: padding at byte %d is not zero", where, end)
        if flags & 1:
            found = xxh3_64(segment.payload)
            _check(found == digest, "%s: hash is %016X, but the bytes give %016X",
                   where, digest, found)
        check_payload(segment, where)
        at = padded
    _check(at == frame_bytes, "frame: the payloads end at byte %d, the frame at %d", at, frame_bytes)
    return Frame(flags, seed, step, rank, point, [entry[0] for entry in entries])


# ---- Decoding ------------------------------------------------------------------------------------
# The inner loops are slices and bytes.translate: frames of some ten million elements take seconds.

_SIGN_TABLE = [bytes(0x80 * (v >> j & 1) for j in range(8)) for v in range(256)]
_EXPONENT_HIGH = bytes(e >> 1 for e in range(256))         # byte 3 of the fp32 number, less its sign
_EXPONENT_LOW = bytes((e & 1) << 7 for e in range(256))    # byte 2; bytes 1 and 0 are zero


def _or_bytes(a, b):
    """Bytewise or of two equally long byte strings."""
    joined = int.from_bytes(a, "little") | int.from_bytes(b, "little")
    return joined.to_bytes(len(a), "little")


def _decode_natural9(payload, count):
    out = bytearray(4 * count)
    at = first = 0
    for m in bucket_sizes(count, NATURAL_BLOCK):
        exponents = payload[at:at + m]
        signs = b"".join([_SIGN_TABLE[v] for v in payload[at + m:at + m + -(-m // 8)]])[:m]
        out[4 * first + 2:4 * (first + m):4] = exponents.translate(_EXPONENT_LOW)
        out[4 * first + 3:4 * (first + m):4] = _or_bytes(exponents.translate(_EXPONENT_HIGH), signs)
        at += m + -(-m // 8)
        first += m
    return le_array("I", out)


def _natural8_tables(base):
    """Bytes 2 and 3 of the fp32 number of every code."""
    patterns = [0] * 256
    for k in range(1, 128):
        patterns[k] = (base + k - 1) << 23
        patterns[0x80 | k] = patterns[k] | 0x80000000
    patterns[0x80] = NAN_BITS
    return bytes(p >> 16 & 0xFF for p in patterns), bytes(p >> 24 for p in patterns)


def _decode_natural8(payload, count):
    out = bytearray(4 * count)
    tables = {}
    at = first = 0
    for m in bucket_sizes(count, NATURAL_BLOCK):
        base = payload[at]
        if base not in tables:
            tables[base] = _natural8_tables(base)
        codes = payload[at + 1:at + 1 + m]
        out[4 * first + 2:4 * (first + m):4] = codes.translate(tables[base][0])
        out[4 * first + 3:4 * (first + m):4] = codes.translate(tables[base][1])
        at += 1 + m
        first += m
    return le_array("I", out)


def unpack_codes(packed, bits, count):
    """Packed codes -> one byte a code.

    Eight codes fill `bits` bytes, and each lies in at most two of them; so the j-th codes of all
    groups of eight are made together from one or two columns of bytes.
    """
    groups = -(-count // 8)
    packed = packed + bytes(groups * bits - len(packed))
    out = bytearray(8 * groups)
    mask = (1 << bits) - 1
    for j in range(8):
        byte, shift = divmod(j * bits, 8)
        column = packed[byte::bits].translate(bytes(v >> shift & mask for v in range(256)))
        if shift + bits > 8:
            upper = bytes(v << (8 - shift) & mask for v in range(256))
            column = _or_bytes(column, packed[byte + 1::bits].translate(upper))
        out[j::8] = column
    return bytes(out[:count])


def levels(codec, bits):
    """lambda(k) for k = 0 ... s, fp32 numbers."""
    s = (1 << (bits - 1)) - 1
    if codec == NDITHER:
        return [0.0] + [2.0 ** (k - s) for k in range(1, s + 1)]
    unit = fl(1.0 / s)
    return [fl(k * unit) for k in range(s + 1)]


def _decode_buckets(codec, params, payload, count):
    bits = params["bits"]
    sizes = bucket_sizes(count, params["bucket"])
    scales, packed = [], []
    at = 0
    for m in sizes:
        scales.append(payload[at:at + 4])
        end = at + 4 + -(-m * bits // 8)
        packed.append(payload[at + 4:end])
        at = end
    codes = unpack_codes(b"".join(packed), bits, count)  # full buckets end at a byte's end
    positive = levels(codec, bits)
    signed = positive + [-v for v in positive]  # by code: the sign is the top bit; includes -0.0
    out = array("f")
    nan = array("f", struct.pack("=I", NAN_BITS))
    first = 0
    for m, scale_bytes in zip(sizes, scales):
        scale = struct.unpack("<f", scale_bytes)[0]
        if scale != scale:
            out += nan * m
        else:
            # An exact product in double, and one rounding when it is stored as fp32.
            out.extend([scale * signed[code] for code in codes[first:first + m]])
        first += m
    return array("I", out.tobytes())


def _decode_sign(payload, count, bucket):
    out = bytearray()
    tables = [bytes(top | v for v in range(256)) for top in range(128)]  # byte 3 of S, with a sign
    at = 0
    for m in bucket_sizes(count, bucket):
        scale, end = payload[at:at + 4], at + 4 + -(-m // 8)
        part = bytearray(scale * m)
        if _u32(scale, 0) != NAN_BITS:
            signs = b"".join([_SIGN_TABLE[v] for v in payload[at + 4:end]])[:m]
            part[3::4] = signs.translate(tables[scale[3]])
        out += part
        at = end
    return le_array("I", out)


def _decode_values(payload, values, k):
    """k sent values, patterns."""
    return _decode_natural8(payload, k) if values else le_array("I", payload[:4 * k])


def _scattered(count, indices, values):
    """Patterns: the values at their indices, +0 elsewhere."""
    out = array("I", bytes(4)) * count
    for i, v in zip(indices, values):
        out[i] = v
    return out


def _decode_adacomp(payload, count, bin_size):
    found = adacomp_sent(payload, count, bin_size, "payload")
    if found is None:
        return array("I", [NAN_BITS]) * count
    scale, indices, signs = found
    both = (scale, scale | 0x80000000)
    return _scattered(count, indices, [both[sign] for sign in signs])


def decode_patterns(codec, params, payload, count):
    """The fp32 patterns of a payload that keeps all rules, before rounding to the tensor's type."""
    if codec == CAST:
        return widen(payload, params["to"])
    if codec == NATURAL:
        return (_decode_natural9 if params["bits"] == 9 else _decode_natural8)(payload, count)
    if codec == SIGN:
        return _decode_sign(payload, count, params["bucket"])
    if codec == ADACOMP:
        return _decode_adacomp(payload, count, params["bin"])
    if codec == TOPK:
        indices = topk_indices(payload, count, params, "payload")
        return _scattered(count, indices, _decode_values(payload, params["values"], len(indices)))
    if codec == RANDK:
        k = sent_of(params["density"], count)
        indices = randk_indices(_u64(payload, 0), count, k)
        return _scattered(count, indices, _decode_values(payload[8:], params["values"], k))
    return _decode_buckets(codec, params, payload, count)


def decode(segment):
    """The segment's values: array('f'); fp16 and bf16 tensors rounded to their type."""
    patterns = decode_patterns(segment.codec, segment.params, segment.payload, segment.count)
    return array("f", rounded(patterns, segment.dtype).tobytes())


# ---- Random words --------------------------------------------------------------------------------

def _mix(z):
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & M64
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & M64
    return z ^ z >> 31


def random_key(seed, step, tensor, point, rank):
    key = 0
    for v in (seed, step, tensor, point << 32 | rank):
        key = _mix(((key ^ v) + 0x9E3779B97F4A7C15) & M64)
    return key


def word(key, t):
    """The 32-bit word number t in the stream of this key."""
    k = _mix((key + (t >> 32) * 0xD1B54A32D192ED03) & M64)
    k0, k1 = k & M32, k >> 32
    x = (k0 + (t & M32) * 0x9E3779B9) & M32
    x ^= x >> 16
    x = x * 0x21F0AAAD & M32
    x ^= x >> 15
    x ^= k1
    x = x * 0xD35A2D97 & M32
    return x ^ x >> 16


def words(key, count, first=0):
    """word(first), word(first + 1) ...: as many, and faster than one by one."""
    out = []
    t, end = first, first + count
    while t < end:
        stop = min(end, ((t >> 32) + 1) << 32)  # k stays the same up to there
        k = _mix((key + (t >> 32) * 0xD1B54A32D192ED03) & M64)
        k1 = k >> 32
        x = (k + (t & M32) * 0x9E3779B9) & M32
        for _ in range(t, stop):
            y = (x ^ x >> 16) * 0x21F0AAAD & M32
            y = (y ^ y >> 15 ^ k1) * 0xD35A2D97 & M32
            out.append(y ^ y >> 16)
            x = x + 0x9E3779B9 & M32
        t = stop
    return out


def r23(key, i):
    """The 23 random bits of element i."""
    x = word(key, (i >> 5) * 16 + i % 16)
    if i % 32 >= 16:
        x = x >> 16 | (x & 0xFFFF) << 16
    return x >> 9


class Stream:
    """The random numbers of one encoding."""

    def __init__(self, seed=0, step=0, tensor=0, point=0, rank=0):
        self.key = random_key(seed, step, tensor, point, rank)

    def r(self, i):
        return r23(self.key, i)


# ---- Reference encoder, for small inputs ---------------------------------------------------------
# Inputs are fp32 patterns (fp16 and bf16 already widened); `first` is the index of the first one in
# its tensor, so that a piece of a tensor can be encoded alone (wire page, section 4).

def natural_exponent(b, r, dtype):
    """E(b, r) of a finite number."""
    top = 142 if dtype == F16 else 254
    return min(((b & 0x7FFFFFFF) + r) >> 23, top)


def natural_level(b, r, dtype, base):
    """k of a finite number in a bits=8 block."""
    a = b & 0x7FFFFFFF
    e, mantissa = a >> 23, a & 0x7FFFFF
    if a == 0:
        return 0
    if e < base:
        full = mantissa | 0x800000 if e else mantissa
        return ((full >> min(base - max(e, 1), 31)) + r) >> 23
    return natural_exponent(b, r, dtype) - base + 1


def encode_natural(values_bits, dtype, bits, stream, first=0, indices=None):
    """indices: those of the values in their tensor, where they are not first, first + 1 ..."""
    indices = range(first, first + len(values_bits)) if indices is None else indices
    out = bytearray()
    for start in range(0, len(values_bits), NATURAL_BLOCK):
        block = [(b, stream.r(i)) for b, i in zip(values_bits[start:start + NATURAL_BLOCK],
                                                  indices[start:start + NATURAL_BLOCK])]
        finite = [(b & 0x7FFFFFFF) < INF_BITS for b, _ in block]
        if bits == 9:
            exponents = [natural_exponent(b, r, dtype) if ok else 255
                         for (b, r), ok in zip(block, finite)]
            signs = [b >> 31 if e else 0 for (b, _), e in zip(block, exponents)]
            out += bytes(exponents) + pack_codes(signs, 1)
        else:
            e_max = max((natural_exponent(b, r, dtype) for (b, r), ok in zip(block, finite) if ok),
                        default=0)
            base = max(1, e_max - 126)
            out.append(base)
            for (b, r), ok in zip(block, finite):
                k = natural_level(b, r, dtype, base) if ok else 0
                # Code 0x80 means non-finite, so a zero has no sign.
                out.append((b >> 31 << 7 | k if k else 0) if ok else 0x80)
    return bytes(out)


def pack_codes(codes, bits):
    """Codes -> bytes, the first code in the lowest bits, unused bits zero."""
    packed = sum(code << j * bits for j, code in enumerate(codes))
    return packed.to_bytes(-(-len(codes) * bits // 8), "little")


def _prescale(scale):
    """P: keeps reciprocals of the scale away from overflow and subnormals."""
    if scale < 2.0 ** -60:
        return 2.0 ** 64
    return 2.0 ** -64 if scale > 2.0 ** 100 else 1.0


def dither_level(magnitude, scale, s, r):
    p = _prescale(scale)
    h = fl(fl(s * 2.0 ** 23 * (1 + 2.0 ** -22)) / fl(scale * p))
    q = math.trunc(fl(fl(magnitude * p) * h))
    return min((q + r) >> 23, s)


def ndither_level(magnitude, scale, s, r):
    p = _prescale(scale)
    h = fl(fl(1 + 2.0 ** -22) / fl(scale * p))
    z = fl(fl(fl(magnitude * p) * h) * 2.0 ** (s - 1))
    u = max(fl(z + 1.0), fl(z + z))
    return min((bits_of(u) + r - 0x3F800000) >> 23, s)


def euclidean_norm(part, largest, dtype):
    """S of norm=l2 as a pattern; largest is the largest pattern without its sign."""
    most = {F16: 0x477FE000, BF16: 0x7F7F0000}.get(dtype, INF_BITS - 1)
    r = 2.0 ** -80 if largest > 0x5D800000 else 2.0 ** 80 if largest < 0x33800000 else 1.0
    lanes = [0.0] * 32
    for i, b in enumerate(part):
        v = fl(float_of(b) * r)
        lanes[i % 32] = fl(lanes[i % 32] + fl(v * v))
    half = 16
    while half:
        lanes = [fl(lanes[j] + lanes[j + half]) for j in range(half)]
        half //= 2
    norm = fl(fl(math.sqrt(lanes[0])) / r)
    return max(largest, min(bits_of(norm), most))


def _encode_buckets(values_bits, bits, bucket, level, first, r_of, norm, dtype):
    s = (1 << (bits - 1)) - 1
    out = bytearray()
    for start in range(0, len(values_bits), bucket):
        part = values_bits[start:start + bucket]
        largest = max(b & 0x7FFFFFFF for b in part)
        codes = [0] * len(part)
        if largest >= INF_BITS:
            largest = NAN_BITS
        elif largest:
            if norm == 1:
                largest = euclidean_norm(part, largest, dtype)
            scale = float_of(largest)
            for j, b in enumerate(part):
                k = level(float_of(b & 0x7FFFFFFF), scale, s, r_of(first + start + j))
                codes[j] = b >> 31 << (bits - 1) | k if k else 0  # no sign on zero
        out += struct.pack("<I", largest) + pack_codes(codes, bits)
    return bytes(out)


def encode_dither(values_bits, dtype, bits, bucket, nearest, stream, first=0, norm=0):
    r_of = (lambda i: 1 << 22) if nearest else stream.r
    return _encode_buckets(values_bits, bits, bucket, dither_level, first, r_of, norm, dtype)


def encode_ndither(values_bits, dtype, bits, bucket, stream, first=0, norm=0):
    return _encode_buckets(values_bits, bits, bucket, ndither_level, first, stream.r, norm, dtype)


def encode_cast(values_bits, to):
    if to == F32:
        return struct.pack("<%dI" % len(values_bits), *values_bits)
    narrow = f16_from_f32 if to == F16 else bf16_from_f32
    return struct.pack("<%dH" % len(values_bits), *[narrow(b) for b in values_bits])


def sign_scale(part):
    """S of one bucket, a pattern."""
    largest = max(b & 0x7FFFFFFF for b in part)
    if largest >= INF_BITS:
        return NAN_BITS
    p = 2.0 ** -64 if largest > 0x71800000 else 1.0
    lane = [0.0] * 32
    for i, b in enumerate(part):
        lane[i % 32] = fl(lane[i % 32] + fl(float_of(b & 0x7FFFFFFF) * p))
    for h in (16, 8, 4, 2, 1):
        for j in range(h):
            lane[j] = fl(lane[j] + lane[j + h])
    return bits_of(fl(fl(lane[0] / len(part)) / p))


def encode_sign(values_bits, bucket):
    out = bytearray()
    for start in range(0, len(values_bits), bucket):
        part = values_bits[start:start + bucket]
        scale = sign_scale(part)
        signs = [0] * len(part)
        if 0 < scale < INF_BITS:
            signs = [1 if b > 0x80000000 else 0 for b in part]  # -0 is not below zero
        out += struct.pack("<I", scale) + pack_codes(signs, 1)
    return bytes(out)


def with_residual(g_bits, r_bits):
    """G = fl(g + r), patterns; g itself without a residual."""
    if r_bits is None:
        return list(g_bits)
    return [bits_of(fl(float_of(g) + float_of(r))) for g, r in zip(g_bits, r_bits)]


def after_feedback(g_bits, r_bits, decoded_bits):
    """r' = fl(G - y), patterns; y is decoded_bits, fp32 before any rounding to the tensor's type."""
    return [bits_of(fl(float_of(b) - float_of(y)))
            for b, y in zip(with_residual(g_bits, r_bits), decoded_bits)]


# The encoders from here on take G, in place of g, where there is a residual; adacomp needs both.

def _encode_values(values_bits, dtype, values, stream, indices):
    sent = [values_bits[i] for i in indices]
    if values:
        return encode_natural(sent, dtype, 8, stream, indices=indices)
    return struct.pack("<%dI" % len(sent), *sent)


def encode_list(indices, count):
    """Ascending indices -> low bits, high bits."""
    low, _, high_size = list_sizes(count, len(indices))
    high = sum(1 << ((i >> low) + j) for j, i in enumerate(indices))
    return (pack_codes([i & ((1 << low) - 1) for i in indices], low)
            + high.to_bytes(high_size, "little"))


def encode_topk(values_bits, dtype, density, values, stream):
    """values: 0 fp32, 1 natural."""
    n = len(values_bits)
    order = sorted(range(n), key=lambda i: (-(values_bits[i] & 0x7FFFFFFF), i))
    indices = sorted(order[:sent_of(density, n)])
    return _encode_values(values_bits, dtype, values, stream, indices) + encode_list(indices, n)


def randk_key(seed, step, tensor):
    """K: the same on every rank."""
    return random_key(seed, step, tensor, M32, M32)


def encode_randk(values_bits, dtype, density, values, key, stream):
    """key: randk_key, for the indices; stream: the rank's own, for rounding."""
    n = len(values_bits)
    k = sent_of(density, n)
    head = struct.pack("<Q", key)
    if any(b & 0x7FFFFFFF >= INF_BITS for b in values_bits):
        if not values:
            return head + struct.pack("<I", NAN_BITS) * k
        return head + b"".join(b"\x01" + b"\x80" * m for m in bucket_sizes(k, NATURAL_BLOCK))
    return head + _encode_values(values_bits, dtype, values, stream, randk_indices(key, n, k))


def adacomp_select(g_bits, r_bits, bin_size, factor):
    """(pattern of S, [(index, sign)] of the elements to be sent), or None if some G is non-finite."""
    wanted = with_residual(g_bits, r_bits)
    if any(b & 0x7FFFFFFF >= INF_BITS for b in wanted):
        return None
    d = fl(factor - 1.0)
    maxima, chosen = [], []
    for start in range(0, len(wanted), bin_size):
        part = wanted[start:start + bin_size]
        m_b = max(b & 0x7FFFFFFF for b in part)
        maxima.append(m_b)
        for i, b in enumerate(part, start):
            h = fl(float_of(b) + fl(d * float_of(g_bits[i])))
            if b & 0x7FFFFFFF and bits_of(h) & 0x7FFFFFFF >= m_b:
                chosen.append((i, b >> 31))
    total = 0.0
    for start in range(0, len(maxima), 256):
        part = 0.0
        for m_b in maxima[start:start + 256]:
            part += float_of(m_b)
        total += part
    return bits_of(fl(total / len(maxima))) if maxima else 0, chosen


def adacomp_entries(chosen, count, bin_size):
    """The entries of form 0 (without the header) as numbers."""
    empty = 0x3F if entry_bytes_of(bin_size) == 1 else 0x3FFF
    bins = [[] for _ in range(-(-count // bin_size))]
    for i, sign in chosen:
        bins[i // bin_size].append(i % bin_size | sign * (empty + 1))
    out = []
    for entries in bins:
        entries = entries or [empty]
        out += entries[:-1] + [entries[-1] | 2 * (empty + 1)]
    return out


def adacomp_payload(form, scale, chosen, count, bin_size):
    """The payload that sends the chosen elements in form 0 or 1."""
    if form == 0:
        entries = adacomp_entries(chosen, count, bin_size)
        body = struct.pack("<%d%s" % (len(entries), " BH"[entry_bytes_of(bin_size)]), *entries)
        return struct.pack("<B3xIQ", form, scale, len(entries)) + body
    bitmap = sum(1 << i for i, _ in chosen).to_bytes(-(-count // 8), "little")
    return struct.pack("<B3xIQ", form, scale, len(chosen)) + bitmap + pack_codes([s for _, s in chosen], 1)


def encode_adacomp(g_bits, r_bits, bin_size, factor, cap):
    """r_bits may be None."""
    count = len(g_bits)
    selected = adacomp_select(g_bits, r_bits, bin_size, factor)
    if selected is None:
        return struct.pack("<B3xIQ", 2, NAN_BITS, 0)
    scale, chosen = selected
    most = adacomp_most({"bin": bin_size, "cap": cap}, count)

    def held(form):
        """The longest beginning that fits: (elements, -bytes, -form, payload), or None if not even none do."""
        low, high = -1, len(chosen)  # payloads do not get shorter with more elements
        while low < high:
            middle = (low + high + 1) // 2
            if len(adacomp_payload(form, scale, chosen[:middle], count, bin_size)) <= most:
                low = middle
            else:
                high = middle - 1
        if low < 0:
            return None
        payload = adacomp_payload(form, scale, chosen[:low], count, bin_size)
        return low, -len(payload), -form, payload

    return max(found for found in (held(0), held(1)) if found)[3]


# ---- Input files of --against --------------------------------------------------------------------

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


# ---- Command line --------------------------------------------------------------------------------

KNOWN_STREAMS = [  # seed, step, tensor, point, rank
    (0, 0, 0, 0, 0),
    (1, 0, 0, 0, 0),
    (0, 1, 0, 0, 0),
    (0, 0, 1, 0, 0),
    (0, 0, 0, 1, 0),
    (0, 0, 0, 0, 1),
    (0x0123456789ABCDEF, 0xFEDCBA9876543210, 0x8000000000000001, 0xDEADBEEF, 0x80000001),
    (M64, M64, M64, M32, M32),
]
KNOWN_INDICES = [0, 1, 15, 16, 31, 32, 4096, (1 << 33) - 1, 1 << 33, (1 << 34) + 21]


def known_answers():
    """A markdown table of r(i), a row a stream."""
    def show(v):
        return str(v) if v < 1 << 16 else "%X" % v
    titles = ["seed", "step", "tensor", "point", "rank"]
    titles += ["i=%s" % ("2^33-1" if i == (1 << 33) - 1 else "2^33" if i == 1 << 33 else
                         "2^34+21" if i > 1 << 33 else i) for i in KNOWN_INDICES]
    rows = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for stream in KNOWN_STREAMS:
        key = random_key(*stream)
        cells = [show(v) for v in stream] + ["%06X" % r23(key, i) for i in KNOWN_INDICES]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _printable(text):
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _table(rows):
    """Rows of strings as aligned lines; numbers, from the fifth column on, to the right."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(w) if c < 4 else cell.rjust(w)
                 for c, (cell, w) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def describe(frame, values, inputs):
    """What --json prints: one dict a segment."""
    out = []
    for i, segment in enumerate(frame.segments):
        size = len(segment.payload)
        row = {"tensor": segment.name, "spec": segment.spec, "elements": segment.count, "bytes": size,
               "bits_per_element": 8 * size / segment.count if segment.count else 0.0}
        if inputs is not None:
            row["rel_error"], row["cosine"] = compare(inputs[i], values[i])
        out.append(row)
    return out


def print_text(frame, rows):
    head = ["tensor", "dtype", "dims", "spec", "elements", "bytes", "bits/element"]
    measured = bool(rows) and "rel_error" in rows[0]
    lines = [head + (["rel_error", "cosine"] if measured else [])]
    for segment, row in zip(frame.segments, rows):
        cells = [_printable(segment.name) or "(no name)", segment.dtype_name,
                 "x".join(map(str, segment.dims)) or "scalar", segment.spec, str(segment.count),
                 str(row["bytes"]), "%.4f" % row["bits_per_element"]]
        if measured:
            cells += ["%.6g" % row["rel_error"], "%.8f" % row["cosine"]]
        lines.append(cells)
    print("wire version 1, seed %d, step %d, rank %d, point %d, %s payload hashes, %d segments"
          % (frame.seed, frame.step, frame.rank, frame.point,
             "with" if frame.flags & 1 else "without", len(frame.segments)))
    if rows:
        _table(lines)
    print("ok")


def print_json(rows):
    for row in rows:  # JSON has no words for what is not finite
        for key, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                row[key] = None
    print(json.dumps(rows, indent=2))


def _fail(path, error):
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    print("gwframe: %s: %s" % (_printable(path), _printable(reason)), file=sys.stderr)
    return 1


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="gwframe.py", description="Reads a gradwire frame; a second implementation.")
    parser.add_argument("file", nargs="?", metavar="FILE.gw")
    parser.add_argument("--json", action="store_true", help="print the segments as JSON")
    parser.add_argument("--floats", metavar="OUT.f32", help="write all decoded values as raw fp32")
    parser.add_argument("--against", metavar="IN", help="compare with a .safetensors, .npy or .f32 file")
    parser.add_argument("--known-answers", action="store_true", help="print the table of random words")
    args = parser.parse_args(argv)
    if args.known_answers:
        if args.file or args.json or args.floats or args.against:
            parser.error("--known-answers stands alone")
        print(known_answers())
        return 0
    if not args.file:
        parser.error("FILE.gw is missing")
    if args.against and not args.against.endswith(INPUT_KINDS):
        parser.error("--against takes a file ending in %s" % ", ".join(INPUT_KINDS))
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may not fit the terminal

    path = args.file
    try:
        with open(path, "rb") as file:
            frame = read_frame(file.read())
        # Always decoded, so that "ok" covers the whole way.
        values = [decode(segment) for segment in frame.segments]
        inputs = None
        if args.against:
            path = args.against
            inputs = inputs_for(frame, path)
        rows = describe(frame, values, inputs)
        if args.floats:
            path = args.floats
            with open(path, "wb") as file:
                for part in values:
                    file.write(le_bytes(part))
    except (FrameError, InputError, OSError) as error:
        return _fail(path, error)
    except MemoryError:  # 16 bytes of adacomp may stand for any number of NaNs
        return _fail(path, "more elements than fit into memory")
    if args.json:
        print_json(rows)
    else:
        print_text(frame, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
