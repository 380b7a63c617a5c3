python3 - <<E
import make
x = make.gradient(700)
make.safetensors("x.safetensors", [
    ("layer/z.weight", "F32", (5, 20), make.pack("F32", x[:100])),
    ("half", "F16", (3, 1, 7), make.pack("F16", x[100:121])),
    # The odd count before it puts this one askew for its type.
    ("askew", "F32", (100,), make.pack("F32", x[121:221])),
    ("nothing", "F32", (3, 0), b""),
    ("scalar", "BF16", (), make.pack("BF16", x[:1])),
    ("gradient of \u03b8", "BF16", (300,), make.pack("BF16", x[300:600])),
])
E
for spec in cast:to=f32 cast:to=bf16; do
    "$GRADWIRE" encode -c $spec x.safetensors -o x.gw
    "$GRADWIRE" decode x.gw -o y.safetensors
    python3 - <<E
import make
x, y = make.safetensors_data("x.safetensors"), make.safetensors_data("y.safetensors")
assert x == y, (x, y)
print(*(t[0] for t in y), sep=", ")
E
done
# What was written can be read, and is the same again.
"$GRADWIRE" encode -q -c cast:to=f32 y.safetensors -o y.gw > /dev/null
"$GRADWIRE" encode -q -c cast:to=f32 x.safetensors -o x.gw > /dev/null
cmp x.gw y.gw
