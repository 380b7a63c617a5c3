# Instruction set and threads change nothing; seed, step, rank and the tensor's index do.
python3 - <<E
import make
x = make.pack("F32", make.gradient(20000))
make.safetensors("x.safetensors", [("a", "F32", (20000,), x), ("b", "F32", (20000,), x)])
E
encode() { "$GRADWIRE" encode -c "$spec" x.safetensors -o "$@" > /dev/null; }
for spec in cast natural natural:bits=9 ndither dither dither:bits=8,rounding=nearest; do
    encode plain.gw
    encode scalar.gw --isa scalar
    encode threads.gw --threads 3
    encode again.gw --isa auto --seed 0 --step 0 --rank 0 --threads 1
    cmp plain.gw scalar.gw
    cmp plain.gw threads.gw
    cmp plain.gw again.gw
done
payloads() { python3 -c '
import sys, gwframe
print(*(s.payload.hex() for s in gwframe.read_frame(open(sys.argv[1], "rb").read()).segments))' "$1"; }
spec=natural
encode plain.gw
for other in "--seed 0x7" "--step 1" "--rank 1"; do
    encode other.gw $other
    if test "$(payloads plain.gw)" = "$(payloads other.gw)"; then echo "same with $other"; fi
done
set -- $(payloads plain.gw)
if test $1 = $2; then echo "both tensors drew the same numbers"; fi
