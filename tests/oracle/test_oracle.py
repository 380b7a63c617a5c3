#!/usr/bin/env python3
"""Tests of the second implementation: python3 tests/oracle/test_oracle.py

Frames are built here by plain packing, so that the reader is not tested with its own writer.
"""

import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(0, HERE)

import gwframe as gw  # noqa: E402  (the path comes first)


def f32(*values):
    """fp32 patterns of Python floats that are exact in fp32."""
    return list(struct.unpack("<%dI" % len(values), struct.pack("<%df" % len(values), *values)))


def patterns(values):
    """fp32 patterns of a decoded array: told apart are zeros of both signs and NaNs."""
    return list(struct.unpack("<%dI" % len(values), gw.le_bytes(values)))


def pad8(data):
    return data + bytes(-len(data) % 8)


def entry(codec, count, payload, dtype=1, dims=None, params=(), name=b"w", tensor=0, digest=None,
          ndims=None, size=None, name_pad=None):
    dims = [count] if dims is None else dims
    digest = gw.xxh3_64(payload) if digest is None else digest
    out = struct.pack("<BBBBIQQQQ", codec, dtype, len(dims) if ndims is None else ndims, len(params),
                      len(name), count, len(payload) if size is None else size, digest, tensor)
    out += struct.pack("<%dQ" % len(dims), *dims) + struct.pack("<%dd" % len(params), *params) + name
    return pad8(out) if name_pad is None else out + name_pad


def seal(data):
    """The header hash put right."""
    end = struct.unpack_from("<I", data, 12)[0]
    clean = data[:56] + bytes(8) + data[64:]
    return clean[:56] + struct.pack("<Q", gw.xxh3_64(clean[:end])) + clean[64:]


def frame(*pairs, magic=b"GWF\x1a", version=1, flags=1, segments=None, header_bytes=None,
          frame_bytes=None, zero=0, seed=0, step=0, rank=0, point=0):
    """A sealed frame of (entry, payload) pairs."""
    entries = b"".join(e for e, _ in pairs)
    body = b"".join(pad8(p) for _, p in pairs)
    end = 64 + len(entries)
    head = magic + struct.pack(
        "<HHIIQQQIIQQ", version, flags, len(pairs) if segments is None else segments,
        end if header_bytes is None else header_bytes,
        end + len(body) if frame_bytes is None else frame_bytes, seed, step, rank, point, zero, 0)
    return seal(head + entries + body)


def one(codec, count, payload, **more):
    """A frame of one segment."""
    return frame((entry(codec, count, payload, **more), payload))


def decoded(codec, count, payload, **more):
    """The patterns a frame of one segment decodes to."""
    return patterns(gw.decode(gw.read_frame(one(codec, count, payload, **more)).segments[0]))


class Hash(unittest.TestCase):
    # From the reference library, over bytes ((31 i + 7) mod 256) xor (i div 256).
    VECTORS = {
        0: 0x2D06800538D394C2,
        1: 0x4C5CCA45D0F4811F,
        3: 0x15F7093B173D005C,
        4: 0xDCA012F95811B6B9,
        8: 0xDEC6A9A43575982E,
        9: 0xCBE393399F17FFBD,
        16: 0x7E484C18D74895D0,
        17: 0x208BDE5EE2BED407,
        128: 0xF92B70EAA21A6288,
        129: 0xF8F76713F2BB60FA,
        240: 0xCCC7375172C41F03,
        241: 0x0B3B630948CE4A00,
        1024: 0xD218D699D62A6D8B,
        1025: 0x38F5F1F86DDFA599,
        5000: 0x32DCDECAE76E76B3,
    }

    def test_vectors(self):
        data = bytes((31 * i + 7) & 255 ^ (i >> 8) for i in range(5000))
        for n, expected in self.VECTORS.items():
            self.assertEqual(gw.xxh3_64(data[:n]), expected, n)


