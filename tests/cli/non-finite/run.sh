python3 - <<E
import make
nan, inf = float("nan"), float("inf")
x = make.gradient(100) + [nan, inf, -inf, 3e38]
make.f32("x.f32", x)
make.safetensors("two.safetensors", [("fine", "F32", (100,), make.pack("F32", x[:100])),
                                     ("layer.7", "F32", (104,), make.pack("F32", x)),
                                     ("esc\x1b[31m", "BF16", (2,), make.pack("BF16", [nan, 1.0]))])
E
"$GRADWIRE" encode -c natural x.f32 -o x.gw
"$GRADWIRE" encode -c cast:to=f16 x.f32 -o x.gw --json
"$GRADWIRE" encode -q -c natural x.f32 -o x.gw
# It says which tensor, in encode and, once for all codecs, in inspect; with -q nothing.
"$GRADWIRE" encode -c natural two.safetensors -o x.gw
"$GRADWIRE" inspect -c natural -c sign two.safetensors > /dev/null
"$GRADWIRE" inspect -q -c sign two.safetensors > /dev/null
