python3 - <<E
import make
x = make.gradient(300)
make.npy("x.npy", make.pack("F64", x), (300,), "<f8")
make.npy("want.npy", make.pack("F32", x), (300,))
make.npy("big.npy", make.pack("F64", [1.0, 1e39, -1e300]), (3,), "<f8")
make.safetensors("x.safetensors", [("a", "F32", (1,), make.pack("F32", x[:1])),
                                   ("b", "F64", (299,), make.pack("F64", x[1:]))])
E
"$GRADWIRE" encode -c cast:to=f32 x.npy -o x.gw
"$GRADWIRE" decode x.gw -o y.npy
cmp y.npy want.npy
"$GRADWIRE" encode -c cast:to=f32 x.safetensors -o x.gw > /dev/null
"$GRADWIRE" decode x.gw -o y.safetensors > /dev/null
python3 -c 'import make; print(*(t[:2] for t in make.safetensors_data("y.safetensors")))'
"$GRADWIRE" encode -c cast:to=f32 big.npy -o big.gw > /dev/null
"$GRADWIRE" encode -q -c cast:to=f32 big.npy -o big.gw