class Numbers(unittest.TestCase):
    def test_fl(self):
        self.assertEqual(gw.fl(1 + 2.0 ** -24), 1.0)                       # a tie, to even
        self.assertEqual(gw.fl(1 + 3 * 2.0 ** -24), 1 + 2.0 ** -22)        # a tie, to even
        self.assertEqual(gw.fl(2.0 ** -150), 0.0)
        self.assertEqual(gw.fl(1.5 * 2.0 ** -149), 2.0 ** -148)
        self.assertEqual(gw.fl(-2.0 ** 128), -math.inf)
        self.assertEqual(gw.fl(2.0 ** 128 - 2.0 ** 103), math.inf)         # halfway to 2^128
        self.assertEqual(gw.fl(2.0 ** 128 - 2.0 ** 103 - 2.0 ** 75), 2.0 ** 128 - 2.0 ** 104)

    def test_f16_and_back(self):
        for h in range(65536):
            back = gw.f16_from_f32(gw.f32_from_f16(h))
            quiet = h | 0x200 if h & 0x7FFF > 0x7C00 else h
            self.assertEqual(back, quiet)

    def test_f16_rounding(self):
        cases = {65519.0: 0x7BFF, 65520.0: 0x7C00, -1e30: 0xFC00, 2.0 ** -25: 0, 3 * 2.0 ** -26: 1,
                 1.5 * 2.0 ** -24: 2, 1 + 2.0 ** -11: 0x3C00, 1 + 3 * 2.0 ** -11: 0x3C02,
                 2.0 ** -14 - 2.0 ** -26: 0x0400, -0.0: 0x8000}
        for x, expected in cases.items():
            self.assertEqual(gw.f16_from_f32(*f32(gw.fl(x))), expected, x)

    def test_bf16_rounding(self):
        for b, expected in {0x3F808000: 0x3F80, 0x3F818000: 0x3F82, 0x3F808001: 0x3F81, 0x00008000: 0,
                            0x00018000: 2, 0x7F7F7FFF: 0x7F7F, 0x7F7F8000: 0x7F80, 0xFF7F8000: 0xFF80,
                            0x7F800001: 0x7FC0, 0xFFABCDEF: 0xFFEB}.items():
            self.assertEqual(gw.bf16_from_f32(b), expected, hex(b))

    def test_bulk_rounding_is_single_rounding(self):
        rng = random.Random(3)
        values = gw.array("I", [rng.getrandbits(32) for _ in range(3000)]
                          + [rng.randrange(0x33000000, 0x47800000) for _ in range(3000)])
        self.assertEqual(list(gw.rounded(values, gw.F16)),
                         [gw.f32_from_f16(gw.f16_from_f32(b)) for b in values])
        self.assertEqual(list(gw.rounded(values, gw.BF16)), [gw.bf16_from_f32(b) << 16 for b in values])


