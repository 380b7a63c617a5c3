"""Low rank: sizes, refusals, decoding by hand, and what the reference encoder promises."""

import math
import random
import struct
import unittest

import gwframe as gw
from framing import decoded, f32, frame, entry, one, refused

lowrank = gw.lowrank
NAN = 0x7FC00000


def params(rank, cols=0):
    return {"rank": rank, "cols": cols}


def payload_of(rank, columns, *numbers):
    return struct.pack("<II%df" % len(numbers), rank, columns, *numbers)


def gradient(count, seed, scale=1e-2):
    rng = random.Random(seed)
    return [gw.bits_of(gw.fl(rng.gauss(0, scale))) for _ in range(count)]


class Shape(unittest.TestCase):
    def test_columns(self):
        for count, columns, rows in ((1, 1, 1), (2, 2, 1), (4, 2, 2), (5, 3, 2), (9, 3, 3), (10, 4, 3), (17, 5, 4),
                                     ((1 << 48) - 1, 1 << 24, 1 << 24)):
            self.assertEqual(lowrank.shape_of(params(1), count)[1:], (rows, columns), count)
        self.assertEqual(lowrank.shape_of(params(1, 20), 61), (1, 4, 20))
        self.assertEqual(lowrank.shape_of(params(1, 100), 61), (0, 1, 100))  # 101 numbers for 61

    def test_factors_only_where_fewer(self):
        # 6 x 6: rank 2 takes 24 numbers, rank 3 takes 36, which is not fewer than 36.
        self.assertEqual(lowrank.size_of(params(2), 36), 8 + 4 * 24)
        self.assertEqual(lowrank.shape_of(params(3), 36)[0], 0)
        self.assertEqual(lowrank.size_of(params(3), 36), 8 + 4 * 36)
        self.assertEqual(lowrank.size_of(params(4), 0), 8)


class Decoding(unittest.TestCase):
    def test_as_it_is(self):
        bits = f32(1.0, -0.0, math.inf) + [0x7FA12345]
        head = struct.pack("<II", 0, 2)
        self.assertEqual(decoded(9, 4, head + struct.pack("<4I", *bits), params=(4.0,))[:3], bits[:3])
        self.assertEqual(decoded(9, 0, struct.pack("<II", 0, 0)), [])

    def test_factors(self):
        # 5 rows of 8 but for the last, of 6: left factor 5 x 2, right 2 x 8, 26 numbers for 38.
        left = [[1.0, 0.0], [0.0, 1.0], [2.0, -1.0], [0.5, 0.25], [0.0, 0.0]]
        right = [[float(j + 1) for j in range(8)], [float(10 * j) for j in range(8)]]
        want = [p * a + q * b for p, q in left for a, b in zip(*right)][:38]
        data = payload_of(2, 8, *sum(left, []), *sum(right, []))
        got = decoded(9, 38, data, params=(2.0, 8.0))
        self.assertEqual([gw.float_of(b) for b in got], want)

    def test_order_of_rounding(self):
        # 1, then a half ulp twice: each sum rounds to even, so both are lost; in the other order they count.
        tiny = 2.0 ** -24
        rest = [[0.0] * 3] * 7
        right = [[1.0] * 8, [tiny] * 8, [tiny] * 8]
        for first, second in (([1.0, 1.0, 1.0], 1.0), ([1.0, -1.0, -1.0], 1.0 - 2 * tiny)):
            data = payload_of(3, 8, *first, *sum(rest, []), *sum(right, []))
            self.assertEqual(gw.float_of(decoded(9, 64, data, params=(3.0, 8.0))[0]), second)
        right = [[tiny] * 8, [tiny] * 8, [1.0] * 8]
        data = payload_of(3, 8, 1.0, 1.0, 1.0, *sum(rest, []), *sum(right, []))
        self.assertEqual(gw.float_of(decoded(9, 64, data, params=(3.0, 8.0))[0]), 1 + 2.0 ** -23)

    def test_each_product_is_rounded(self):
        # (1 + 2^-23)(1 - 2^-23) rounds to 1; a fused product and sum would leave -2^-46.
        up, down = 1 + 2.0 ** -23, 1 - 2.0 ** -23
        data = payload_of(2, 8, *[-1.0, up] * 8, *[1.0] * 8, *[down] * 8)
        self.assertEqual(decoded(9, 64, data, params=(2.0, 8.0)), [0] * 64)

    def test_not_finite(self):
        data = struct.pack("<II", 1, 4) + struct.pack("<I", NAN) * 8
        self.assertEqual(decoded(9, 16, data, params=(1.0,)), [NAN] * 16)

    def test_rounding_to_the_dtype(self):
        data = payload_of(1, 4, *[1.0] * 4, *[1 + 2.0 ** -11] * 4)
        self.assertEqual(decoded(9, 16, data, dtype=2, params=(1.0,)), f32(1.0) * 16)


