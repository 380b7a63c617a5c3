# '-' is standard input and standard output: the same bytes as with files, results on stderr.
python3 - <<P
import make
x = make.gradient(90000)
make.npy("x.npy", make.pack("F32", x), (300, 300))
make.f32("x.f32", x)
make.safetensors("x.safetensors", [("a", "F32", (60000,), make.pack("F32", x[:60000])),
                                   ("b", "BF16", (30000,), make.pack("BF16", x[60000:]))])
P
echo "== the same bytes, from a file, a pipe and a file on stdin"
for file in x.npy x.safetensors; do
    "$GRADWIRE" encode -q -c dither:bits=4 $file -o file.gw > /dev/null
    cat $file | "$GRADWIRE" encode -c dither:bits=4 - -o - > pipe.gw
    "$GRADWIRE" encode -q -c dither:bits=4 - -o - < $file > stdin.gw
    cmp pipe.gw stdin.gw
    # a stream has no name to give to its one tensor
    if test $file = x.safetensors; then cmp file.gw pipe.gw; fi
    cat file.gw | "$GRADWIRE" decode - -o - --format ${file#x.} > back.${file#x.}
    "$GRADWIRE" decode -q file.gw -o again.${file#x.} > /dev/null
    cmp back.${file#x.} again.${file#x.}
done
cat x.f32 | "$GRADWIRE" encode -c natural - -o raw.gw --format f32
"$GRADWIRE" decode raw.gw -o - | cat > raw.safetensors
"$GRADWIRE" decode raw.gw -o - --format f32 -q | cmp - <("$GRADWIRE" decode raw.gw -o - --format f32 -q)
python3 -c 'import make; print([(n, d, s) for n, d, s, _ in make.safetensors_data("raw.safetensors")])'
"$GRADWIRE" encode -q -c natural x.npy -o - | "$GRADWIRE" decode -q - -o - | "$GRADWIRE" inspect - -c cast --total
echo "== inspect"
cat x.npy | "$GRADWIRE" inspect - -c natural
cat file.gw | "$GRADWIRE" inspect -
"$GRADWIRE" inspect - -c natural --format f32 < x.f32
echo "== planning"
J='{"format": "gradwire.job/1", "name": "j", "forward_ms": 1, "backward_ms": 3, "tensors": [{"name": "a", "shape": [300, 400], "ready_ms": 2}]}'
echo "$J" > j.json
"$GRADWIRE" plan -q j.json --nodes 4 --link 1gbit -c sign -o plan.json > /dev/null
echo "$J" | "$GRADWIRE" plan -q - --nodes 4 --link 1gbit -c sign -o - | cmp - plan.json
printf 'order,tensor,numel,gap_us\n0,a,100000,0\n' | "$GRADWIRE" plan -q - --nodes 4 --link 1gbit -c sign --json | grep -c '"spec"'
echo '[{"figure": "2b", "tensors": [{"compute": 8, "ops": [["gpu", 3], ["net", 3]]}]}]' | "$GRADWIRE" simulate -
cat x.safetensors | "$GRADWIRE" adapt - --family dither --default dither:bits=4 --json | grep -c '"spec"'
echo "== what cannot be"
refused() {
    code=0
    "$GRADWIRE" "$@" || code=$?
    echo "exit $code"
}
refused encode -c natural - -o y.gw < x.f32
refused encode -c natural - -o y.gw < /dev/null
refused decode - -o y.npy < x.npy
refused encode -c natural - -o y.gw --format gif < x.npy
refused encode -c natural x.npy -o - --json
refused plan j.json --nodes 4 --link 1gbit -o - --json
refused plan j.json --nodes 4 --link 1gbit -o - --explain
refused inspect - -c natural < file.gw
refused inspect - <&-
if test -e /dev/full; then "$GRADWIRE" encode -q -c natural x.npy -o - > /dev/full || echo "exit $?"; fi
ls y.* ./- 2> /dev/null || true
