python3 - <<E
import make
def one(dtype="F32", shape=[2], data_offsets=[0, 8], **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets, **more}
raw, data = make.raw_safetensors, bytes(16)
raw("a-int.safetensors", {"t": one("I64")}, data)
raw("b-overlap.safetensors", {"t": one(), "u": one(shape=[3], data_offsets=[4, 16])}, data)
raw("c-gap.safetensors", {"t": one(), "u": one(shape=[1], data_offsets=[12, 16])}, data)
raw("d-behind.safetensors", {"t": one()}, data)
raw("e-range.safetensors", {"t": one(shape=[10], data_offsets=[0, 40])}, data)
raw("f-order.safetensors", {"t": one(data_offsets=[8, 0])}, data)
raw("g-span.safetensors", {"t": one(data_offsets=[0, 16])}, data)
raw("h-product.safetensors", {"t": one(shape=[2**62, 2**62])}, data)
raw("i-negative.safetensors", {"t": one(shape=[2, -1])}, data)
raw("j-real.safetensors", {"t": one(shape=[2.0])}, data)
raw("k-dims.safetensors", {"t": one(shape=[1] * 9)}, data)
raw("l-key.safetensors", {"t": one(colour="red")}, data)
raw("m-missing.safetensors", {"t": {"dtype": "F32", "shape": [2]}}, data)
raw("n-twice.safetensors", b'{"t": 1, "t": 2}')
raw("o-entry.safetensors", {"t": [1]})
raw("p-array.safetensors", [])
raw("q-json.safetensors", b'{"t": ')
raw("r-meta.safetensors", {"__metadata__": {"a": 1}})
raw("s-meta.safetensors", {"__metadata__": "a"})
raw("t-huge.safetensors", b'{"t": {"dtype": "F32", "shape": [99999999999999999999]}}')
raw("u-nul.safetensors", {"a" + chr(0) + "b": 1})
raw("v-utf8.safetensors", b'{"\xff": 1}')
raw("w-deep.safetensors", b"[" * 100000)
raw("x-string.safetensors", {"t": one(dtype=1)}, data)
raw("y-offsets.safetensors", {"t": one(data_offsets=[0, 4, 8])}, data)
open("z-short.safetensors", "wb").write(b"1234567")
E
refuse() {
    code=0
    "$GRADWIRE" encode -c natural "$1" -o out.gw || code=$?
    test $code = 1 || echo "exit $code: $1"
    code=0
    "$GRADWIRE" inspect "$1" 2> /dev/null || code=$?
    test $code = 1 || echo "inspect, exit $code: $1"
    test ! -e out.gw || echo "left behind: $1"
}
for file in *.safetensors; do refuse $file; done
