"""The hash, number formats, frames read and refused, the command."""

import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from array import array

import gwframe as gw
from framing import decoded, entry, f32, frame, one, seal

HERE = os.path.dirname(os.path.abspath(__file__))


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
        values = array("I", [rng.getrandbits(32) for _ in range(3000)]
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
                ("codec id 0", 0, {}), ("codec id 10", 10, {}), ("codec id 224", 224, {}),
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
        zero, some = array("f", [0.0, -0.0]), array("f", [1.0, 0.0])
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
