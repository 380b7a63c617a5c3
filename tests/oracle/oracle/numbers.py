"""Number formats: fp32, fp16, bf16 and their bytes."""

import math
import struct
import sys
from array import array

M32 = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF


def u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


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
