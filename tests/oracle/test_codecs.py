"""Random words, encoders and decoders of the codecs that take block by block, and the laws of all."""

import math
import os
import random
import struct
import unittest

import gwframe as gw
from framing import FixedRandom, R_MAX, decoded, f32, refused


class RandomWords(unittest.TestCase):
    def test_bijection_of_the_number(self):
        key = gw.random_key(1, 2, 3, 4, 5)
        self.assertEqual(len({gw.word(key, t) for t in range(20000)}), 20000)

    def test_every_field_counts(self):
        keys = [gw.random_key(*stream) for stream in gw.KNOWN_STREAMS]
        self.assertEqual(len(set(keys)), len(keys))

    def test_two_elements_share_a_word(self):
        key = gw.random_key(1, 2, 3, 4, 5)
        for i in (0, 7, 15, 32, 4096 + 3):
            self.assertEqual(gw.r23(key, i) & 0x7F, gw.r23(key, i + 16) >> 16)
            self.assertEqual(gw.r23(key, i + 16) & 0x7F, gw.r23(key, i) >> 16)

    def test_known_answers_stand_on_the_page(self):
        # Should they change, every golden frame does.
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/numerics.md")
        with open(page, encoding="utf-8") as file:
            self.assertIn(gw.known_answers(), file.read())


def rounds_up(goes_up):
    """For how many r in 0 ... 2^23 - 1 goes_up(r) holds; it must not change back as r grows."""
    low, high = 0, 1 << 23  # the first r that goes up lies in low ... high
    while low < high:
        middle = (low + high) // 2
        if goes_up(middle):
            high = middle
        else:
            low = middle + 1
    return (1 << 23) - low


class Natural(unittest.TestCase):
    CASES = [(2.5, 2097152), (-2.75, 3145728), (1.0, 0), (3.0, 4194304), (gw.fl(-0.1), 5033165),
             (gw.fl(1.3333334), 2796203), (gw.fl(1.9999999), 8388607), (2.0 ** -126, 0),
             (gw.fl(1e-40), 71362), (2.0 ** -149, 1)]

    def test_number_of_carries(self):
        for x, expected in self.CASES:
            b = f32(x)[0]
            e = (b & 0x7FFFFFFF) >> 23
            self.assertEqual(rounds_up(lambda r: gw.natural_exponent(b, r, gw.F32) > e), expected, x)

    def test_unbiased(self):
        # count * upper + (2^23 - count) * lower is 2^23 times the number, exactly.
        for x, count in self.CASES:
            e = (f32(x)[0] & 0x7FFFFFFF) >> 23
            lower = 2.0 ** (e - 127) if e else 0.0
            upper = 2.0 ** (e - 126)
            self.assertEqual(count * upper + ((1 << 23) - count) * lower, abs(x) * 2.0 ** 23)

    def test_bits9(self):
        values = f32(2.5, -2.75, -0.0, 0.0, -math.inf) + [0x7FC00000, 0xFFC00000, 0x80000001]
        self.assertEqual(gw.encode_natural(values, gw.F32, 9, FixedRandom(0)),
                         bytes([128, 128, 0, 0, 255, 255, 255, 0, 0b01010010]))
        self.assertEqual(gw.encode_natural(values, gw.F32, 9, FixedRandom(R_MAX)),
                         bytes([129, 129, 0, 0, 255, 255, 255, 1, 0b11010010]))

    def test_largest_number_stays(self):
        for dtype, top, largest in ((gw.F32, 254, 0x7F7FFFFF), (gw.BF16, 254, 0x7F7F0000),
                                    (gw.F16, 142, 0x477FE000)):
            self.assertEqual(gw.encode_natural([largest], dtype, 9, FixedRandom(R_MAX)), bytes([top, 0]))

    def test_bits8(self):
        values = f32(1.0, -2.0, 0.0, -0.0, math.inf) + [0xFFC00001] + f32(2.0 ** -126, -(2.0 ** -125))
        # Emax = 128: base 2, below it lies 2^-126 and stays with probability 1/2.
        self.assertEqual(gw.encode_natural(values, gw.F32, 8, FixedRandom(0)),
                         bytes([2, 126, 0xFF, 0, 0, 0x80, 0x80, 0, 0x81]))
        self.assertEqual(gw.encode_natural(values, gw.F32, 8, FixedRandom(R_MAX)),
                         bytes([2, 126, 0xFF, 0, 0, 0x80, 0x80, 1, 0x81]))
        self.assertEqual(gw.encode_natural([0x80000001, 0x00400000], gw.F32, 8, FixedRandom(0)),
                         bytes([1, 0, 0]))
        self.assertEqual(gw.encode_natural([0x80000001, 0x00400000], gw.F32, 8, FixedRandom(R_MAX)),
                         bytes([1, 0x81, 1]))
        self.assertEqual(gw.encode_natural([0x7F800000], gw.F32, 8, FixedRandom(0)), bytes([1, 0x80]))

    def test_below_the_range(self):
        b = f32(1.5)[0]
        for base, expected in ((128, 3 << 21), (129, 3 << 20), (127 + 24, 0), (127 + 23, 1)):
            count = rounds_up(lambda r: gw.natural_level(b, r, gw.F32, base) == 1)
            self.assertEqual(count, expected, base)
        for b in (1, 0x7FFFFF):  # where base is 1, both formulas say the same of subnormals
            self.assertEqual(rounds_up(lambda r: gw.natural_level(b, r, gw.F32, 1) == 1), b)


