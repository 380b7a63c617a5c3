"""The codecs that select: topk, randk, adacomp."""

import random
import struct
import unittest

import gwframe as gw
from framing import FixedRandom, R_MAX, decoded, f32, one, refused


class Selection(unittest.TestCase):
    def test_number_sent(self):
        for density, n, k in ((0.01, 0, 0), (0.01, 1, 1), (1e-6, 10, 1), (0.5, 3, 2), (0.5, 1, 1),
                              (0.01, 249, 2), (0.01, 250, 3), (1.0, 7, 7), (0.999, 100, 100), (0.99, 10, 10),
                              (1.0, (1 << 48) - 1, (1 << 48) - 1), (0.01, 10 ** 12, 10 ** 10)):
            self.assertEqual(gw.sent_of(density, n), k, (density, n))

    def test_low_bits(self):
        for n, k, low in ((0, 0, 0), (1, 1, 0), (7, 4, 0), (8, 4, 1), (15, 4, 1), (16, 4, 2), (1000, 10, 6),
                          (1 << 47, 1, 47)):
            self.assertEqual(gw.low_bits(n, k), low)
            self.assertTrue(k == 0 or k << low <= n < k << low + 1)

    def test_unpack_wide(self):
        rng = random.Random(1)
        for bits in (0, 1, 2, 7, 8, 9, 13, 20, 47):
            for count in (0, 1, 7, 8, 9, 64, 65):
                codes = [rng.getrandbits(bits) if bits else 0 for _ in range(count)]
                self.assertEqual(gw.unpack_wide(gw.pack_codes(codes, bits), bits, count), codes)

    def test_words(self):
        key = gw.random_key(1, 2, 3, 4, 5)
        for first in (0, 5, (1 << 32) - 3, (7 << 32) - 1):
            self.assertEqual(gw.words(key, 9, first), [gw.word(key, first + j) for j in range(9)])


