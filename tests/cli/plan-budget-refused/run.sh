# What cannot be planned within a budget: a line that says what and where, nothing on stdout.
C="$CASE/../../../examples/clusters/office-1g.json"
refused() {
    code=0
    "$GRADWIRE" plan job.json --cluster "$C" "$@" > out 2> said || code=$?
    sed 1q said >&2
    echo "exit $code, $(wc -c < out) bytes"
}
printf '{"format": "gradwire.job/1", "name": "j", "tensors": [%s, %s]}' '{"name": "a", "shape": [40, 50], "ready_ms": 1}' \
    '{"name": "b", "shape": [1000], "ready_ms": 2}' > job.json
python3 - <<P
import make
a, b = make.pack("F32", [1] * 2000), make.pack("F32", [1] * 1000)
make.safetensors("part.safetensors", [("a", "F32", (40, 50), a)])
make.safetensors("other.safetensors", [("a", "F32", (40, 50), a), ("b", "F32", (2000,), a)])
make.safetensors("nan.safetensors", [("a", "F32", (40, 50), a), ("b", "F32", (3,), make.pack("F32", [1, float("inf"), 1]))])
make.safetensors("whole.safetensors", [("a", "F32", (40, 50), a), ("b", "F32", (1000,), b)])
P
D="--family dither --default dither:bits=4"
refused $D --budget 1
refused $D --budget -1 --grads whole.safetensors
refused $D --budget nan --grads whole.safetensors
refused $D --budget 1 --grads whole.txt
refused --budget 1 --grads whole.safetensors --default dither
refused --budget 1 --grads whole.safetensors --family dither
refused --budget 1 --grads whole.safetensors --family zip --default dither
refused --grads whole.safetensors
refused --family dither
refused --default dither
refused $D --budget 1 --grads whole.safetensors -c natural
refused $D --budget 1 --grads whole.safetensors --explain
refused $D --budget 1 --grads whole.safetensors --what-if
refused $D --budget 1 --grads lost.safetensors
refused $D --budget 1 --grads part.safetensors
refused $D --budget 1 --grads other.safetensors
refused $D --budget 1 --grads nan.safetensors
refused --family sign --default dither --budget 1 --grads whole.safetensors
