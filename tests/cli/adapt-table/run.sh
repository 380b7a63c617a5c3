python3 - <<E
import make
x = make.gradient(6000)
make.safetensors("x.safetensors", [
    ("a.weight", "F32", (40, 100), make.pack("F32", x[:4000])),
    ("a.bias", "F32", (1000,), make.pack("F32", [v / 64 for v in x[4000:5000]])),
    ("half", "BF16", (10, 100), make.pack("BF16", x[5000:])),
])
E
"$GRADWIRE" adapt x.safetensors --family dither,topk --default dither:bits=4
echo
"$GRADWIRE" adapt x.safetensors --family dither --default dither:bits=4 --alpha 0.0001 --pin a.weight=dither:bits=2
echo
# A setting of the default is one of its family's, too; a spec has settings of its own.
"$GRADWIRE" adapt x.safetensors --family dither --default dither:bits=4,bucket=128 --alpha inf | head -2
"$GRADWIRE" adapt x.safetensors --family dither:bucket=64,norm=l2 --family topk --default topk --alpha 0.1 --metric relative | head -2
