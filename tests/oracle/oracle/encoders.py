"""Reference encoders, for small inputs."""

import math
import struct

from .codecs import NATURAL_BLOCK, adacomp_most, bucket_sizes, entry_bytes_of, list_sizes, sent_of
from .numbers import (BF16, F16, F32, INF_BITS, M32, NAN_BITS, bf16_from_f32, bits_of, f16_from_f32, fl,
                      float_of)
from .payload import randk_indices
from .words import random_key

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
