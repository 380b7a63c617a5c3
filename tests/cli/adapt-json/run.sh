# Two ranks, four layers; powers of two, so that errors are exact. Topk keeps 1 of 4 by default.
python3 - <<E
import make
def layer(scale, n):  # n/4 times (8, 4, 2, 1)
    return make.pack("F32", [scale * v for v in (8, 4, 2, 1)] * (n // 4))
tensors = []
for rank in (0, 1):
    tensors += [(f"rank{rank}/large", "F32", (8, 32), layer(64, 256)), (f"rank{rank}/small", "F32", (16, 64), layer(2**-6, 1024)),
                (f"rank{rank}/zero", "F32", (64,), bytes(256)), (f"rank{rank}/twin", "F32", (16, 64), layer(2**-4, 1024))]
make.safetensors("x.safetensors", tensors)
E
adapt() { "$GRADWIRE" adapt x.safetensors --family topk --default topk:density=0.25 "$@" --json > out.json; }
show() {
    python3 - <<E
import json
got = json.load(open("out.json"))
assert got.pop("solve_ms") >= 0 and got.pop("tables_ms") >= 0
layers = got.pop("layers")
print(json.dumps(got))
for layer in layers:
    print(json.dumps(layer))
E
}
adapt
show
echo
adapt --alpha 0 # nothing may be lost
show
echo
adapt --pin large=cast:to=f32 --group small,twin
show
echo
adapt --keep-vectors --min-elements 1000 --header 8 --metric squares --fast
show
