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
                (4, bytes(5), {"bits": 4, "bucket": 512, "norm": 0, "rounding": 0}),
                (5, b"\x01" + bytes(16), {"bin": 500, "factor": 2.0, "cap": 0}),
                (6, bytes(4) + b"\x01", {"density": 0.01, "values": 0}),
                (7, bytes(12), {"density": 0.01, "values": 0}),
                (8, bytes(5), {"bucket": 4096})):
            segment = gw.read_frame(one(codec, 1, payload, dims=[])).segments[0]
            self.assertEqual(segment.params, params)
        some = gw.read_frame(one(4, 1, bytes(5), params=(3.0, 64.0))).segments[0]
        self.assertEqual(some.params, {"bits": 3, "bucket": 64, "norm": 0, "rounding": 0})
        self.assertEqual(some.spec, "dither:bits=3,bucket=64,norm=max,rounding=stochastic")
        for codec, params, payload, spec in (
                (6, (1e-6,), bytes(4) + b"\x01", "topk:density=0.000001,values=f32"),
                (7, (1.0, 1.0), bytes(8) + b"\x01\x00", "randk:density=1,values=natural"),
                (5, (7.0, 2.5, 2.0 ** 40), b"\x01" + bytes(16), "adacomp:bin=7,factor=2.5,cap=1099511627776"),
                (8, (64.0,), bytes(5), "sign:bucket=64")):
            self.assertEqual(gw.read_frame(one(codec, 1, payload, params=params)).segments[0].spec, spec)

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
                ("codec id 0", 0, {}), ("codec id 9", 9, {}), ("codec id 224", 224, {}),
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
                (3, (4.0, 96.0), "power of two"), (3, (4.0, 64.0, 2.0), "norm is 2"),
                (4, (4.0, 1000.0), "power of two"), (4, (4.0, 64.5), "whole"), (4, (-4.0,), "bits is -4"),
                (4, (4.0, 64.0, -1.0), "norm is -1"), (4, (4.0, 64.0, 0.0, 2.0), "rounding is 2"),
                (4, (4.0, 64.0, 0.0, 0.5), "whole"),
                (5, (0.0,), "bin is 0"), (5, (16384.0,), "bin is 16384"), (5, (63.5,), "whole"),
                (5, (4.0, 0.99), "factor is 0.99"), (5, (4.0, 8.5), "factor is 8.5"),
                (5, (4.0, nan), "factor is nan"), (5, (4.0, 2.0, -1.0), "cap is -1"),
                (5, (4.0, 2.0, 2.0 ** 40 + 1), "cap is 1099511627777"), (5, (4.0, 2.0, 0.5), "whole"),
                (6, (0.9e-6,), "density is 9e-07"), (6, (1.01,), "density is 1.01"),
                (6, (nan,), "density is nan"), (6, (0.5, 2.0), "values is 2"), (6, (0.5, 0.5), "whole"),
                (7, (0.0,), "density is 0.0"), (7, (inf,), "density is inf"), (7, (0.5, -1.0), "values is -1"),
                (8, (32.0,), "bucket is 32"), (8, (4095.0,), "power of two"), (8, (16384.0,), "bucket is 16384"),
                (8, (64.5,), "whole")):
            self.refused(one(codec, 1, bytes(5), params=params), words)

    def test_natural(self):
        for base in (0, 129, 255):
            self.refused(one(2, 2, bytes([base, 0, 0])), "base %d" % base)
        second = bytes([1]) + bytes(4096) + bytes([0, 0])
        self.refused(one(2, 4097, second), "base 0 at byte 4097")
        self.refused(one(2, 3, bytes([127] * 3 + [0b1000]), params=(9.0,)), "unused sign bits")

    def test_scales(self):
        for codec in (3, 4, 8):
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


def refused(case, words, codec, count, payload, **more):
    """The frame of this payload is refused, with these words."""
    with case.assertRaises(gw.FrameError) as caught:
        gw.read_frame(one(codec, count, payload, **more))
    case.assertIn(words, str(caught.exception))


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
