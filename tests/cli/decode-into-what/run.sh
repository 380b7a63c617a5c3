python3 - <<E
import make
make.f32("x.f32", make.gradient(1000))
E

python3 - <<E
import make
x = make.gradient(8)
make.safetensors("two.safetensors", [("a", "F32", (4,), make.pack("F32", x[:4])),
                                     ("b", "F32", (4,), make.pack("F32", x[4:]))])
make.safetensors("brain.safetensors", [("a", "BF16", (8,), make.pack("BF16", x))])
make.safetensors("none.safetensors", [])
E
for file in two brain none; do
    "$GRADWIRE" encode -c cast $file.safetensors -o $file.gw
    for extension in npy f32; do
        code=0
        "$GRADWIRE" decode $file.gw -o y.$extension || code=$?
        test $code = 1 || echo "exit $code"
    done
    "$GRADWIRE" decode $file.gw -o y.safetensors
done
ls y.*
