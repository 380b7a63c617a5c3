python3 - <<E
import make
x = make.gradient(5000)
make.safetensors("x.safetensors", [
    ("a", "F32", (4000,), make.pack("F32", x[:4000])),
    ("zeros.bias", "F32", (8,), bytes(32)),
    ("long.name.of.a.tensor", "BF16", (992,), make.pack("BF16", x[4008:])),
])
E
"$GRADWIRE" inspect x.safetensors -c cast:to=f32 -c dither:bits=8
echo
"$GRADWIRE" inspect --generate 1k