class TopK(unittest.TestCase):
    # n = 16, k = 4: l = 2, U = 4 + (15 >> 2) = 7. Indices 1, 2, 7, 13: low bits 01 10 11 01,
    # high parts 0, 0, 1, 3 at bits 0, 1, 3, 6.
    P = {"params": (0.25,)}
    VALUES = struct.pack("<4f", 1.5, -2.0, 0.25, -0.0)
    LOW, HIGH = bytes([0b01_11_10_01]), bytes([0b1001011])

    def test_decode(self):
        expected = [0] * 16
        for i, b in zip((1, 2, 7, 13), f32(1.5, -2.0, 0.25, -0.0)):
            expected[i] = b
        self.assertEqual(decoded(6, 16, self.VALUES + self.LOW + self.HIGH, **self.P), expected)
        self.assertEqual(decoded(6, 0, b"", dims=[0]), [])
        self.assertEqual(decoded(6, 0, b"", dims=[0], params=(1.0, 1.0)), [])

    def test_decode_natural(self):
        payload = bytes([100, 28, 0x80 | 29, 0x80, 0]) + self.LOW + self.HIGH
        expected = [0] * 16
        expected[1], expected[2], expected[7] = f32(1.0)[0], f32(-2.0)[0], 0x7FC00000
        self.assertEqual(decoded(6, 16, payload, params=(0.25, 1.0)), expected)

    def test_decode_all(self):
        # k = n = 3: l = 0, no low bits, U = 5 with ones at 0, 2, 4.
        payload = struct.pack("<3fB", 1.0, -2.0, 3.0, 0b10101)
        self.assertEqual(decoded(6, 3, payload, params=(1.0,)), f32(1.0, -2.0, 3.0))

    def test_refusals(self):
        def no(words, low, high, n=16, params=(0.25,), values=self.VALUES):
            refused(self, words, 6, n, values + low + high, params=params)
        no("3 ones in the high bits, but 4", self.LOW, bytes([0b1000011]))
        no("5 ones in the high bits, but 4", self.LOW, bytes([0b1011011]))
        no("index 1 after index 1", bytes([0b01_11_01_01]), self.HIGH)         # a duplicate
        no("index 1 after index 2", bytes([0b01_11_01_10]), self.HIGH)         # descending
        no("index 17 of 16", self.LOW, bytes([0b10001011]))                    # beyond U
        # n = 17 has U = 8; index 16 is the last, 18 too large though its bit is inside U.
        decoded(6, 17, self.VALUES + bytes([0b00_11_10_01, 0b10001011]), params=(0.25,))
        no("index 18 of 17", bytes([0b10_11_10_01]), bytes([0b10001011]), n=17)
        # n = 8, k = 3: l = 1, three low bits of a byte.
        decoded(6, 8, bytes(12) + bytes([0b000, 0b10101]), params=(0.375,))
        no("unused low bits", bytes([0b1000]), bytes([0b10101]), n=8, params=(0.375,), values=bytes(12))
        no("base 0 at byte 0", self.LOW, self.HIGH, params=(0.25, 1.0), values=bytes(5))
        no("base 129 at byte 0", self.LOW, self.HIGH, params=(0.25, 1.0), values=bytes([129, 0, 0, 0, 0]))
        no("payload of 17 bytes", b"", self.HIGH)
        no("payload of 19 bytes", self.LOW, self.HIGH + b"\0")
        refused(self, "payload of 1 bytes", 6, 0, b"\0")

    def test_encode(self):
        values = [0.0] * 16
        values[1], values[2], values[7], values[13], values[9] = 1.5, -2.0, 0.25, -0.125, 0.0625
        self.assertEqual(gw.encode_topk(f32(*values), gw.F32, 0.25, 0, None),
                         struct.pack("<4f", 1.5, -2.0, 0.25, -0.125) + self.LOW + self.HIGH)
        values[7] = -3.0
        # Emax is 128, or 129 where 3 rounds up: base 2 or 3.
        for r, codes in ((0, (2, 126, 0x80 | 127, 0x80 | 127, 0x80 | 123)),
                         (R_MAX, (3, 126, 0x80 | 126, 0x80 | 127, 0x80 | 122))):
            payload = gw.encode_topk(f32(*values), gw.F32, 0.25, 1, FixedRandom(r))
            self.assertEqual(payload, bytes(codes) + self.LOW + self.HIGH)
        self.assertEqual(gw.encode_topk([], gw.F32, 0.01, 0, None), b"")

    def test_order(self):
        # Equal magnitudes: the smaller index; non-finite ones before all others, as they are.
        values = f32(1.0, -1.0, 1.0, -1.0, 0.5, 0.5, 0.5, 0.5)
        self.assertEqual(gw.encode_topk(values, gw.F32, 0.25, 0, None),
                         struct.pack("<2f", 1.0, -1.0) + bytes([0b0100, 0b11]))
        values[5], values[7] = 0xFFC01234, 0x7F800000
        self.assertEqual(decoded(6, 8, gw.encode_topk(values, gw.F32, 0.25, 0, None), params=(0.25,)),
                         [0] * 5 + [0xFFC01234, 0, 0x7F800000])
        self.assertEqual(decoded(6, 8, gw.encode_topk(values, gw.F32, 0.25, 1, gw.Stream()),
                                 params=(0.25, 1.0)), [0] * 5 + [0x7FC00000, 0, 0x7FC00000])

    def test_random_numbers_are_of_the_elements(self):
        class Recorder(FixedRandom):
            asked = []

            def r(self, i):
                self.asked.append(i)
                return 0
        values = f32(*[0.0] * 5000, 1.5, *[0.0] * 4999, -3.0)
        gw.encode_topk(values, gw.F32, 2e-4, 1, Recorder(0))
        self.assertEqual(Recorder.asked, [5000, 10000])

    def test_blocks_of_values_sent(self):
        n = 4098
        values = f32(*[2.0 ** 100] * 4096, 1.0, 2.0)
        payload = gw.encode_topk(values, gw.F32, 1.0, 1, gw.Stream())
        self.assertEqual((payload[0], payload[4097]), (101, 2))
        self.assertEqual(decoded(6, n, payload, params=(1.0, 1.0)), values)

    def test_round_trip(self):
        rng = random.Random(4)
        for n in (1, 2, 3, 17, 100, 1000, 5000):
            values = f32(*[gw.fl(rng.gauss(0, 1)) for _ in range(n)])
            for density in (1e-6, 0.01, 0.3, 0.5, 0.77, 1.0):
                got = decoded(6, n, gw.encode_topk(values, gw.F32, density, 0, None), params=(density,))
                sent = [i for i in range(n) if got[i]]
                self.assertEqual(len(sent), gw.sent_of(density, n))
                self.assertEqual([got[i] for i in sent], [values[i] for i in sent])
                least = min(values[i] & 0x7FFFFFFF for i in sent)
                self.assertLessEqual(max((b & 0x7FFFFFFF for b, y in zip(values, got) if not y), default=0), least)


