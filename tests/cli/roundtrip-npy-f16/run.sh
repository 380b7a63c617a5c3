python3 - <<E
import make
make.npy("x.npy", make.pack("F16", make.gradient(999)), (999,), "<f2")
E
for spec in cast:to=f16 cast:to=f32; do
    "$GRADWIRE" encode -c $spec x.npy -o x.gw
    "$GRADWIRE" decode x.gw -o y.npy
    cmp x.npy y.npy
done
"$GRADWIRE" decode x.gw -o y.f32
