python3 - <<E
import make
make.npy("x.npy", make.pack("F32", [0.25]), ())
make.safetensors("x.safetensors", [("s", "F16", (), make.pack("F16", [-4]))])
E
for file in x.npy x.safetensors; do
    for spec in cast natural natural:bits=9 ndither dither; do
        "$GRADWIRE" encode -c $spec $file -o x.gw > /dev/null
        "$GRADWIRE" decode x.gw -o y.${file#x.}
    done
done | sort -u
cmp x.npy y.npy
python3 -c 'import make; print(make.safetensors_data("y.safetensors"))'
"$GRADWIRE" inspect x.gw
