"""The rules of each payload, and which elements it sends."""

from . import lowrank
from .codecs import (ADACOMP, ADACOMP_HEADER, CAST, LOWRANK, NATURAL, NATURAL_BLOCK, RANDK, SIGN, TOPK, FrameError,
                     bucket_sizes, check, entry_bytes_of, list_sizes, sent_of, value_bytes)
from .numbers import INF_BITS, NAN_BITS, le_array, u32, u64
from .words import words

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
    check(len(positions) == k, "%s: %d ones in the high bits, but %d elements are sent",
           where, len(positions), k)
    lows = unpack_wide(payload[at:at + low_size], low, k)
    indices = [position - j << low | rest for j, (position, rest) in enumerate(zip(positions, lows))]
    for before, after in zip(indices, indices[1:]):
        if after <= before:
            raise FrameError("%s: index %d after index %d" % (where, after, before))
    check(not indices or indices[-1] < count, "%s: index %d of %d elements",
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
    check(len(payload) == ADACOMP_HEADER + width * entries,
           "%s: %d bytes, but %d entries of %d bytes take %d", where, len(payload), entries, width,
           ADACOMP_HEADER + width * entries)
    empty = 0x3F if width == 1 else 0x3FFF  # the index of a bin that sends nothing
    sign, last = empty + 1, 2 * (empty + 1)
    bins = -(-count // bin_size)
    indices, signs = [], []
    first = marks = 0  # the bin's first element, the bins that have ended
    least, length = 0, min(bin_size, count)  # of the next index
    for j, v in enumerate(le_array("B" if width == 1 else "H", payload[ADACOMP_HEADER:])):
        check(marks < bins, "%s: entry %d of %d comes after the last of %d bins", where, j, entries, bins)
        index = v & empty
        if index == empty:
            check(not v & sign, "%s: entry %d, of an empty bin, has a sign", where, j)
            check(v & last and least == 0, "%s: entry %d, of an empty bin, is not alone in it", where, j)
        else:
            check(index < length, "%s: entry %d has index %d in a bin of %d elements",
                   where, j, index, length)
            check(index >= least, "%s: entry %d has index %d after index %d", where, j, index, least - 1)
            indices.append(first + index)
            signs.append(1 if v & sign else 0)
            least = index + 1
        if v & last:
            marks += 1
            first += bin_size
            least, length = 0, min(bin_size, count - first)
    check(marks == bins, "%s: %d last marks, but %d bins", where, marks, bins)
    return indices, signs


def _adacomp_bitmap(payload, count, sent, where):
    """Form 1 -> (indices, signs)."""
    middle = ADACOMP_HEADER + -(-count // 8)
    check(len(payload) == middle + -(-sent // 8),
           "%s: %d bytes, but a bitmap of %d elements and %d signs take %d", where, len(payload), count,
           sent, middle + -(-sent // 8))
    _check_unused(payload, ADACOMP_HEADER, count, "bitmap", where)
    _check_unused(payload, middle, sent, "sign", where)
    indices = set_bits(payload[ADACOMP_HEADER:middle])
    check(len(indices) == sent, "%s: %d bits of the bitmap are set, but %d elements are sent",
           where, len(indices), sent)
    signs = [0] * sent
    for j in set_bits(payload[middle:]):
        signs[j] = 1
    return indices, signs


def adacomp_sent(payload, count, bin_size, where):
    """(pattern of S, indices, signs), or None for a non-finite tensor; or FrameError.

    Everything about the payload but its length's bound is checked here.
    """
    check(len(payload) >= ADACOMP_HEADER, "%s: %d bytes, fewer than a header's 16", where, len(payload))
    form, zero, scale, sent = payload[0], payload[1:4], u32(payload, 4), u64(payload, 8)
    check(form <= 2, "%s: form %d is unknown", where, form)
    check(not any(zero), "%s: the zero bytes at byte 1 of the payload are not zero", where)
    if form == 2:
        check(scale == NAN_BITS, "%s: scale 0x%08X in form 2", where, scale)
        check(sent == 0, "%s: %d elements sent in form 2", where, sent)
        check(len(payload) == ADACOMP_HEADER, "%s: %d bytes in form 2, not 16", where, len(payload))
        return None
    check(scale < INF_BITS, "%s: scale 0x%08X at byte 4 of the payload is corrupt", where, scale)
    if form == 0:
        return (scale, *_adacomp_entries(payload, count, bin_size, sent, where))
    return (scale, *_adacomp_bitmap(payload, count, sent, where))


def _check_unused(data, at, bits, what, where):
    """The bits of a string of so many bits that begins at byte at, from its end to its last byte's."""
    end = at + -(-bits // 8)
    if bits % 8 and data[end - 1] >> bits % 8:
        raise FrameError("%s: unused %s bits are not zero at byte %d of the payload"
                         % (where, what, end - 1))


def _check_natural8(data, at, count, where):
    for m in bucket_sizes(count, NATURAL_BLOCK):
        check(1 <= data[at] <= 128, "%s: base %d at byte %d of the payload is not in 1 ... 128",
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
        scale = u32(data, at)
        check(scale < INF_BITS or scale == NAN_BITS,
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
    elif segment.codec == LOWRANK:
        wrong = lowrank.wrong_with(data, params, count)
        check(wrong is None, "%s: %s", where, wrong)
    elif segment.codec == SIGN:
        _check_buckets(data, count, params["bucket"], 1, "sign", where)
    else:
        _check_buckets(data, count, params["bucket"], params["bits"], "code", where)
