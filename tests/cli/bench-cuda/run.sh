# No library is an error with a name, exit 1, nothing on stdout; wrong options are misuse. With the emulated library the
# figures are there, and the bytes are the host's.
code=0
"$GRADWIRE" bench codec --device cuda --cuda /nowhere/libgradwire_cuda.so -n 1000 -r 1 || code=$?
test $code = 1 || echo "exit $code"
for wrong in "--device tpu" "--device cuda --threads 2" "--device cuda --isa scalar"; do
    code=0
    "$GRADWIRE" bench codec $wrong -n 1000 2> said || code=$?
    head -1 said >&2
    test $code = 2 || echo "exit $code: $wrong"
done
test -n "${GRADWIRE_EMULATED:-}" || exit 0
"$GRADWIRE" bench codec natural:bits=8 topk --feedback --steps 2 --device cuda --cuda "$GRADWIRE_EMULATED" -n 20k -r 1 --json > cuda.json 2> said
grep -v "ASan doesn't fully support makecontext" said >&2 || true
"$GRADWIRE" bench codec natural:bits=8 topk --feedback --steps 2 -n 20k -r 1 --json > cpu.json
python3 - <<P
import json
for there, here in zip(json.load(open("cuda.json")), json.load(open("cpu.json"))):
    assert there["device"] == "cuda" and there["bytes"] == here["bytes"], (there, here)
    for key in ("encode_gbps", "decode_gbps", "copy_gbps", "encode_roofline", "decode_roofline", "break_even_gbit"):
        assert there[key] > 0, key
P