class Refusals(unittest.TestCase):
    GOOD = payload_of(1, 4, *[1.0] * 8)

    def test_header(self):
        gw.read_frame(one(9, 16, self.GOOD, params=(1.0,)))
        for rank, columns in ((0, 4), (2, 4), (1, 3), (1, 5), (1 << 31, 4)):
            data = struct.pack("<II", rank, columns) + self.GOOD[8:]
            refused(self, "rank %d and %d columns, not 1 and 4" % (rank, columns), 9, 16, data, params=(1.0,))
        refused(self, "rank 1 and 2 columns, not 0 and 2", 9, 4, payload_of(1, 2, *[0.0] * 4))

    def test_length(self):
        for data in (self.GOOD[:-4], self.GOOD + bytes(4)):
            refused(self, "take 40", 9, 16, data, params=(1.0,))
        refused(self, "take 8", 9, 0, b"")

    def test_numbers(self):
        for at in (0, 1, 4, 7):
            for bits in (0x7F800000, 0xFF800000, 0x7F800001, NAN, 0xFFC00000):
                factors = f32(*[1.0] * 8)
                factors[at] = bits
                data = self.GOOD[:8] + struct.pack("<8I", *factors)
                refused(self, "at byte", 9, 16, data, params=(1.0,))
            factors = [NAN] * 8
            factors[at] = f32(1.0)[0]
            refused(self, "at byte", 9, 16, self.GOOD[:8] + struct.pack("<8I", *factors), params=(1.0,))
        refused(self, "0xFFC00000", 9, 16, self.GOOD[:8] + struct.pack("<I", 0xFFC00000) * 8, params=(1.0,))

    def test_parameters(self):
        for given, words in (((0.0,), "rank is 0"), ((257.0,), "rank is 257"), ((1.5,), "whole"),
                             ((1.0, -1.0), "cols is -1"), ((1.0, 2.0 ** 31), "cols is 2147483648")):
            refused(self, words, 9, 16, self.GOOD, params=given)
        segment, = gw.read_frame(one(9, 16, payload_of(0, 4, *[0.0] * 16))).segments
        self.assertEqual(segment.spec, "lowrank:rank=4,cols=0")


