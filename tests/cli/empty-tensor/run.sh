python3 - <<E
import make
make.npy("x.npy", b"", (3, 0, 2))
make.f32("x.f32", [])
E
for spec in cast natural natural:bits=9 ndither dither; do
    for file in x.npy x.f32; do
        "$GRADWIRE" encode -c $spec $file -o x.gw
        "$GRADWIRE" decode x.gw -o y.${file#x.} > /dev/null
        cmp $file y.${file#x.}
    done
done | sort -u
"$GRADWIRE" encode --json -c natural x.npy -o x.gw