class Decoding(unittest.TestCase):
    def test_empty_frame(self):
        data = frame(flags=0)
        self.assertEqual(len(data), 64)
        self.assertEqual(gw.read_frame(data).segments, [])

    def test_header_and_entry_fields(self):
        payload = struct.pack("<6H", *range(6))
        data = frame((entry(1, 6, payload, dtype=3, dims=[2, 3], name="größe".encode(), tensor=9), payload),
                     seed=1 << 60, step=2, rank=3, point=4)
        got = gw.read_frame(data)
        self.assertEqual((got.flags, got.seed, got.step, got.rank, got.point), (1, 1 << 60, 2, 3, 4))
        s = got.segments[0]
        self.assertEqual((s.name, s.codec, s.codec_name, s.dtype, s.dims, s.count, s.tensor, s.payload),
                         ("größe", 1, "cast", 3, [2, 3], 6, 9, payload))

    def test_default_parameters(self):
        for codec, payload, params in (
                (1, bytes(2), {"to": 3}), (2, b"\x01\x00", {"bits": 8}),
                (3, bytes(5), {"bits": 4, "bucket": 512, "norm": 0}),
                (4, bytes(5), {"bits": 4, "bucket": 512, "norm": 0, "rounding": 0})):
            segment = gw.read_frame(one(codec, 1, payload, dims=[])).segments[0]
            self.assertEqual(segment.params, params)
        some = gw.read_frame(one(4, 1, bytes(5), params=(3.0, 64.0))).segments[0]
        self.assertEqual(some.params, {"bits": 3, "bucket": 64, "norm": 0, "rounding": 0})
        self.assertEqual(some.spec, "dither:bits=3,bucket=64,norm=max,rounding=stochastic")

    def test_several_segments_and_no_hashes(self):
        a, b, c = struct.pack("<3H", 0x3F80, 0xC020, 0), b"", struct.pack("<f", 0.5)
        data = frame((entry(1, 3, a, name=b"", digest=0), a),
                     (entry(1, 0, b, dims=[4, 0, 5], name=b"12345678", digest=0), b),
                     (entry(1, 1, c, dims=[], params=(1.0,), digest=0), c), flags=0)
        got = [list(gw.decode(s)) for s in gw.read_frame(data).segments]
        self.assertEqual(got, [[1.0, -2.5, 0.0], [], [0.5]])

    def test_cast(self):
        payload = struct.pack("<4H", 0x3F80, 0xC020, 0x8000, 0xFF80)
        self.assertEqual(decoded(1, 4, payload), [0x3F800000, 0xC0200000, 0x80000000, 0xFF800000])
        payload = struct.pack("<5H", 0x3C00, 0xC100, 0x0001, 0x7C00, 0x7E00)
        self.assertEqual(decoded(1, 5, payload, params=(2.0,)),
                         [0x3F800000, 0xC0200000, 0x33800000, 0x7F800000, 0x7FC00000])
        payload = struct.pack("<2I", 0x00000001, 0xBDCCCCCD)
        self.assertEqual(decoded(1, 2, payload, params=(1.0,)), [1, 0xBDCCCCCD])

    def test_natural9(self):
        payload = bytes([127, 128, 0, 255, 120, 254, 1, 127, 126]) + bytes([0b00001010, 0b1])
        self.assertEqual(decoded(2, 9, payload, params=(9.0,)),
                         f32(1.0, -2.0, 0.0, -math.inf, 2.0 ** -7, 2.0 ** 127, 2.0 ** -126, 1.0, -0.5))

    def test_natural9_blocks(self):
        payload = bytes([127]) * 4096 + bytes(512) + bytes([128, 129]) + b"\x02"
        self.assertEqual(decoded(2, 4098, payload, params=(9.0,)), f32(*[1.0] * 4096, 2.0, -4.0))

    def test_natural8(self):
        payload = bytes([100, 0x00, 0x80, 28, 0x80 | 29, 1, 127])
        self.assertEqual(decoded(2, 6, payload),
                         f32(0.0) + [0x7FC00000] + f32(1.0, -2.0, 2.0 ** -27, 2.0 ** 99))

    def test_natural8_blocks(self):
        payload = bytes([1]) + bytes([1]) * 4096 + bytes([128, 127, 0x81])
        self.assertEqual(decoded(2, 4098, payload, params=(8.0,)),
                         f32(*[2.0 ** -126] * 4096, 2.0 ** 127, -2.0))

    def test_dither(self):
        # s = 3: fl(1/3) = (2^25 + 1) / 3 / 2^25, and 3 times that, 1 + 2^-25, rounds to 1.
        third = 11184811 / 2.0 ** 25
        codes = [0, 1, 2, 3, 5, 6, 7, 4] + [3] * 56
        full = struct.pack("<f", 3.0) + gw.pack_codes(codes, 3)
        self.assertEqual(len(full), 28)
        nan = struct.pack("<I", 0x7FC00000) + bytes(24)
        rest = struct.pack("<f", 1.0) + bytes([0b01010001, 0b1])  # codes 1, 2, 5
        expected = (f32(0.0, 1.0, 2.0, 3.0, -1.0, -2.0, -3.0, -0.0, *[3.0] * 56)
                    + [0x7FC00000] * 64 + f32(third, 2 * third, -third))
        self.assertEqual(decoded(4, 131, full + nan + rest, params=(3.0, 64.0)), expected)

    def test_dither_one_level(self):
        payload = struct.pack("<f", 2.5) + bytes([0b11_00_01_11, 0b01])
        self.assertEqual(decoded(4, 5, payload, params=(2.0,)), f32(-2.5, 2.5, 0.0, -2.5, 2.5))

    def test_ndither(self):
        # s = 7, values S * 2^(k - 7); the first code is in the low half of its byte.
        payload = struct.pack("<f", 1.5) + bytes([0x67, 0xF1, 0x09])
        self.assertEqual(decoded(3, 5, payload), f32(1.5, 0.75, 1.5 / 64, -1.5, -1.5 / 64))

    def test_ndither_underflow(self):
        # s = 127: the product is rounded once, into the subnormal numbers or to zero.
        for exponent, expected in ((0, 2.0 ** -126), (-23, 2.0 ** -149), (-24, 0.0)):
            payload = struct.pack("<f", 2.0 ** exponent) + bytes([1, 0x81, 127])
            self.assertEqual(decoded(3, 3, payload, params=(8.0, 64.0)),
                             f32(expected, -expected, 2.0 ** exponent))

    def test_zero_bucket(self):
        self.assertEqual(decoded(3, 3, bytes(6)), [0, 0, 0])

    def test_rounding_to_the_dtype(self):
        payload = bytes([142, 143, 103, 102, 255]) + b"\x00"
        self.assertEqual(decoded(2, 5, payload, dtype=2, params=(9.0,)),
                         f32(32768.0, math.inf, 2.0 ** -24, 0.0, math.inf))
        payload = struct.pack("<I", 0x3F808000) + b"\x0d"  # 1 + 2^-8, a tie in bf16
        self.assertEqual(decoded(4, 2, payload, dtype=3, params=(2.0,)), f32(1.0, -1.0))

    def test_unpack_codes(self):
        rng = random.Random(1)
        for bits in range(2, 9):
            for count in (1, 7, 8, 9, 64, 513):
                codes = [rng.getrandbits(bits) for _ in range(count)]
                packed = gw.pack_codes(codes, bits)
                self.assertEqual(list(gw.unpack_codes(packed, bits, count)), codes)

    def test_top_level_is_one(self):
        for bits in range(2, 9):
            self.assertEqual(gw.levels(gw.DITHER, bits)[-1], 1.0)
            self.assertEqual(gw.levels(gw.NDITHER, bits)[-1], 1.0)


