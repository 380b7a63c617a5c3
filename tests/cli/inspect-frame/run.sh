python3 - <<E
import make
x = make.gradient(3000)
make.safetensors("x.safetensors", [
    ("a", "F32", (20, 100), make.pack("F32", x[:2000])),
    ("scalar", "BF16", (), make.pack("BF16", x[:1])),
    ("none", "F16", (0, 3), b""),
])
E
"$GRADWIRE" encode -q -c dither:bits=8,bucket=64 x.safetensors -o x.gw --seed 3 --step 4 > /dev/null
"$GRADWIRE" inspect x.gw -v
"$GRADWIRE" inspect x.gw --json | python3 -c '
import json, sys
for row in json.load(sys.stdin):
    print(json.dumps(row))'