class Dithers(unittest.TestCase):
    def test_dither(self):
        values = f32(1.0, -1.0, 0.5, -0.25, 0.0, -0.0)
        # s = 3; in steps: 3, 3, 1.5, 0.75 and a little.
        low = gw.encode_dither(values, gw.F32, 3, 64, False, FixedRandom(0))
        self.assertEqual(low, struct.pack("<f", 1.0) + gw.pack_codes([3, 7, 1, 0, 0, 0], 3))
        high = gw.encode_dither(values, gw.F32, 3, 64, False, FixedRandom(R_MAX))
        self.assertEqual(high, struct.pack("<f", 1.0) + gw.pack_codes([3, 7, 2, 5, 0, 0], 3))
        nearest = gw.encode_dither(values, gw.F32, 3, 64, True, None)
        self.assertEqual(nearest, struct.pack("<f", 1.0) + gw.pack_codes([3, 7, 2, 5, 0, 0], 3))

    def test_ndither(self):
        values = f32(1.0, -0.75, 0.125, -0.0625, 0.0, -0.0)
        # s = 3, levels 1/4, 1/2, 1.
        low = gw.encode_ndither(values, gw.F32, 3, 64, FixedRandom(0))
        self.assertEqual(low, struct.pack("<f", 1.0) + gw.pack_codes([3, 6, 0, 0, 0, 0], 3))
        high = gw.encode_ndither(values, gw.F32, 3, 64, FixedRandom(R_MAX))
        self.assertEqual(high, struct.pack("<f", 1.0) + gw.pack_codes([3, 7, 1, 5, 0, 0], 3))

    def test_probabilities(self):
        # Off by the factor 1 + 2^-22 and roundings only.
        for x, s, expected in ((0.5, 3, 0.5), (0.25, 3, 0.75), (0.3, 7, 0.1), (0.01, 127, 0.27)):
            below = math.floor(x * s)
            count = rounds_up(lambda r: gw.dither_level(gw.fl(x), 1.0, s, r) > below)
            self.assertAlmostEqual(count / 2.0 ** 23, expected, delta=2e-6 * s)
        for x, s, k, expected in ((0.75, 3, 2, 0.5), (0.125, 3, 0, 0.5), (0.3, 3, 1, 0.2)):
            count = rounds_up(lambda r: gw.ndither_level(gw.fl(x), 1.0, s, r) > k)
            self.assertAlmostEqual(count / 2.0 ** 23, expected, delta=1e-6)

    def test_the_maximum_is_reproduced(self):
        rng = random.Random(7)
        scales = [1, 2, 3, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x217FFFFF, 0x21800000, 0x21800001,
                  0x5D7FFFFF, 0x5D800000, 0x5D800001] + [rng.randrange(1, gw.INF_BITS) for _ in range(300)]
        for b in scales:
            x = gw.float_of(b)
            for bits in range(2, 9):
                s = (1 << (bits - 1)) - 1
                for r in (0, R_MAX):
                    self.assertEqual(gw.dither_level(x, x, s, r), s, hex(b))
                    self.assertEqual(gw.ndither_level(x, x, s, r), s, hex(b))

    def test_special_buckets(self):
        values = f32(*[1.0] * 63, math.inf) + f32(*[-0.0] * 64) + f32(0.5)
        expected = (struct.pack("<I", 0x7FC00000) + bytes(32) + bytes(4 + 32)
                    + struct.pack("<f", 0.5) + bytes([7]))
        self.assertEqual(gw.encode_dither(values, gw.F32, 4, 64, False, gw.Stream()), expected)
        self.assertEqual(gw.encode_ndither(values, gw.F32, 4, 64, gw.Stream()), expected)