class Refusals(unittest.TestCase):
    GOOD = struct.pack("<3H", 0x3F80, 0xC020, 0)

    def refused(self, data, words):
        with self.assertRaises(gw.FrameError) as caught:
            gw.read_frame(data)
        self.assertIn(words, str(caught.exception))

    def whole(self, **more):
        return frame((entry(1, 3, self.GOOD), self.GOOD), **more)

    def test_the_good_one_is_read(self):
        gw.read_frame(self.whole())

    def test_header(self):
        self.refused(self.whole(magic=b"GWF\x1b"), "magic")
        self.refused(self.whole(version=2), "wire version is 2")
        self.refused(self.whole(version=0), "wire version is 0")
        self.refused(self.whole(flags=3), "flag")
        self.refused(self.whole(flags=0x8001), "flag")
        self.refused(self.whole(zero=1 << 40), "zero field")
        self.refused(self.whole(segments=(1 << 20) + 1), "segments")
        self.refused(self.whole(segments=2), "past the header's end")
        self.refused(self.whole(segments=0), "the entries end at")
        self.refused(seal(self.whole(header_bytes=60)), "header bytes 60")
        self.refused(self.whole(header_bytes=56), "header bytes 56")
        self.refused(self.whole(header_bytes=1 << 20), "more than the frame")
        self.refused(self.whole(frame_bytes=1 << 40), "frame bytes")

    def test_header_hash(self):
        data = bytearray(self.whole())
        data[24] ^= 1
        self.refused(bytes(data), "hash at byte 56")
        data = bytearray(self.whole())
        data[56] ^= 1
        self.refused(bytes(data), "hash at byte 56")

    def test_length(self):
        data = self.whole()
        for n in range(len(data)):
            with self.assertRaises(gw.FrameError):
                gw.read_frame(data[:n])
        self.refused(data[:-1], "were given")
        self.refused(data + b"\0", "were given")
        self.refused(self.whole(frame_bytes=len(data) + 1) + b"\0", "multiple of 8")
        self.refused(self.whole(frame_bytes=len(data) + 8) + bytes(8), "the payloads end at")
        self.refused(self.whole(frame_bytes=len(data) - 8)[:-8], "past the frame's end")

    def test_every_flipped_bit(self):
        data = self.whole()
        for bit in range(8 * len(data)):
            broken = bytearray(data)
            broken[bit >> 3] ^= 1 << (bit & 7)
            with self.assertRaises(gw.FrameError, msg="bit %d" % bit):
                gw.read_frame(broken)

    def test_payload_bytes(self):
        data = bytearray(self.whole())
        data[-8] ^= 1
        self.refused(bytes(data), "hash is")
        data = bytearray(self.whole())
        data[-1] = 1
        self.refused(bytes(data), "padding")
        self.refused(frame((entry(1, 3, self.GOOD), self.GOOD), flags=0), "flag bit 0")

    def test_entry(self):
        for words, codec, more in (
                ("codec id 0", 0, {}), ("codec id 5", 5, {}), ("codec id 224", 224, {}),
                ("dtype 0", 1, {"dtype": 0}), ("dtype 4", 1, {"dtype": 4}),
                ("product of the dims is 4", 1, {"dims": [2, 2]}),
                ("product of the dims is 1", 1, {"dims": []}),
                ("9 dims", 1, {"dims": [3] + [1] * 8}),
                ("2 parameters, but cast has 1", 1, {"params": (3.0, 0.0)}),
                ("name of 1025", 1, {"name": b"x" * 1025}),
                ("NUL", 1, {"name": b"a\0b"}),
                ("UTF-8", 1, {"name": b"a\xc0\x80"}),
                ("UTF-8", 1, {"name": b"\xed\xa0\x80"}),
                ("padding after the name", 1, {"name_pad": b"\0\0\0\0\0\0\1"}),
                ("payload of 5 bytes", 1, {"size": 5}),
                ("not below 2^56", 1, {"size": 1 << 56}),
                ("past the header's end", 1, {"ndims": 8})):
            self.refused(one(codec, 3, self.GOOD, **more), words)
        gw.read_frame(one(1, 3, self.GOOD, dims=[3] + [1] * 7, name=b"x" * 1024))

    def test_element_counts(self):
        # Equal modulo 2^64 is not equal.
        self.refused(one(1, 0, b"", dims=[1 << 32, 1 << 32]), "product of the dims")
        self.refused(one(1, 1 << 48, b"", dims=[1 << 24, 1 << 24]), "not below 2^48")

    def test_parameters(self):
        nan, inf = math.nan, math.inf
        for codec, params, words in (
                (1, (0.0,), "to is 0"), (1, (4.0,), "to is 4"), (1, (2.5,), "whole"), (1, (nan,), "whole"),
                (2, (7.0,), "bits is 7"), (2, (10.0,), "bits is 10"), (2, (8.5,), "whole"),
                (3, (1.0,), "bits is 1"), (3, (9.0,), "bits is 9"), (3, (inf,), "whole"),
                (3, (4.0, 32.0), "bucket is 32"), (3, (4.0, 16384.0), "bucket is 16384"),
                (3, (4.0, 96.0), "power of two"), (3, (4.0, 64.0, 1.0), "norm is 1"),
                (4, (4.0, 1000.0), "power of two"), (4, (4.0, 64.5), "whole"), (4, (-4.0,), "bits is -4"),
                (4, (4.0, 64.0, -1.0), "norm is -1"), (4, (4.0, 64.0, 0.0, 2.0), "rounding is 2"),
                (4, (4.0, 64.0, 0.0, 0.5), "whole")):
            self.refused(one(codec, 1, bytes(5), params=params), words)

    def test_natural(self):
        for base in (0, 129, 255):
            self.refused(one(2, 2, bytes([base, 0, 0])), "base %d" % base)
        second = bytes([1]) + bytes(4096) + bytes([0, 0])
        self.refused(one(2, 4097, second), "base 0 at byte 4097")
        self.refused(one(2, 3, bytes([127] * 3 + [0b1000]), params=(9.0,)), "unused sign bits")

    def test_scales(self):
        for codec in (3, 4):
            for scale in (0xBF800000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F800001,
                          0xFFC00000):
                self.refused(one(codec, 2, struct.pack("<IB", scale, 0)), "scale 0x%08X" % scale)
            for scale in (0, 1, 0x7F7FFFFF, 0x7FC00000):
                gw.read_frame(one(codec, 2, struct.pack("<IB", scale, 0)))

    def test_code_bits(self):
        for codec in (3, 4):
            self.refused(one(codec, 1, struct.pack("<fB", 1.0, 0x10)), "unused code bits")
            self.refused(one(codec, 3, struct.pack("<fBB", 1.0, 0, 2), params=(3.0,)), "unused code bits")
            # Encoders write codes zero there, but a reader need not look.
            for scale, value in ((0, 0.0), (0x7FC00000, math.nan)):
                segment, = gw.read_frame(one(codec, 1, struct.pack("<IB", scale, 1))).segments
                self.assertEqual(str(gw.decode(segment)[0]), str(value))


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


