python3 - <<E
import make
make.safetensors("x.safetensors", [
    ("a", "F32", (4,), make.pack("F32", [1, -2, 4, 0.5])),
    ("nan", "F32", (2,), make.pack("F32", [1, float("nan")])),
    ("zero", "F32", (2, 2), bytes(16)),
    ("none", "F16", (0,), b""),
])
E
# Powers of two are fixed points of natural, so every number here is exact.
"$GRADWIRE" inspect x.safetensors -c natural:bits=9 --json > rows.json
python3 - <<E
import json
for row in json.load(open("rows.json")):
    print(json.dumps(row))
E
"$GRADWIRE" inspect x.safetensors --json | python3 -c '
import json, sys
first = ("cast", "natural", "ndither", "dither")  # a new codec needs no change here
print(*(row["tensor"] + "/" + row["spec"] for row in json.load(sys.stdin) if row["spec"] in first))'
