# The second reader, written from the wire format's page alone, gets the same numbers and errors.
python3 - <<E
import make
x = make.gradient(6000)
make.safetensors("x.safetensors", [("a", "F32", (60, 50), make.pack("F32", x[:3000])),
                                   ("b", "BF16", (1001,), make.pack("BF16", x[3000:4001])),
                                   ("c", "F16", (1999,), make.pack("F16", x[4001:]))])
E
for spec in cast:to=f16 natural natural:bits=9 ndither:bits=3 dither:bits=5,bucket=64; do
    "$GRADWIRE" encode -c $spec x.safetensors -o x.gw --seed 7 > /dev/null
    "$GRADWIRE" decode x.gw -o y.safetensors > /dev/null
    "$GRADWIRE" inspect -c $spec x.safetensors --seed 7 --json > inspect.json
    python3 - $spec <<E
import json, struct, sys
import gwframe, make
frame = gwframe.read_frame(open("x.gw", "rb").read())
assert frame.seed == 7
rows = json.load(open("inspect.json"))
widths = {"F32": 4, "F16": 2, "BF16": 2}
for segment, row, x, y in zip(frame.segments, rows, make.safetensors_data("x.safetensors"),
                              make.safetensors_data("y.safetensors")):
    floats = gwframe.decode(segment)
    name = segment.name.decode() if isinstance(segment.name, bytes) else segment.name
    assert name == x[0] == y[0] == row["tensor"] and row["spec"] == sys.argv[1]
    assert list(segment.dims) == x[2] and len(segment.payload) == row["bytes"], (segment.dims, row)
    def numbers(t):
        code = {"F32": "f", "F16": "e"}.get(t[1])
        if code:
            return struct.unpack(f"<{len(t[3]) // widths[t[1]]}{code}", t[3])
        return [struct.unpack("<f", b"\0\0" + t[3][i:i + 2])[0] for i in range(0, len(t[3]), 2)]
    a, b = numbers(x), numbers(y)
    error = sum((p - q) * (p - q) for p, q in zip(a, b)) / sum(p * p for p in a)
    cosine = sum(p * q for p, q in zip(a, b)) / sum(p * p for p in a) ** .5 / sum(q * q for q in b) ** .5
    assert abs(row["rel_error"] - error) <= 1e-12 * error, (row, error)
    assert abs(row["cosine"] - cosine) <= 1e-12, (row, cosine)
    assert row["bits_per_element"] == 8 * row["bytes"] / len(a) and row["elements"] == len(a)
    assert struct.pack(f"<{len(b)}f", *b) == struct.pack(f"<{len(b)}f", *floats), name
E
done
