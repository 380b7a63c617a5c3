python3 - <<E
import make
make.f32("x.f32", make.gradient(1000))
E

"$GRADWIRE" encode -c dither:bits=4 x.f32 -o x.gw > /dev/null
python3 - <<E
import struct
import make
frame = open("x.gw", "rb").read()
def write(name, data):
    open(name + ".gw", "wb").write(data)
def changed(at, data):
    return frame[:at] + data + frame[at + len(data):]
write("a-truncated", frame[:-9])
write("b-header-only", frame[:64])
write("c-short", frame[:20])
write("d-empty", b"")
write("e-longer", frame + bytes(8))
write("f-payload", changed(len(frame) - 20, bytes([frame[-20] ^ 1])))
write("g-header", changed(24, b"\x05"))
write("h-magic", changed(0, b"H"))
write("i-version", changed(4, b"\x02\x00"))
write("j-codec", make.rehash(changed(64, b"\xf7")))
write("k-dtype", make.rehash(changed(65, b"\x09")))
write("l-parameter", make.rehash(changed(64 + 48, struct.pack("<d", 99))))
write("m-count", make.rehash(changed(72, struct.pack("<Q", 2**47))))
# Count and dim agree, the hash is right: a claim of 2^47 elements must not cost their memory.
huge = bytearray(frame)
huge[72:80] = huge[104:112] = struct.pack("<Q", 2**47)
write("n-huge", make.rehash(bytes(huge)))
E
for file in [a-z]-*.gw; do
    for out in y.npy y.f32 y.safetensors; do
        code=0
        "$GRADWIRE" decode $file -o $out 2> said || code=$?
        test $code = 1 || echo "exit $code: $file"
        test ! -e $out || echo "left behind: $out of $file"
    done
    cat said >&2
    # All but the last are wrong by their headers and hashes alone.
    if test $file != n-huge.gw; then
        code=0
        "$GRADWIRE" inspect $file 2> /dev/null || code=$?
        test $code = 1 || echo "inspect, exit $code: $file"
    fi
done
