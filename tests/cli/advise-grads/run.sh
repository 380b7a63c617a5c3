# With gradients every tensor gets a level, all errors together within those of dither:bits=4; vectors stay as they are.
python3 - <<P
import json, make
shapes = [(64, 256 * (i + 1)) for i in range(4)] + [(768,)]
json.dump({"format": "gradwire.job/1", "name": "five", "device": "cpu", "forward_ms": 2, "backward_ms": 7, "optimizer_ms": 1,
           "tensors": [{"name": f"layer{i}", "shape": s, "ready_ms": 1.0 + i} for i, s in enumerate(shapes)]}, open("job.json", "w"))
def numbers(i):
    count = 1
    for n in shapes[i]:
        count *= n
    return make.pack("F32", [(v * 2**9) ** 3 * 4.0**-i for v in make.gradient(count)])
make.safetensors("grads.safetensors", [(f"layer{i}", "F32", shapes[i], numbers(i)) for i in range(5)])
P
advise() { "$GRADWIRE" advise job.json --nodes 4 --link 100mbit -q "$@"; }
advise --grads grads.safetensors -o plan.json > words
advise --grads grads.safetensors --json > advice.json
advise --grads grads.safetensors -c topk:density=0.01 -o named.json > /dev/null
for bits in 2 3 4 5 6 7 8; do
    "$GRADWIRE" adapt grads.safetensors --family dither --default dither:bits=$bits --json > adapt$bits.json
done
python3 - <<P
import json, re
load = lambda name: json.load(open(name))
errors = {bits: {x["name"]: x["uniform_error"] for x in load(f"adapt{bits}.json")["layers"]} for bits in range(2, 9)}
told, tensors = 0, load("plan.json")["tensors"]
for t in tensors:
    hops, bits = t["route"].count("encode"), re.search("dither:bits=([0-9])", t["spec"])
    assert (t["spec"] == "dense") == (hops == 0) and bool(bits) == (hops > 0), t
    told += hops * errors[int(bits[1])][t["name"]] if hops else 0
budget = sum(errors[4][f"layer{i}"] for i in range(4))
assert 0.3 * budget < told <= budget, (told, budget)
assert {t["name"]: t["spec"] for t in tensors}["layer4"] == "dense"
a, words = load("advice.json"), open("words").read()
assert a["answer"] == "yes" and a["step_ms"] < a["bf16_ms"] < a["dense_ms"] and a["quality"] in words, a
assert re.search("as dither:bits=[0-9].*, others with [1-9][0-9]* other setting", words), words
assert f"{told:.3g}" in a["quality"] and f"{budget:.3g}" in a["quality"], (a["quality"], told, budget)
assert "--grads grads.safetensors" not in words.split("Next:")[1], "the plan is written already"
named = {t["spec"].split(":")[0] for t in load("named.json")["tensors"]}
assert "topk" in named and named <= {"dense", "dither", "natural", "topk"}, named
P
"$GRADWIRE" advise job.json --nodes 4 --link 100mbit --grads none.safetensors || echo "exit $?"