class RandK(unittest.TestCase):
    KEY = 0x0123456789ABCDEF

    def test_strata(self):
        # n = 11, k = 3: strata of 4, 4, 3 elements.
        w = [gw.word(self.KEY, j) for j in range(3)]
        indices = [w[0] * 4 >> 32, 4 + (w[1] * 4 >> 32), 8 + (w[2] * 3 >> 32)]
        self.assertEqual(gw.randk_indices(self.KEY, 11, 3), indices)
        expected = [0] * 11
        for i, b in zip(indices, f32(1.0, -2.0, 3.0)):
            expected[i] = b
        payload = struct.pack("<Q3f", self.KEY, 1.0, -2.0, 3.0)
        self.assertEqual(decoded(7, 11, payload, params=(0.25,)), expected)
        payload = struct.pack("<Q", self.KEY) + bytes([127, 1, 0x82, 0])
        for i, b in zip(indices, f32(1.0, -2.0, 0.0)):
            expected[i] = b
        self.assertEqual(decoded(7, 11, payload, params=(0.25, 1.0)), expected)

    def test_every_number_of_strata(self):
        for n in (1, 2, 7, 30):
            for k in range(1, n + 1):
                sizes = [n // k + (j < n % k) for j in range(k)]
                self.assertEqual(sum(sizes), n)
                starts = [sum(sizes[:j]) for j in range(k)]
                self.assertEqual(gw.randk_indices(self.KEY, n, k),
                                 [s + (gw.word(self.KEY, j) * size >> 32)
                                  for j, (s, size) in enumerate(zip(starts, sizes))])
        self.assertEqual(gw.randk_indices(self.KEY, 0, 0), [])

    def test_empty(self):
        self.assertEqual(decoded(7, 0, bytes(8)), [])
        self.assertEqual(gw.encode_randk([], gw.F32, 0.01, 0, self.KEY, None), struct.pack("<Q", self.KEY))
        refused(self, "payload of 0 bytes", 7, 0, b"")

    def test_refusals(self):
        refused(self, "base 0 at byte 8", 7, 4, bytes(8) + bytes(3), params=(0.5, 1.0))
        refused(self, "payload of 15 bytes", 7, 4, bytes(15), params=(0.5,))

    def test_key(self):
        self.assertEqual(gw.randk_key(1, 2, 3), gw.Stream(1, 2, 3, 2 ** 32 - 1, 2 ** 32 - 1).key)

    def test_encode(self):
        values = f32(*[float(i - 20) for i in range(40)])
        key = gw.randk_key(5, 6, 7)
        indices = gw.randk_indices(key, 40, 10)
        self.assertEqual(gw.encode_randk(values, gw.F32, 0.25, 0, key, None),
                         struct.pack("<Q10I", key, *[values[i] for i in indices]))
        stream = gw.Stream(5, 6, 7, 1, 2)
        self.assertEqual(gw.encode_randk(values, gw.F32, 0.25, 1, key, stream)[8:],
                         gw.encode_natural([values[i] for i in indices], gw.F32, 8, stream, indices=indices))

    def test_non_finite(self):
        # One of the tensor, sent or not, makes NaN of all that is sent.
        values = f32(*[1.0] * 9000)
        key = gw.randk_key(0, 0, 0)
        silent = next(i for i in range(9000) if i not in set(gw.randk_indices(key, 9000, 4500)))
        values[silent] = 0xFF800000
        self.assertEqual(gw.encode_randk(values, gw.F32, 0.5, 0, key, None),
                         struct.pack("<Q", key) + struct.pack("<I", 0x7FC00000) * 4500)
        self.assertEqual(gw.encode_randk(values, gw.F32, 0.5, 1, key, gw.Stream()),
                         struct.pack("<Q", key) + b"\x01" + b"\x80" * 4096 + b"\x01" + b"\x80" * 404)


class AdaComp(unittest.TestCase):
    P = {"params": (4.0, 2.0, 0.0)}         # 8 elements take at most 18 bytes
    WIDE = {"params": (4.0, 2.0, 1000.0)}   # and here 1000

    def head(self, form, scale, k, zero=b"\0\0\0"):
        return bytes([form]) + zero + (f32(scale)[0] if isinstance(scale, float) else scale).to_bytes(4, "little") \
            + struct.pack("<Q", k)

    def test_entries(self):
        payload = self.head(0, 0.5, 5) + bytes([0x00, 0xC2, 0xBF, 0x40, 0x81])
        self.assertEqual(decoded(5, 10, payload, **self.WIDE),
                         f32(0.5, 0, -0.5, 0, 0, 0, 0, 0, -0.5, 0.5))

    def test_wide_entries(self):
        # bin = 64: two bytes, 14 bits of index.
        payload = self.head(0, 2.0, 3) + struct.pack("<3H", 0x0000, 0xC03F, 0xBFFF)
        self.assertEqual(decoded(5, 65, payload, params=(64.0, 1.0, 22.0)), f32(2.0, *[0.0] * 62, -2.0, 0.0))
        # bin = 63: one byte still, the largest index 62.
        refused(self, "index 62 after index 62", 5, 63, self.head(0, 2.0, 2) + bytes([62, 0x80 | 62]),
                params=(63.0,))
        self.assertEqual(decoded(5, 63, self.head(0, 2.0, 1) + bytes([0xC0 | 62]), params=(63.0,)),
                         f32(*[0.0] * 62, -2.0))

    def test_bitmap(self):
        payload = self.head(1, 0.5, 3) + bytes([0b10000001, 0b10]) + bytes([0b101])
        self.assertEqual(decoded(5, 10, payload, **self.P), f32(-0.5, 0, 0, 0, 0, 0, 0, 0.5, 0, -0.5))
        self.assertEqual(decoded(5, 10, self.head(1, 0.0, 0) + bytes(2), **self.P), [0] * 10)
        self.assertEqual(decoded(5, 1, self.head(1, 0.0, 1) + b"\x01\x01", **self.P), [0x80000000])

    def test_non_finite(self):
        self.assertEqual(decoded(5, 3, self.head(2, 0x7FC00000, 0)), [0x7FC00000] * 3)

    def test_empty(self):
        for form in (0, 1):
            self.assertEqual(decoded(5, 0, self.head(form, 0.0, 0)), [])
        self.assertEqual(gw.encode_adacomp([], None, 500, 2.0, 0), bytes(16))

    def test_header_refused(self):
        bitmap = b"\x01\x00"
        gw.read_frame(one(5, 8, self.head(1, 1.0, 1) + bitmap))
        for form in (3, 4, 255):
            refused(self, "form %d" % form, 5, 8, self.head(form, 1.0, 1) + bitmap)
        for zero in (b"\1\0\0", b"\0\1\0", b"\0\0\x80"):
            refused(self, "zero bytes", 5, 8, self.head(1, 1.0, 1, zero) + bitmap)
        for scale in (0x7FC00000, 0x7F800000, 0x80000000, 0xBF800000, 0xFFC00000, 0x7F800001):
            refused(self, "scale 0x%08X" % scale, 5, 8, self.head(1, scale, 1) + bitmap)
            refused(self, "scale 0x%08X" % scale, 5, 8, self.head(0, scale, 1) + b"\x80", params=(8.0,))
        for scale in (0, 0x3F800000, 0x7F800000, 0xFFC00000, 0x7FC00001):
            refused(self, "in form 2", 5, 8, self.head(2, scale, 0))
        refused(self, "1 elements sent in form 2", 5, 8, self.head(2, 0x7FC00000, 1))
        refused(self, "17 bytes in form 2", 5, 8, self.head(2, 0x7FC00000, 0) + b"\0")
        refused(self, "payload of 15 bytes", 5, 8, self.head(2, 0x7FC00000, 0)[:15])

    def test_entries_refused(self):
        def no(words, entries, n=10, k=None):
            refused(self, words, 5, n, self.head(0, 1.0, len(entries) if k is None else k) + bytes(entries),
                    **self.WIDE)
        decoded(5, 10, self.head(0, 1.0, 3) + bytes([0x83, 0x83, 0x81]), **self.WIDE)
        no("index 4 in a bin of 4", [0x84, 0x83, 0x81])
        no("index 2 in a bin of 2", [0x83, 0x83, 0x82])         # the last bin is shorter
        no("index 1 after index 1", [0x01, 0x81, 0x83, 0x81])
        no("index 0 after index 1", [0x01, 0x80, 0x83, 0x81])
        no("2 last marks, but 3 bins", [0x83, 0x83, 0x01])
        no("2 last marks, but 3 bins", [0x83, 0x83])
        no("entry 3 of 4 comes after the last of 3 bins", [0x83, 0x83, 0x81, 0x80])
        no("entry 3 of 4 comes after", [0x83, 0x83, 0x81, 0x00])
        no("entry 0 of 1 comes after the last of 0 bins", [0xBF], n=0)
        no("entry 0, of an empty bin, has a sign", [0xFF, 0x83, 0x81])
        no("entry 1, of an empty bin, is not alone", [0x01, 0xBF, 0x83, 0x81])
        no("entry 0, of an empty bin, is not alone", [0x3F, 0x80, 0x83, 0x81])
        no("19 bytes, but 2 entries", [0x83, 0x83, 0x81], k=2)
        no("19 bytes, but 4 entries", [0x83, 0x83, 0x81], k=4)
        no("entries of 1 bytes take", [0x83, 0x83, 0x81], k=2 ** 64 - 16 + 3)
        refused(self, "19 bytes, but 2 entries of 2 bytes", 5, 65, self.head(0, 1.0, 2) + bytes(3), params=(64.0,))

    def test_bitmap_refused(self):
        def no(words, body, k, n=10):
            refused(self, words, 5, n, self.head(1, 1.0, k) + bytes(body), **self.WIDE)
        no("1 bits of the bitmap are set, but 2", [0b1, 0, 0], 2)
        no("2 bits of the bitmap are set, but 1", [0b11, 0, 0], 1)
        no("unused bitmap bits", [0b1, 0b100, 0], 2)
        no("unused sign bits", [0b11, 0, 0b100], 2)
        no("18 bytes, but", [0b1, 0], 1)
        no("19 bytes, but", [0, 0, 0], 0)
        no("19 bytes, but", [0xFF, 0b1, 0], 9)
        no("19 bytes, but", [0xFF, 0b1, 0], 2 ** 64 - 1)

    def test_bound(self):
        for n, bin_size, cap, most in ((8, 4, 0, 18), (0, 500, 0, 16), (0, 500, 1, 16), (9, 500, 0, 20),
                                       (10, 4, 1, 18), (1000, 500, 1, 20), (1000, 4, 1, 141), (1000, 4, 142, 142),
                                       (1000, 63, 1, 32), (1000, 64, 1, 48), (10, 4, 1 << 40, 1 << 40)):
            self.assertEqual(gw.adacomp_most({"bin": bin_size, "cap": cap}, n), most, (n, bin_size, cap))
        entries = self.head(0, 1.0, 3) + bytes([0x83, 0x83, 0x81])
        refused(self, "payload of 19 bytes, but 10 elements of adacomp take 16 to 18", 5, 10, entries,
                params=(4.0, 2.0, 18.0))
        gw.read_frame(one(5, 10, entries, params=(4.0, 2.0, 19.0)))

    def step(self, gradient, residual, bin_size=4, factor=2.0):
        """One step with feedback: (scale, entries of form 0, the residual after it)."""
        g, r = f32(*gradient), residual and f32(*residual)
        scale, chosen = gw.adacomp_select(g, r, bin_size, factor)
        entries = gw.adacomp_payload(0, scale, chosen, len(g), bin_size)
        params = (float(bin_size), factor, 1000.0)
        got = decoded(5, len(g), entries, params=params)
        # The form that encoders take says the same.
        payload = gw.encode_adacomp(g, r, bin_size, factor, 0)
        self.assertLessEqual(len(payload), len(entries))
        self.assertEqual(decoded(5, len(g), payload, params=params), got)
        after = [gw.float_of(b) for b in gw.after_feedback(g, r, got)]
        return gw.float_of(scale), entries[16:].hex(), after

    # The paper's procedure by hand, in numbers that are exact in binary.
    W1 = (.75, -.25, .5, .125, .0625, 0.0, -.125, .03125)
    W2 = (-.5, -.25, .25, .0625, .0625, 0.0, -.0625, .03125)

    def test_worked_example(self):
        first = self.step(self.W1, [0.0] * 8)
        self.assertEqual(first, (.4375, "008200c2", [.3125, -.25, .0625, .125, -.375, 0.0, .3125, .03125]))
        second = self.step(self.W2, first[2])
        self.assertEqual(second, (.40625, "404182bf",
                                  [.21875, -.09375, -.09375, .1875, -.3125, 0.0, .25, .0625]))

    def test_worked_example_is_sent_as_bitmaps(self):
        # Two bytes against four.
        first = gw.encode_adacomp(f32(*self.W1), None, 4, 2.0, 0)
        self.assertEqual(first, self.head(1, .4375, 4) + bytes([0b01010101, 0b1000]))
        residual = f32(.3125, -.25, .0625, .125, -.375, 0.0, .3125, .03125)
        second = gw.encode_adacomp(f32(*self.W2), residual, 4, 2.0, 0)
        self.assertEqual(second, self.head(1, .40625, 3) + bytes([0b111, 0b011]))

    def test_counter_example(self):
        # The largest residue is sent together with those that g alone would not have sent.
        self.assertEqual(self.step((0.0, 1.0, 1.0, 1.0), (1.0, -.875, -.875, -.875)),
                         (1.0, "00010283", [0.0, -.875, -.875, -.875]))

    def test_factor(self):
        # H = G + d g, so with factor 1 only the maxima are sent; -0 and 0 never.
        values = f32(1.0, -1.0, 0.5, -0.25, -0.0, 0.0, -0.0, 0.0)
        for factor, count in ((1.0, 2), (2.0, 3), (3.0, 3), (4.0, 4), (8.0, 4)):
            scale, chosen = gw.adacomp_select(values, None, 4, factor)
            self.assertEqual((gw.float_of(scale), chosen), (0.5, [(0, 0), (1, 1), (2, 0), (3, 1)][:count]))

    def test_rounding_of_d(self):
        # factor 1.1: d is fl(0.1) = 3DCCCCCD, where fl(1.1) - 1 would be 3DCCCCD0, and H a step larger.
        g, r, above = 0x40B8B6D9, 0x3EE409CA, 0x40D97026
        self.assertEqual(gw.adacomp_select([g, above], [r, 0], 4, 1.1)[1], [(1, 0)])
        self.assertEqual(gw.adacomp_select([g, above - 1], [r, 0], 4, 1.1)[1], [(0, 0), (1, 0)])

    def test_mean(self):
        # Numbers added one by one to one 2^53 times as large are lost; the sum of 256 of them is not.
        # In fp32 this shows on a rounding border:
        # 2^53 + 2^29 + 256 is just above the middle of two fp32 numbers, 2^53 + 2^29 is the middle, and down is even.
        values = f32(2.0 ** 53, 2.0 ** 29, *[1.0] * 510)
        self.assertEqual(gw.adacomp_select(values, None, 1, 2.0)[0], f32((2.0 ** 53 + 2.0 ** 30) / 512)[0])
        values = f32(2.0 ** 53, 2.0 ** 29, *[1.0] * 254, *[0.0] * 256)
        self.assertEqual(gw.adacomp_select(values, None, 1, 2.0)[0], f32(2.0 ** 53 / 512)[0])
        # All bins count, the last and shorter one too.
        self.assertEqual(gw.adacomp_select(f32(3.0, 1.0, 0.0, 0.0, -0.75), None, 2, 2.0)[0], f32(1.25)[0])
        self.assertEqual(gw.adacomp_select([0x7F7FFFFF] * 1000, None, 1, 2.0)[0], 0x7F7FFFFF)

    def test_overflow_of_h(self):
        # H may be infinite, G may not.
        scale, chosen = gw.adacomp_select([0x7F7FFFFF, 0x7F000000], None, 4, 8.0)
        self.assertEqual((scale, chosen), (0x7F7FFFFF, [(0, 0), (1, 0)]))
        self.assertEqual(gw.encode_adacomp([0x7F7FFFFF], [0x7F7FFFFF], 4, 2.0, 0), self.head(2, 0x7FC00000, 0))
        for bad in (0x7F800000, 0xFF800000, 0x7FC00000):
            self.assertEqual(gw.encode_adacomp([0, bad, 0], None, 4, 2.0, 0), self.head(2, 0x7FC00000, 0))
            self.assertEqual(gw.encode_adacomp([0] * 3, [0, 0, bad], 4, 2.0, 17), self.head(2, 0x7FC00000, 0))

    def test_form(self):
        # 64 elements, bins of 32: a bitmap is 8 bytes and the signs.
        values = [0.0] * 64
        self.assertEqual(gw.encode_adacomp(f32(*values), None, 32, 1.0, 0), self.head(0, 0.0, 2) + b"\xbf\xbf")
        for sent, form in ((8, 0), (9, 0), (10, 1), (12, 1)):
            some = f32(*[-1.0] * sent, *[0.0] * (64 - sent))
            payload = gw.encode_adacomp(some, None, 32, 1.0, 0)
            # Form 0 has an entry each and the empty bin's; 10 bytes of both kinds at nine.
            self.assertEqual((payload[0], len(payload) - 16), (form, sent + 1 if form == 0 else 10))
            self.assertEqual(decoded(5, 64, payload, params=(32.0, 1.0)), f32(*[-0.5] * sent, *[0.0] * (64 - sent)))

    def test_cap(self):
        values = f32(*[(-1.0) ** i for i in range(64)])  # all are to be sent, bins of 16
        for cap, form, sent in ((1, 0, 1), (20, 0, 1), (21, 0, 2), (23, 0, 4), (24, 0, 5), (25, 1, 8),
                                (26, 1, 16), (31, 1, 56), (32, 1, 64), (33, 1, 64), (0, 1, 64)):
            payload = gw.encode_adacomp(values, None, 16, 1.0, cap)
            got = decoded(5, 64, payload, params=(16.0, 1.0, float(cap)))
            self.assertEqual((payload[0], got), (form, values[:sent] + [0] * (64 - sent)), cap)
        # Where even empty bins are more than the bitmap, it is the bitmap that holds least.
        payload = gw.encode_adacomp(values, None, 1, 1.0, 1)
        self.assertEqual(payload, self.head(1, 1.0, 0) + bytes(8))
        # Eight in both, and not all: form 0. The bitmap and a byte of signs; eight entries and the empty bin's.
        ten = f32(*[1.0] * 10, *[0.0] * 54)
        payload = gw.encode_adacomp(ten, None, 32, 1.0, 16 + 9)
        self.assertEqual(payload, self.head(0, 0.5, 9) + bytes([0, 1, 2, 3, 4, 5, 6, 0x87, 0xBF]))

    def test_against_the_definition(self):
        rng = random.Random(9)
        for n, bin_size in ((1, 1), (5, 63), (300, 7), (300, 63), (300, 64), (1000, 500), (700, 1)):
            g = f32(*[gw.fl(rng.gauss(0, 1)) for _ in range(n)])
            r = f32(*[gw.fl(rng.gauss(0, 2)) for _ in range(n)])
            _, chosen = gw.adacomp_select(g, r, bin_size, 2.0)
            for cap in (0, 1, 17, 30, 60, 100, 1000):
                payload = gw.encode_adacomp(g, r, bin_size, 2.0, cap)
                most = gw.adacomp_most({"bin": bin_size, "cap": cap}, n)
                self.assertLessEqual(len(payload), most)
                scale, indices, signs = gw.adacomp_sent(payload, n, bin_size, "here")
                sent = len(indices)
                self.assertEqual(list(zip(indices, signs)), chosen[:sent])
                if sent < len(chosen):  # one more fits in neither form
                    for form in (0, 1):
                        more = gw.adacomp_payload(form, scale, chosen[:sent + 1], n, bin_size)
                        self.assertGreater(len(more), most)
                else:
                    self.assertEqual(len(payload), min(
                        len(gw.adacomp_payload(form, scale, chosen, n, bin_size)) for form in (0, 1)))
                decoded(5, n, payload, params=(float(bin_size), 2.0, float(cap)))
