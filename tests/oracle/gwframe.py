#!/usr/bin/env python3
"""A second reader of gradwire frames, and a slow reference encoder.

Written from docs/wire-format.md ("the wire page") and docs/numerics.md ("the numerics page") alone,
never from the C sources: where the two implementations agree, the pages are what they agree on.
Standard library only, Python 3.9 or later.

    python3 gwframe.py FILE.gw                        a table of the segments, then "ok"
    python3 gwframe.py FILE.gw --json                 the same as a JSON list
    python3 gwframe.py FILE.gw --floats OUT.f32       all decoded values, raw little-endian fp32
    python3 gwframe.py FILE.gw --against IN.safetensors|IN.npy|IN.f32
                                                      with each tensor's error against its input
    python3 gwframe.py --known-answers                random words for the numerics page

Exit status: 0 fine, 1 failed (one line on stderr), 2 misuse.
"""

import argparse
import json
import math
import sys

# What others use of the parts stands here too, so that `import gwframe` is the whole of it.
from oracle import lowrank  # noqa: F401
from oracle.codecs import (  # noqa: F401
    ADACOMP, CAST, CODECS, DITHER, LOWRANK, NATURAL, NDITHER, RANDK, SIGN, TOPK, Frame, FrameError, Segment,
    adacomp_most, low_bits, payload_size, payload_sizes, sent_of)
from oracle.decoders import decode, decode_patterns, levels, unpack_codes  # noqa: F401
from oracle.encoders import (  # noqa: F401
    adacomp_payload, adacomp_select, after_feedback, dither_level, encode_adacomp, encode_cast, encode_dither,
    encode_natural, encode_ndither, encode_randk, encode_sign, encode_topk, natural_exponent, natural_level,
    ndither_level, pack_codes, randk_key, sign_scale, with_residual)
from oracle.files import INPUT_KINDS, InputError, compare, inputs_for
from oracle.hash import xxh3_64  # noqa: F401
from oracle.numbers import (  # noqa: F401
    BF16, F16, F32, INF_BITS, M32, M64, NAN_BITS, bf16_from_f32, bits_of, f16_from_f32, f32_from_f16, fl, float_of,
    le_array, le_bytes, rounded, widen)
from oracle.payload import adacomp_sent, randk_indices, topk_indices, unpack_wide  # noqa: F401
from oracle.wire import read_frame
from oracle.words import Stream, r23, random_key, word, words  # noqa: F401

KNOWN_STREAMS = [  # seed, step, tensor, point, rank
    (0, 0, 0, 0, 0),
    (1, 0, 0, 0, 0),
    (0, 1, 0, 0, 0),
    (0, 0, 1, 0, 0),
    (0, 0, 0, 1, 0),
    (0, 0, 0, 0, 1),
    (0x0123456789ABCDEF, 0xFEDCBA9876543210, 0x8000000000000001, 0xDEADBEEF, 0x80000001),
    (M64, M64, M64, M32, M32),
]
KNOWN_INDICES = [0, 1, 15, 16, 31, 32, 4096, (1 << 33) - 1, 1 << 33, (1 << 34) + 21]


def known_answers():
    """A markdown table of r(i), a row a stream."""
    def show(v):
        return str(v) if v < 1 << 16 else "%X" % v
    titles = ["seed", "step", "tensor", "point", "rank"]
    titles += ["i=%s" % ("2^33-1" if i == (1 << 33) - 1 else "2^33" if i == 1 << 33 else
                         "2^34+21" if i > 1 << 33 else i) for i in KNOWN_INDICES]
    rows = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for stream in KNOWN_STREAMS:
        key = random_key(*stream)
        cells = [show(v) for v in stream] + ["%06X" % r23(key, i) for i in KNOWN_INDICES]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _printable(text):
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _table(rows):
    """Rows of strings as aligned lines; numbers, from the fifth column on, to the right."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(w) if c < 4 else cell.rjust(w)
                 for c, (cell, w) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def describe(frame, values, inputs):
    """What --json prints: one dict a segment."""
    out = []
    for i, segment in enumerate(frame.segments):
        size = len(segment.payload)
        row = {"tensor": segment.name, "spec": segment.spec, "elements": segment.count, "bytes": size,
               "bits_per_element": 8 * size / segment.count if segment.count else 0.0}
        if inputs is not None:
            row["rel_error"], row["cosine"] = compare(inputs[i], values[i])
        out.append(row)
    return out


def print_text(frame, rows):
    head = ["tensor", "dtype", "dims", "spec", "elements", "bytes", "bits/element"]
    measured = bool(rows) and "rel_error" in rows[0]
    lines = [head + (["rel_error", "cosine"] if measured else [])]
    for segment, row in zip(frame.segments, rows):
        cells = [_printable(segment.name) or "(no name)", segment.dtype_name,
                 "x".join(map(str, segment.dims)) or "scalar", segment.spec, str(segment.count),
                 str(row["bytes"]), "%.4f" % row["bits_per_element"]]
        if measured:
            cells += ["%.6g" % row["rel_error"], "%.8f" % row["cosine"]]
        lines.append(cells)
    print("wire version 1, seed %d, step %d, rank %d, point %d, %s payload hashes, %d segments"
          % (frame.seed, frame.step, frame.rank, frame.point,
             "with" if frame.flags & 1 else "without", len(frame.segments)))
    if rows:
        _table(lines)
    print("ok")


def print_json(rows):
    for row in rows:  # JSON has no words for what is not finite
        for key, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                row[key] = None
    print(json.dumps(rows, indent=2))


def _fail(path, error):
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    print("gwframe: %s: %s" % (_printable(path), _printable(reason)), file=sys.stderr)
    return 1


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="gwframe.py", description="Reads a gradwire frame; a second implementation.")
    parser.add_argument("file", nargs="?", metavar="FILE.gw")
    parser.add_argument("--json", action="store_true", help="print the segments as JSON")
    parser.add_argument("--floats", metavar="OUT.f32", help="write all decoded values as raw fp32")
    parser.add_argument("--against", metavar="IN", help="compare with a .safetensors, .npy or .f32 file")
    parser.add_argument("--known-answers", action="store_true", help="print the table of random words")
    args = parser.parse_args(argv)
    if args.known_answers:
        if args.file or args.json or args.floats or args.against:
            parser.error("--known-answers stands alone")
        print(known_answers())
        return 0
    if not args.file:
        parser.error("FILE.gw is missing")
    if args.against and not args.against.endswith(INPUT_KINDS):
        parser.error("--against takes a file ending in %s" % ", ".join(INPUT_KINDS))
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may not fit the terminal

    path = args.file
    try:
        with open(path, "rb") as file:
            frame = read_frame(file.read())
        # Always decoded, so that "ok" covers the whole way.
        values = [decode(segment) for segment in frame.segments]
        inputs = None
        if args.against:
            path = args.against
            inputs = inputs_for(frame, path)
        rows = describe(frame, values, inputs)
        if args.floats:
            path = args.floats
            with open(path, "wb") as file:
                for part in values:
                    file.write(le_bytes(part))
    except (FrameError, InputError, OSError) as error:
        return _fail(path, error)
    except MemoryError:  # 16 bytes of adacomp may stand for any number of NaNs
        return _fail(path, "more elements than fit into memory")
    if args.json:
        print_json(rows)
    else:
        print_text(frame, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