class FixedRandom:
    """Stands in for a Stream: the same r for every element."""

    def __init__(self, r):
        self.value = r

    def r(self, i):
        del i
        return self.value


R_MAX = (1 << 23) - 1


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


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def call(self, *args):
        return subprocess.run([sys.executable, "-B", os.path.join(HERE, "gwframe.py"), *args],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                              check=False)

    def two(self):
        a, b = struct.pack("<2H", 0x3F80, 0xC000), bytes([127, 127, 0x80])
        return self.write("two.gw", frame(
            (entry(1, 2, a, name=b"a"), a), (entry(2, 2, b, name=b"b", params=(8.0,)), b)))

    def test_table(self):
        got = self.call(self.two())
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertTrue(got.stdout.endswith("ok\n"))
        self.assertIn("cast:to=bf16", got.stdout)

    def test_json(self):
        got = self.call(self.two(), "--json")
        self.assertEqual(json.loads(got.stdout)[0], {
            "tensor": "a", "spec": "cast:to=bf16", "elements": 2, "bytes": 4, "bits_per_element": 16.0})

    def test_floats(self):
        out = self.path("out.f32")
        self.assertEqual(self.call(self.two(), "--floats", out).returncode, 0)
        with open(out, "rb") as file:
            self.assertEqual(file.read(), struct.pack("<3fI", 1.0, -2.0, 2.0 ** 126, 0x7FC00000))

    def test_against(self):
        payload = struct.pack("<2H", 0x3F80, 0xC000)
        path = self.write("one.gw", one(1, 2, payload, name=b"a"))
        raw = struct.pack("<2f", 1.0, -3.0)
        head = json.dumps({"__metadata__": {}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
        npy = "{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }\n".encode()
        for name, data in (
                ("in.f32", raw),
                ("in.safetensors", struct.pack("<Q", len(head)) + head.encode() + raw),
                ("in.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(npy)) + npy
                 + struct.pack("<2e", 1.0, -3.0))):
            got = self.call(path, "--json", "--against", self.write(name, data))
            self.assertEqual(got.stderr, "")
            row = json.loads(got.stdout)[0]
            self.assertAlmostEqual(row["rel_error"], 1 / 10)
            self.assertAlmostEqual(row["cosine"], 7 / math.sqrt(50))
        self.assertEqual(self.call(path, "--against", self.write("short.f32", raw[:4])).returncode, 1)

    def test_compare_zero(self):
        zero, some = gw.array("f", [0.0, -0.0]), gw.array("f", [1.0, 0.0])
        self.assertEqual(gw.compare(zero, zero), (0.0, 1.0))
        self.assertEqual(gw.compare(zero, some), (math.inf, 0.0))
        self.assertEqual(gw.compare(some, zero), (1.0, 0.0))

    def test_failures(self):
        path = self.two()
        with open(path, "rb") as file:
            data = file.read()
        for got in (self.call(self.write("cut.gw", data[:-8])), self.call(self.path("none.gw"))):
            self.assertEqual((got.returncode, got.stdout), (1, ""))
            self.assertEqual(got.stderr.count("\n"), 1)
        for args in ((), (path, "--what"), (path, "--against", "in.txt"), (path, "--known-answers")):
            self.assertEqual(self.call(*args).returncode, 2, args)

    def test_known_answers(self):
        got = self.call("--known-answers")
        self.assertEqual((got.returncode, got.stdout), (0, gw.known_answers() + "\n"))


if __name__ == "__main__":
    unittest.main()
