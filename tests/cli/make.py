"""Files for the cases: .npy, .safetensors and .f32 from lists of numbers, standard library only."""

import json
import struct


def pack(dtype, values):
    """Little-endian bytes of F64, F32, F16 or BF16 (cut off, for values that it holds exactly)."""
    if dtype == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{dict(F64='d', F32='f', F16='e')[dtype]}", *values)


def gradient(n):
    """Numbers of both signs over some orders of magnitude, exact in every dtype down to bf16."""
    values, state = [], 12345
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        sign, mantissa, exponent = state >> 63, state >> 56 & 127, state >> 50 & 7
        values.append((-1) ** sign * (1 + mantissa / 128) * 2.0**-exponent * 2**-9)
    return values


def npy(path, data, shape, descr="<f4", fortran=False, version=1):
    shape = tuple(shape)
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    head = 10 if version == 1 else 12
    header += b" " * (-(head + len(header) + 1) % 64) + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY" + bytes([version, 0]) + length + header + data)


def npy_data(path):
    """(descr, shape, bytes) of a version 1 file."""
    with open(path, "rb") as f:
        whole = f.read()
    end = 10 + struct.unpack("<H", whole[8:10])[0]
    header = eval(whole[10:end], {"__builtins__": {}})  # our own file
    return header["descr"], header["shape"], whole[end:]


def raw_safetensors(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def safetensors(path, tensors):
    """tensors: [(name, dtype, shape, bytes)], in the order of their data."""
    header, data = {"__metadata__": {"made by": "a test"}}, b""
    for name, dtype, shape, piece in tensors:
        offsets = [len(data), len(data) + len(piece)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        data += piece
    # The order of JSON keys is not the order of the data.
    raw_safetensors(path, dict(sorted(header.items())), data)


def safetensors_data(path):
    """[(name, dtype, shape, bytes)] in order of their data."""
    with open(path, "rb") as f:
        whole = f.read()
    end = 8 + struct.unpack("<Q", whole[:8])[0]
    entries = [(k, v) for k, v in json.loads(whole[8:end]).items() if k != "__metadata__"]
    entries.sort(key=lambda item: item[1]["data_offsets"])
    return [
        (name, e["dtype"], e["shape"], whole[end + e["data_offsets"][0] : end + e["data_offsets"][1]])
        for name, e in entries
    ]


def f32(path, values):
    with open(path, "wb") as f:
        f.write(pack("F32", values))


def rehash(frame):
    """A frame whose header was changed, with the header's hash made right again."""
    import gwframe

    end = struct.unpack_from("<I", frame, 12)[0]
    head = frame[:56] + bytes(8) + frame[64:end]
    return frame[:56] + struct.pack("<Q", gwframe.xxh3_64(head)) + frame[64:]
