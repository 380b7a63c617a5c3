"""Frames by plain packing, so that the reader is not tested with its own writer; and what the tests share."""

import struct

import gwframe as gw


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


def refused(case, words, codec, count, payload, **more):
    """The frame of this payload is refused, with these words."""
    with case.assertRaises(gw.FrameError) as caught:
        gw.read_frame(one(codec, count, payload, **more))
    case.assertIn(words, str(caught.exception))


class FixedRandom:
    """Stands in for a Stream: the same r for every element."""

    def __init__(self, r):
        self.value = r

    def r(self, i):
        del i
        return self.value


R_MAX = (1 << 23) - 1
