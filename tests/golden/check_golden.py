#!/usr/bin/env python3
"""Golden frames, both ways, by the C library and by the Python oracle: check_golden.py GRADWIRE"""

import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "oracle"), str(HERE.parent / "cli")]
import gwframe  # noqa: E402
import make  # noqa: E402
import make_golden  # noqa: E402


def floats(dtype, raw):
    """fp32 numbers of a tensor's bytes."""
    if dtype == "BF16":
        raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
    code, width = ("e", 2) if dtype == "F16" else ("f", 4)
    return struct.unpack("<%d%s" % (len(raw) // width, code), raw)


def patterns(dtype, raw):
    """fp32 patterns of a tensor's bytes: not through Python's floats, which may quieten a NaN."""
    if dtype == "F32":
        return list(struct.unpack("<%dI" % (len(raw) // 4), raw))
    if dtype == "BF16":
        return [h << 16 for h in struct.unpack("<%dH" % (len(raw) // 2), raw)]
    return list(struct.unpack("<%dI" % (len(raw) // 2), struct.pack("<%df" % (len(raw) // 2), *floats(dtype, raw))))


def same(a, b):
    """Bit for bit, any NaN being equal to any other."""
    return len(a) == len(b) and all(
        (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1, x) == math.copysign(1, y))
        for x, y in zip(a, b))


def by_oracle(segment, frame, bits):
    """The payload that the oracle's own encoder makes."""
    stream = gwframe.Stream(frame.seed, frame.step, segment.tensor, frame.point, frame.rank)
    p = segment.params
    if segment.codec_name == "cast":
        return gwframe.encode_cast(bits, p["to"])
    if segment.codec_name == "natural":
        return gwframe.encode_natural(bits, segment.dtype, p["bits"], stream)
    if segment.codec_name == "ndither":
        return gwframe.encode_ndither(bits, segment.dtype, p["bits"], p["bucket"], stream, norm=p["norm"])
    if segment.codec_name == "sign":
        return gwframe.encode_sign(bits, p["bucket"])
    if segment.codec_name == "topk":
        return gwframe.encode_topk(bits, segment.dtype, p["density"], p["values"], stream)
    if segment.codec_name == "randk":
        key = gwframe.randk_key(frame.seed, frame.step, segment.tensor)
        return gwframe.encode_randk(bits, segment.dtype, p["density"], p["values"], key, stream)
    if segment.codec_name == "adacomp":
        return gwframe.encode_adacomp(bits, None, p["bin"], p["factor"], p["cap"])
    return gwframe.encode_dither(bits, segment.dtype, p["bits"], p["bucket"], p["rounding"], stream,
                                  norm=p["norm"])


def encodes(segment, frame, bits):
    """Why the oracle does not encode this segment so, or None. The products of lowrank are the BLAS library's, whose
    order of additions is its own: held to a tolerance, not to bytes."""
    if segment.codec_name == "lowrank":
        return gwframe.lowrank.difference(segment, frame, bits)
    return None if by_oracle(segment, frame, bits) == segment.payload else "other bytes"


def check_again(gradwire, spec, frame_path, folder, source):
    """What the library encodes today."""
    again = folder / "again.gw"
    for isa in ("auto", "scalar"):
        subprocess.run([gradwire, "encode", "-q", "-c", spec, HERE / "input.safetensors", "-o", again, "--isa", isa,
                        *make_golden.OPTIONS], check=True, stdout=subprocess.DEVNULL)
        now, before = again.read_bytes(), frame_path.read_bytes()
        if not spec.startswith("lowrank"):
            assert now == before, f"{frame_path.name}: {isa} encodes other bytes"
            continue
        now, before = gwframe.read_frame(now), gwframe.read_frame(before)
        assert len(now.segments) == len(before.segments)
        for a, b, (name, dtype, _, raw) in zip(now.segments, before.segments, source):
            assert (a.name, a.dims, a.spec, len(a.payload)) == (b.name, b.dims, b.spec, len(b.payload)), (name, isa)
            wrong = encodes(a, now, patterns(dtype, raw))
            assert wrong is None, f"{frame_path.name}: {isa} encodes {name} differently: {wrong}"


def check(gradwire, frame_path, folder):
    spec = next((s for s in make_golden.SPECS if make_golden.file_of(s) == frame_path.name), None)
    stored = make.safetensors_data(frame_path.with_suffix(".safetensors"))
    source = make.safetensors_data(HERE / "input.safetensors")
    decoded = folder / "decoded.safetensors"
    subprocess.run([gradwire, "decode", frame_path, "-o", decoded], check=True, stdout=subprocess.DEVNULL)
    for (name, dtype, _, raw), (_, _, _, want) in zip(make.safetensors_data(decoded), stored):
        assert same(floats(dtype, raw), floats(dtype, want)), f"{frame_path.name}: C decodes {name} differently"
    frame = gwframe.read_frame(frame_path.read_bytes())
    assert len(frame.segments) == len(source)
    for segment, (name, dtype, _, want), (_, _, _, raw) in zip(frame.segments, stored, source):
        assert same(gwframe.decode(segment), floats(dtype, want)), f"{frame_path.name}: oracle decodes {name} differently"
        wrong = encodes(segment, frame, patterns(dtype, raw))
        assert wrong is None, f"{frame_path.name}: oracle encodes {name} differently: {wrong}"
    if spec is not None:
        check_again(gradwire, spec, frame_path, folder, source)


def main():
    gradwire = os.path.abspath(sys.argv[1])
    frames = sorted(HERE.glob("*.gw"))
    missing = [s for s in make_golden.SPECS if not (HERE / make_golden.file_of(s)).exists()]
    assert frames and not missing, f"no golden frame of {missing}"
    listed = subprocess.run([gradwire, "codec", "list", "--json"], check=True, capture_output=True).stdout
    known = {codec["name"] for codec in json.loads(listed)}
    left_out = [f.name for f in frames if f.name.split("-")[1].removesuffix(".gw") not in known]
    if left_out:
        print("left out, this build has not their codecs:", *left_out)
    frames = [f for f in frames if f.name not in left_out]
    with tempfile.TemporaryDirectory() as folder:
        for frame in frames:
            check(gradwire, frame, pathlib.Path(folder))
    print(f"{len(frames)} golden frames: decoded and encoded alike by C and by the oracle")


if __name__ == "__main__":
    main()
