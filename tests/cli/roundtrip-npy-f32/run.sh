python3 - <<E
import make
for version in 1, 2, 3:
    make.npy(f"x{version}.npy", make.pack("F32", make.gradient(600)), (20, 3, 10), version=version)
E
"$GRADWIRE" encode -c cast:to=f32 x1.npy -o x.gw
"$GRADWIRE" decode x.gw -o y.npy
cmp x1.npy y.npy
for version in 2 3; do
    "$GRADWIRE" encode -q -c cast:to=f32 x$version.npy -o x$version.gw > /dev/null
    "$GRADWIRE" decode x$version.gw -o y.npy > /dev/null
    cmp x1.npy y.npy
done
"$GRADWIRE" encode -c natural:bits=8 x1.npy -o n.gw --json
"$GRADWIRE" decode n.gw -o n.npy --json
python3 - <<E
import struct, make
descr, shape, data = make.npy_data("n.npy")
assert (descr, shape) == ("<f4", (20, 3, 10)), (descr, shape)
x, y = make.gradient(600), struct.unpack("<600f", data)
assert all(abs(a) / 2 < abs(b) < 2 * abs(a) and a * b > 0 for a, b in zip(x, y))
E
ls
