"""Payload -> numbers."""

import struct
from array import array

from . import lowrank
from .codecs import (ADACOMP, CAST, LOWRANK, NATURAL, NATURAL_BLOCK, NDITHER, RANDK, SIGN, TOPK, bucket_sizes,
                     sent_of)
from .numbers import NAN_BITS, fl, le_array, rounded, u32, u64, widen
from .payload import adacomp_sent, randk_indices, topk_indices

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
        if u32(scale, 0) != NAN_BITS:
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
        indices = randk_indices(u64(payload, 0), count, k)
        return _scattered(count, indices, _decode_values(payload[8:], params["values"], k))
    if codec == LOWRANK:
        return lowrank.decode(payload, params, count)
    return _decode_buckets(codec, params, payload, count)


def decode(segment):
    """The segment's values: array('f'); fp16 and bf16 tensors rounded to their type."""
    patterns = decode_patterns(segment.codec, segment.params, segment.payload, segment.count)
    return array("f", rounded(patterns, segment.dtype).tobytes())
