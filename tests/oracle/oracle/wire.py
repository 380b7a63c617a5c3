"""Reading a frame: every rule of the wire page but the payloads' own."""

import struct

from .codecs import CODECS, Frame, FrameError, Segment, check, payload_sizes
from .hash import xxh3_64
from .numbers import DTYPE_NAMES
from .payload import check_payload

HEADER_BYTES = 64
ENTRY_BYTES = 40
MAGIC = b"GWF\x1a"


def _read_entry(data, at, header_end, index, hashed):
    """One entry -> (a Segment still without payload, payload bytes, payload hash, next offset)."""
    where = "segment %d, entry at byte %d" % (index, at)
    check(header_end - at >= ENTRY_BYTES, "%s: runs past the header's end at %d", where, header_end)
    codec, dtype, ndims, nparams, name_bytes, count, size, digest, tensor = struct.unpack_from(
        "<BBBBIQQQQ", data, at)
    check(codec in CODECS, "%s: codec id %d is unknown", where, codec)
    check(dtype in DTYPE_NAMES, "%s: dtype %d is unknown", where, dtype)
    check(ndims <= 8, "%s: %d dims, more than 8", where, ndims)
    codec_name, known = CODECS[codec]
    check(nparams <= len(known), "%s: %d parameters, but %s has %d",
           where, nparams, codec_name, len(known))
    check(name_bytes <= 1024, "%s: name of %d bytes, more than 1024", where, name_bytes)
    used = ENTRY_BYTES + 8 * ndims + 8 * nparams + name_bytes
    entry_bytes = -(-used // 8) * 8
    check(entry_bytes <= header_end - at, "%s: runs past the header's end at %d", where, header_end)

    dims = list(struct.unpack_from("<%dQ" % ndims, data, at + ENTRY_BYTES))
    product = 1
    for dim in dims:
        product *= dim
        check(product <= 1 << 48, "%s: the product of the dims is beyond 2^48", where)
    check(count == product, "%s: %d elements, but the product of the dims is %d",
           where, count, product)
    check(count < 1 << 48, "%s: %d elements, not below 2^48", where, count)
    check(size < 1 << 56, "%s: payload of %d bytes, not below 2^56", where, size)
    check(hashed or digest == 0, "%s: a payload hash, but flag bit 0 is not set", where)

    params = {p.name: p.default for p in known}
    given = struct.unpack_from("<%dd" % nparams, data, at + ENTRY_BYTES + 8 * ndims)
    for param, value in zip(known, given):
        params[param.name] = param.check(value, where)

    raw_name = data[at + used - name_bytes:at + used]
    check(0 not in raw_name, "%s: the name has a NUL byte", where)
    try:
        name = raw_name.decode("utf-8")
    except UnicodeDecodeError:
        raise FrameError("%s: the name is not UTF-8" % where) from None
    check(not any(data[at + used:at + entry_bytes]), "%s: padding after the name is not zero", where)

    fewest, most = payload_sizes(codec, params, count)
    check(fewest <= size <= most, "%s: payload of %d bytes, but %d elements of %s take %s",
           where, size, count, codec_name, fewest if fewest == most else "%d to %d" % (fewest, most))
    segment = Segment(codec, dtype, dims, count, params, name, tensor, b"")
    return segment, size, digest, at + entry_bytes


def read_frame(data):
    """bytes -> Frame, with every rule of the wire page checked; raises FrameError."""
    data = bytes(data)
    check(len(data) >= HEADER_BYTES, "frame: %d bytes, fewer than a header's 64", len(data))
    (magic, version, flags, n, header_end, frame_bytes, seed, step, rank, point, zero,
     header_hash) = struct.unpack_from("<4sHHIIQQQIIQQ", data, 0)
    check(magic == MAGIC, "header: magic is %s, not 47 57 46 1A, at byte 0", magic.hex(" ").upper())
    check(version == 1, "header: wire version is %d, this reader knows 1, at byte 4", version)
    check(flags & ~1 == 0, "header: unknown flag in 0x%04X at byte 6", flags)
    check(n <= 1 << 20, "header: %d segments, more than 1048576, at byte 8", n)
    check(header_end % 8 == 0 and HEADER_BYTES <= header_end < 1 << 31,
           "header: header bytes %d at byte 12 is not a multiple of 8 from 64 to below 2^31", header_end)
    check(frame_bytes == len(data), "header: frame bytes at byte 16 says %d, but %d were given",
           frame_bytes, len(data))
    check(frame_bytes % 8 == 0, "header: frame bytes %d at byte 16 is not a multiple of 8", frame_bytes)
    check(header_end <= frame_bytes, "header: header bytes %d at byte 12 is more than the frame's %d",
           header_end, frame_bytes)
    check(zero == 0, "header: the zero field at byte 48 is not zero")
    found = xxh3_64(data[:56] + bytes(8) + data[64:header_end])
    check(found == header_hash, "header: hash at byte 56 is %016X, but the bytes give %016X",
           header_hash, found)

    entries = []
    at = HEADER_BYTES
    for i in range(n):
        segment, size, digest, at = _read_entry(data, at, header_end, i, flags & 1)
        entries.append((segment, size, digest))
    check(at == header_end, "header: the entries end at byte %d, header bytes says %d", at, header_end)

    for i, (segment, size, digest) in enumerate(entries):
        where = "segment %d, payload at byte %d" % (i, at)
        end = at + size
        padded = -(-end // 8) * 8
        check(padded <= frame_bytes, "%s: its %d bytes run past the frame's end at %d",
               where, size, frame_bytes)
        segment.payload = data[at:end]
        check(not any(data[end:padded]), "%s: padding at byte %d is not zero", where, end)
        if flags & 1:
            found = xxh3_64(segment.payload)
            check(found == digest, "%s: hash is %016X, but the bytes give %016X",
                   where, digest, found)
        check_payload(segment, where)
        at = padded
    check(at == frame_bytes, "frame: the payloads end at byte %d, the frame at %d", at, frame_bytes)
    return Frame(flags, seed, step, rank, point, [entry[0] for entry in entries])
