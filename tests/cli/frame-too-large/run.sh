# A frame of 160 bytes or less that claims many elements: "all NaN" is 16 bytes for any number of them.
# gradwire decodes it up to a limit. Nothing is written beyond it and no memory is taken.
cat > bomb.py <<'P'
import struct, sys
import make
def bomb(path, *counts):
    header = 64 + 72 * len(counts)  # an entry: 40, a dim, three parameters
    frame = struct.pack("<4sHHIIQQQIIQQ", b"GWF\x1a", 1, 0, len(counts), header, header + 16 * len(counts), 0, 0, 0, 0, 0, 0)
    for n in counts:
        frame += struct.pack("<BBBBIQQQQQddd", 5, 1, 1, 3, 0, n, 16, 0, 0, n, 500, 2, 0)
    frame += struct.pack("<BxxxIQ", 2, 0x7FC00000, 0) * len(counts)
    open(path, "wb").write(make.rehash(frame))
    return len(frame)
print(bomb("small.gw", 1000), bomb("edge.gw", 2**28), bomb("over.gw", 2**28 + 1), bomb("half.gw", 5 * 10**8))
bomb("most.gw", 2**48 - 1)
bomb("sum.gw", 2**28, 1)
P
python3 bomb.py
for file in over half most sum; do
    "$GRADWIRE" decode $file.gw -o y.safetensors || echo "exit $?"
    test ! -e y.safetensors || echo "left behind: y.safetensors of $file"
done
"$GRADWIRE" decode small.gw -o y.f32
"$GRADWIRE" decode small.gw -o y.f32 --max-bytes 3999 || echo "exit $?"
"$GRADWIRE" decode small.gw -o y.f32 --max-bytes 4k
"$GRADWIRE" inspect half.gw --json | grep elements # lists the segments, decodes nothing
"$GRADWIRE" decode small.gw -o y.f32 --max-bytes many || echo "exit $?"
