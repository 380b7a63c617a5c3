# What cannot be chosen for: exit 1, a line that says what and where, nothing on stdout.
refused() {
    code=0
    "$GRADWIRE" adapt "$@" || code=$?
    test $code = 1 || echo "exit $code: $*"
}
python3 - <<E
import make
ones = make.pack("F32", [1] * 2000)
make.safetensors("nan.safetensors", [("rank0/a", "F32", (40, 50), ones),
                                     ("rank1/a", "F32", (40, 50), make.pack("F32", [1, 2, float("nan")] + [1] * 1997))])
make.safetensors("missing.safetensors", [("rank0/a", "F32", (40, 50), ones), ("rank0/b", "F32", (40, 50), ones),
                                         ("rank1/b", "F32", (40, 50), ones)])
make.safetensors("shapes.safetensors", [("rank0/a", "F32", (40, 50), ones), ("rank1/a", "F32", (50, 40), ones)])
make.safetensors("ones.safetensors", [("a", "F32", (40, 50), ones), ("b", "F32", (40, 50), ones),
                                      ("few", "F32", (1,), make.pack("F32", [1]))])
E
refused nan.safetensors --family dither --default dither
refused missing.safetensors --family dither --default dither
refused shapes.safetensors --family dither --default dither
refused lost.safetensors --family dither --default dither
refused ones.safetensors --family sign --default dither
refused ones.safetensors --family dither --default dither --pin c=dither:bits=2
refused ones.safetensors --family dither --default dither --pin a=topk
refused ones.safetensors --family dither --default dither --group a,c
refused ones.safetensors --family dither --default dither --group a,b --group b,a
refused ones.safetensors --family dither --default dither --group a,few
