"""Low rank: the matrix, its payload, and a reference encoder whose two products are in double precision."""

import math
import struct

from .numbers import INF_BITS, M32, NAN_BITS, bits_of, fl, float_of, le_array
from .words import random_key, words

HEADER = 8


def shape_of(params, count):
    """(rank, rows, columns) of the factors; rank 0 if the tensor is sent as it is."""
    columns = params["cols"] or math.isqrt(count - 1) + 1 if count else params["cols"]
    rows = -(-count // columns) if count else 0
    rank = params["rank"]
    return (rank if rank * (rows + columns) < count else 0), rows, columns


def size_of(params, count):
    """The bytes of a payload."""
    rank, rows, columns = shape_of(params, count)
    return HEADER + 4 * (rank * (rows + columns) if rank else count)


def wrong_with(payload, params, count):
    """What is corrupt in a payload of the right size, or None."""
    rank, _, columns = shape_of(params, count)
    found = struct.unpack_from("<II", payload)
    if found != (rank, columns):
        return "rank %d and %d columns, not %d and %d" % (*found, rank, columns)
    if rank == 0:
        return None  # every bit pattern is a number
    factors = le_array("I", payload[HEADER:])
    if factors[0] == NAN_BITS:
        at = next((i for i, b in enumerate(factors) if b != NAN_BITS), None)
    else:
        at = next((i for i, b in enumerate(factors) if b & 0x7FFFFFFF >= INF_BITS), None)
    return None if at is None else "factor 0x%08X at byte %d of the payload" % (factors[at], HEADER + 4 * at)


def factors_of(payload, params, count):
    """(left: rows of `rank` numbers, right: `rank` rows of numbers) of a payload that has factors."""
    rank, rows, columns = shape_of(params, count)
    numbers = le_array("f", payload[HEADER:])
    left, right = numbers[:rank * rows], numbers[rank * rows:]
    return ([left[i * rank:(i + 1) * rank] for i in range(rows)],
            [right[k * columns:(k + 1) * columns] for k in range(rank)])


def decode(payload, params, count):
    """fp32 patterns."""
    if shape_of(params, count)[0] == 0:
        return le_array("I", payload[HEADER:])
    left, right = factors_of(payload, params, count)
    out = le_array("I", b"")
    for row in left:
        values = [fl(row[0] * q) for q in right[0]]
        for p, q_row in zip(row[1:], right[1:]):
            values = [fl(v + fl(p * q)) for v, q in zip(values, q_row)]
        out.extend(bits_of(v) if v == v else NAN_BITS for v in values)
    return out[:count]


# ---- Reference encoder ----


def start_of(rank, columns, seed, step, tensor):
    """Q0 without a state: the seeded numbers, exactly."""
    stream = words(random_key(seed, step, tensor, M32 - 1, M32), rank * columns)
    numbers = [((x >> 8) - (x >> 31 << 24)) * 2.0 ** -23 for x in stream]
    return [numbers[k * columns:(k + 1) * columns] for k in range(rank)]


def _dot(a, b):
    """16 lanes, then by halves."""
    lanes = [0.0] * 16
    for i, (x, y) in enumerate(zip(a, b)):
        lanes[i % 16] += x * y
    half = 8
    while half:
        lanes = [lanes[j] + lanes[j + half] for j in range(half)]
        half //= 2
    return lanes[0]


def orthogonal(columns):
    """The columns of P -> those of the orthogonal factor: fp32 numbers, orthonormal or zero."""
    done = []
    for v in columns:
        before = math.sqrt(_dot(v, v))
        for _ in range(2):
            for u in done:
                if any(u):
                    d = _dot(u, v)
                    v = [x - d * y for x, y in zip(v, u)]
        after = math.sqrt(_dot(v, v))
        if after > 2.0 ** -20 * before:
            inverse = 1.0 / after
            done.append([x * inverse for x in v])
        else:
            done.append([0.0] * len(v))
    return [[fl(x) for x in u] for u in done]


def right_of(matrix, columns):
    """Q: each column of the left factor times the matrix, in double precision, rounded once."""
    return [[fl(math.fsum(x * row[j] for x, row in zip(u, matrix))) for j in range(len(matrix[0]))]
            for u in columns]


def matrix_of(values_bits, columns):
    """Rows of numbers; what the last one lacks is zero."""
    numbers = [float_of(b) for b in values_bits]
    numbers += [0.0] * (-len(numbers) % columns)
    return [numbers[at:at + columns] for at in range(0, len(numbers), columns)]


def encode_lowrank(values_bits, params, seed=0, step=0, tensor=0):
    """A payload like the library's up to the last bits of its products; exactly it where they are exact."""
    count = len(values_bits)
    rank, rows, columns = shape_of(params, count)
    head = struct.pack("<II", rank, columns)
    if rank == 0:
        return head + struct.pack("<%dI" % count, *values_bits)
    nan = head + struct.pack("<I", NAN_BITS) * (rank * (rows + columns))
    if any(b & 0x7FFFFFFF >= INF_BITS for b in values_bits):
        return nan
    matrix = matrix_of(values_bits, columns)
    left = [[fl(math.fsum(x * y for x, y in zip(row, q))) for row in matrix]
            for q in start_of(rank, columns, seed, step, tensor)]
    if not all(map(math.isfinite, sum(left, []))):
        return nan
    left = orthogonal(left)
    right = right_of(matrix, left)
    if not all(map(math.isfinite, sum(right, []))):
        return nan
    flat = [u[i] for i in range(rows) for u in left] + sum(right, [])
    return head + struct.pack("<%df" % len(flat), *flat)


def difference(segment, frame, values_bits):
    """What is wrong with a segment that the library encoded, or None: header, orthonormal left factor, right
    factor, and the decoded values against the reference's."""
    params, count = segment.params, segment.count
    rank, rows, columns = shape_of(params, count)
    mine = encode_lowrank(values_bits, params, frame.seed, frame.step, segment.tensor)
    if rank == 0 or struct.unpack_from("<I", mine, HEADER)[0] == NAN_BITS:
        return None if mine == segment.payload else "the bytes differ"
    if mine[:HEADER] != segment.payload[:HEADER]:
        return "the header differs"
    left, right = factors_of(segment.payload, params, count)
    left = [[row[k] for row in left] for k in range(rank)]
    for k, u in enumerate(left):
        for m, v in enumerate(left[:k + 1]):
            want = 1.0 if m == k and any(u) else 0.0
            if abs(math.fsum(x * y for x, y in zip(u, v)) - want) > 1e-5:
                return "left columns %d and %d are not orthonormal" % (m, k)
    for k, (found, want) in enumerate(zip(right, right_of(matrix_of(values_bits, columns), left))):
        if _distance(found, want) > 1e-5 * _norm(want):
            return "right row %d is not the left column times the matrix" % k
    found, want = ([float_of(b) for b in decode(p, params, count)] for p in (segment.payload, mine))
    if _distance(found, want) > 1e-4 * _norm(want):
        return "decoded values are %.2g of their norm off" % (_distance(found, want) / _norm(want))
    return None


def _norm(a):
    return math.sqrt(math.fsum(x * x for x in a))


def _distance(a, b):
    return _norm([x - y for x, y in zip(a, b)])