class Sign(unittest.TestCase):
    P64 = {"params": (64.0,)}

    def test_decode(self):
        payload = (struct.pack("<f", 1.5) + bytes([0b10000001]) + bytes(6) + b"\x80"
                   + struct.pack("<I", 0x7FC00000) + b"\x01" + bytes(7)
                   + bytes(4) + bytes(8) + struct.pack("<I", 1) + b"\x02")
        expected = (f32(-1.5, *[1.5] * 6, -1.5, *[1.5] * 55, -1.5) + [0x7FC00000] * 64 + [0] * 64
                    + [1, 0x80000001, 1])
        self.assertEqual(decoded(8, 195, payload, **self.P64), expected)
        # The sum of the sizes: 4 a bucket, and a bit an element.
        self.assertEqual(len(payload), 4 * 4 + -(-195 // 8))
        self.assertEqual(decoded(8, 0, b""), [])

    def test_rounding_to_the_dtype(self):
        payload = struct.pack("<fB", 65520.0, 2)
        self.assertEqual(decoded(8, 2, payload, dtype=2), f32(math.inf, -math.inf))

    def test_refusals(self):
        refused(self, "unused sign bits", 8, 3, struct.pack("<fB", 1.0, 8))
        refused(self, "unused sign bits", 8, 67, struct.pack("<f8xfB", 1.0, 1.0, 8), **self.P64)
        refused(self, "scale 0xBF800000 at byte 12", 8, 67, struct.pack("<f8xfB", 1.0, -1.0, 0), **self.P64)
        refused(self, "payload of 6 bytes", 8, 3, bytes(6))

    def test_encode(self):
        self.assertEqual(gw.encode_sign(f32(1.0, -2.0, -0.0, 0.5, -0.5), 64),
                         struct.pack("<fB", gw.fl(0.8), 0b10010))
        self.assertEqual(gw.encode_sign([], 64), b"")
        parts = f32(*[1.0] * 63, -math.inf) + f32(*[-0.0] * 64) + f32(-3.0)
        self.assertEqual(gw.encode_sign(parts, 64), struct.pack("<I8x4x8xfB", 0x7FC00000, 3.0, 1))

    def test_lanes(self):
        # In lane 0 the ones are lost one by one; in lanes of their own they are not.
        big = 2.0 ** 24
        values = [big] + [0.0] * 31 + [1.0] + [0.0] * 31
        self.assertEqual(gw.sign_scale(f32(*values)), f32(big / 64)[0])
        values = [big] + [0.0] * 15 + [1.0] + [0.0] * 7 + [1.0] + [0.0] * 39  # 24 joins 8, 16 joins 0
        self.assertEqual(gw.sign_scale(f32(*values)), f32(big / 64)[0])
        values = [big] + [0.0] * 7 + [1.0] + [0.0] * 15 + [1.0] + [0.0] * 39  # 24 and 8 make 2 first
        self.assertEqual(gw.sign_scale(f32(*values)), f32((big + 2) / 64)[0])

    def test_extremes(self):
        # A mean of equal numbers; the largest ones are halved 64 times on the way.
        for b in (0x7F7FFFFF, 0x71800001, 0x71800000, 0x00800000, 1):
            for m in (1, 2, 64):
                self.assertEqual(gw.sign_scale([b | 0x80000000] * m), b)
        # A mean below half the smallest number is zero, and then there are no signs.
        self.assertEqual(gw.encode_sign([0x80000001, 0, 0], 64), bytes(5))
        self.assertEqual(gw.encode_sign([0x80000001, 1], 64), struct.pack("<IB", 1, 1))
        # With P = 2^-64 small numbers round before they are added.
        self.assertEqual(gw.sign_scale([0x71800001, 0x3F800000]), 0x71000001)

    def test_largest_mean_is_finite(self):
        # Rounding is monotone, so that numbers as large as possible are the worst case.
        top = gw.float_of(0x7F7FFFFF)
        sums = [0.0]
        for _ in range(8192 // 32):
            sums.append(gw.fl(sums[-1] + gw.fl(top * 2.0 ** -64)))
        for m in range(1, 8193):
            lane = [sums[m // 32 + (j < m % 32)] for j in range(32)]
            for h in (16, 8, 4, 2, 1):
                lane = [gw.fl(lane[j] + lane[j + h]) for j in range(h)]
            self.assertLess(gw.fl(gw.fl(lane[0] / m) * 2.0 ** 64), math.inf)

    def test_cutting(self):
        rng = random.Random(2)
        values = f32(*[gw.fl(rng.gauss(0, 1)) for _ in range(300)])
        self.assertEqual(gw.encode_sign(values, 64),
                         b"".join(gw.encode_sign(values[at:at + 128], 64) for at in (0, 128, 256)))


class Feedback(unittest.TestCase):
    def test_two_roundings(self):
        # fl(1 + 2^-24) = 1, and 1 - 0.75 is exact.
        self.assertEqual(gw.after_feedback(f32(1.0), f32(2.0 ** -24), f32(0.75)), f32(0.25))
        self.assertEqual(gw.after_feedback(f32(1.0), None, f32(2.0 ** -30)), f32(1.0))
        self.assertEqual(gw.after_feedback(f32(-0.0), None, f32(0.0)), f32(-0.0))
        nan, = gw.after_feedback(f32(1.0), f32(1.0), [0x7FC00000])
        self.assertGreater(nan & 0x7FFFFFFF, gw.INF_BITS)

    def test_nothing_is_lost(self):
        # Small whole numbers: every operation is exact, and what was sent and what is left is all there was.
        rng = random.Random(6)
        n = 128
        encoders = (
            (6, (0.125,), lambda g, r: gw.encode_topk(gw.with_residual(g, r), gw.F32, 0.125, 0, None)),
            (6, (0.125, 1.0),
             lambda g, r: gw.encode_topk(gw.with_residual(g, r), gw.F32, 0.125, 1, gw.Stream(3))),
            (7, (0.125,), lambda g, r: gw.encode_randk(gw.with_residual(g, r), gw.F32, 0.125, 0, 77, None)),
            (5, (1.0,), lambda g, r: gw.encode_adacomp(g, r, 1, 2.0, 0)),
            (8, (64.0,), lambda g, r: gw.encode_sign(gw.with_residual(g, r), 64)))
        for codec, params, encode in encoders:
            total, sent, residual = [0.0] * n, [0.0] * n, None
            for _ in range(4):
                g = f32(*[float(rng.randrange(-64, 65)) for _ in range(n)])
                got = decoded(codec, n, encode(g, residual), params=params)
                residual = gw.after_feedback(g, residual, got)
                total = [a + gw.float_of(b) for a, b in zip(total, g)]
                sent = [a + gw.float_of(b) for a, b in zip(sent, got)]
            for i in range(n):
                self.assertAlmostEqual(sent[i] + gw.float_of(residual[i]), total[i], delta=1e-3, msg=(codec, i))
                if codec in (6, 7):
                    self.assertEqual(sent[i] + gw.float_of(residual[i]), total[i])


class Laws(unittest.TestCase):
    """What holds for all codecs."""

    def setUp(self):
        rng = random.Random(11)
        self.values = f32(*[gw.fl(rng.gauss(0, 1) * 10.0 ** rng.randrange(-4, 4)) for _ in range(9000)])
        self.stream = gw.Stream(1, 2, 3, 4, 5)

    def encoders(self):
        st = self.stream
        yield 1, (2.0,), 4096, lambda v, first: gw.encode_cast(v, gw.F16)
        yield 1, (3.0,), 4096, lambda v, first: gw.encode_cast(v, gw.BF16)
        for bits in (8, 9):
            yield 2, (float(bits),), 4096, (
                lambda v, first, b=bits: gw.encode_natural(v, gw.F32, b, st, first))
        for bits in (2, 5, 8):
            yield 3, (float(bits), 64.0), 64, (
                lambda v, first, b=bits: gw.encode_ndither(v, gw.F32, b, 64, st, first))
            yield 4, (float(bits), 64.0), 64, (
                lambda v, first, b=bits: gw.encode_dither(v, gw.F32, b, 64, False, st, first))

    def test_cutting(self):
        for codec, params, grain, encode in self.encoders():
            n = grain * 2 + 50
            values = self.values[:n]
            pieces = b"".join(encode(values[at:at + grain], at) for at in range(0, n, grain))
            self.assertEqual(encode(values, 0), pieces, (codec, params))

    def test_neighbouring_level(self):
        # What comes out has the input's sign and lies within one level of it.
        n = 4200
        for codec, params, _, encode in self.encoders():
            payload = encode(self.values[:n], 0)
            got = decoded(codec, n, payload, params=params)
            for at in range(0, n, 64):
                xs = [gw.float_of(b) for b in self.values[at:at + 64][:n - at]]
                scale = max(abs(x) for x in xs)
                for x, b in zip(xs, got[at:at + 64]):
                    y = gw.float_of(b)
                    if codec == 1:
                        bound = abs(x) * 2.0 ** -8 + 2.0 ** -25
                    elif codec == 2:
                        bound = abs(x) + 1e-30
                    else:
                        s = 2 ** (int(params[0]) - 1) - 1
                        bound = scale / s if codec == 4 else max(abs(x), scale * 2.0 ** (1 - s))
                    self.assertLessEqual(abs(x - y), bound * (1 + 1e-6), (codec, params, x, y))
                    self.assertGreaterEqual(x * y, 0.0)