class Encoder(unittest.TestCase):
    def test_start(self):
        rows = lowrank.start_of(3, 50, 1, 2, 3)
        key = gw.random_key(1, 2, 3, (1 << 32) - 2, (1 << 32) - 1)
        for k, j in ((0, 0), (0, 49), (1, 0), (2, 49)):
            x = gw.word(key, 50 * k + j)
            signed = struct.unpack("<i", struct.pack("<I", x))[0] >> 8
            self.assertEqual(rows[k][j], signed / 2.0 ** 23)
        self.assertTrue(all(-1 <= v < 1 for row in rows for v in row))
        self.assertTrue(min(map(min, rows)) < -0.9 and max(map(max, rows)) > 0.9)

    def test_orthogonal(self):
        rng = random.Random(4)
        columns = [[rng.gauss(0, 1) for _ in range(37)] for _ in range(3)]
        columns.insert(1, [2 * x for x in columns[0]])                          # spanned already: zero
        columns.append([0.0] * 37)
        columns.append([x + 1e-4 * y for x, y in zip(columns[0], reversed(columns[2]))])
        found = lowrank.orthogonal(columns)
        self.assertEqual([any(u) for u in found], [True, False, True, True, False, True])
        for a, u in enumerate(found):
            for b, v in enumerate(found[:a + 1]):
                want = 1.0 if a == b and any(u) else 0.0
                self.assertAlmostEqual(sum(x * y for x, y in zip(u, v)), want, delta=1e-6)

    def test_a_matrix_of_that_rank_comes_back(self):
        rng = random.Random(5)
        left = [[rng.gauss(0, 1) for _ in range(2)] for _ in range(11)]
        right = [[rng.gauss(0, 1) for _ in range(13)] for _ in range(2)]
        bits = [gw.bits_of(gw.fl(sum(p * q[j] for p, q in zip(row, right)))) for row in left for j in range(13)]
        for rank in (2, 3):
            data = lowrank.encode_lowrank(bits, params(rank, 13))
            self.assertEqual(len(data), lowrank.size_of(params(rank, 13), 143))
            for a, b in zip(bits, lowrank.decode(data, params(rank, 13), 143)):
                self.assertAlmostEqual(gw.float_of(a), gw.float_of(b), delta=1e-5)
        data = lowrank.encode_lowrank(bits, params(1, 13))
        worst = max(abs(gw.float_of(a) - gw.float_of(b)) for a, b in zip(bits, lowrank.decode(data, params(1, 13), 143)))
        self.assertGreater(worst, 0.1)

    def test_last_row_is_filled_with_zeros(self):
        bits = gradient(61, 6)
        short = lowrank.encode_lowrank(bits, params(1, 8))
        self.assertEqual(short, lowrank.encode_lowrank(bits + [0, 0, 0], params(1, 8)))

    def test_not_finite(self):
        for bad in (NAN, 0x7F800000, 0xFF812345):
            data = lowrank.encode_lowrank(gradient(63, 7) + [bad], params(2, 8))
            self.assertEqual(data, struct.pack("<II", 2, 8) + struct.pack("<I", NAN) * 32)
        data = lowrank.encode_lowrank([0x7F7FFFFF] * 64, params(1, 8))  # the norm of a row of Q overflows
        self.assertEqual(data, struct.pack("<II", 1, 8) + struct.pack("<I", NAN) * 16)
        few = gradient(3, 8) + [NAN]
        self.assertEqual(lowrank.encode_lowrank(few, params(4)), struct.pack("<II4I", 0, 2, *few))


class Difference(unittest.TestCase):
    """What tells a wrong encoder from one with other last bits."""

    BITS = gradient(240, 9)
    PARAMS = (2.0, 20.0)

    def wrong(self, data, seed=1):
        got = gw.read_frame(frame((entry(9, 240, data, params=self.PARAMS, tensor=5), data), seed=seed, step=2))
        return lowrank.difference(got.segments[0], got, self.BITS)

    def test_each_part_is_looked_at(self):
        good = lowrank.encode_lowrank(self.BITS, params(2, 20), 1, 2, 5)
        self.assertIsNone(self.wrong(good))
        numbers = list(struct.unpack_from("<64f", good, 8))

        def changed(at, factor):
            new = numbers[:]
            for i in at:
                new[i] *= factor
            return good[:8] + struct.pack("<64f", *new)

        self.assertIsNone(self.wrong(changed(range(64), 1 + 2.0 ** -23)))         # last bits are free
        self.assertIn("orthonormal", self.wrong(changed([3], 1.01)))
        self.assertIn("right row 1", self.wrong(changed([50], 1.01)))
        self.assertIn("decoded values", self.wrong(lowrank.encode_lowrank(self.BITS, params(2, 20), 1, 2, 6)))
        self.assertIn("decoded values", self.wrong(good, seed=7))
