# Five layers on two ranks, of very different scales; a slow network. What the plan says of its error is checked against `adapt`.
python3 - <<P
import json, make
shapes = [(64, 256 * (i + 1)) for i in range(5)]
json.dump({"format": "gradwire.job/1", "name": "five", "device": "cpu", "forward_ms": 2, "backward_ms": 7, "optimizer_ms": 1,
           "tensors": [{"name": f"layer{i}", "shape": s, "ready_ms": 1.0 + i} for i, s in enumerate(shapes)]}, open("job.json", "w"))
def numbers(i, rank):
    return make.pack("F32", [(v * 2**9) ** 3 * 4.0**-i * (1 + rank) for v in make.gradient(shapes[i][0] * shapes[i][1])])
make.safetensors("grads.safetensors", [(f"rank{r}/layer{i}", "F32", shapes[i], numbers(i, r)) for i in range(5) for r in (0, 1)])
P
C="$CASE/../../../examples/clusters/office-1g.json"
plan() { "$GRADWIRE" plan job.json --cluster "$C" --link 200mbit --grads grads.safetensors --family dither --default dither:bits=4 "$@"; }
plan --budget 1 -o plan.json --trace trace.json --json > report.json
plan --budget 1 -o again.json > words
cmp plan.json again.json
plan --budget 0.1 --json > tight.json
plan --budget 0 --json > none.json
plan --budget 1 --max-hops 1 --json > hops.json
for bits in 2 3 4 5 6 7 8; do
    "$GRADWIRE" adapt grads.safetensors --family dither --default dither:bits=$bits --json > adapt$bits.json
done
python3 - <<P
import json, math, re
load = lambda name: json.load(open(name + ".json"))
adapted = {bits: load(f"adapt{bits}") for bits in range(2, 9)}
errors = {bits: {x["name"]: x["uniform_error"] for x in a["layers"]} for bits, a in adapted.items()}
def check(r, alpha):
    w = r["within"]
    assert w["alpha"] == alpha and w["default"] == "dither:bits=4" and w["tables_ms"] > 0
    assert math.isclose(w["budget"], alpha * adapted[4]["uniform_error"], rel_tol=1e-12)
    told = 0
    for t in r["tensors"]:
        hops = t["route"].count("encode")
        assert (t["spec"] == "dense") == (hops == 0), t
        told += hops * errors[int(re.search("bits=([0-9])", t["spec"])[1])][t["name"]] if hops else 0
    assert math.isclose(told, w["error"], rel_tol=1e-12) and w["error"] <= w["budget"], (told, w)
    assert w["levels_error"] <= w["budget"] and w["routes_error"] <= w["budget"]
    assert r["lower_bound_ms"] <= r["step_ms"] <= min(r["dense_ms"], w["levels_alone_ms"], w["routes_alone_ms"])
    assert math.isclose(r["gap"], r["step_ms"] / r["lower_bound_ms"] - 1, abs_tol=1e-12)
    return w
r, p, tight, none, hops = (load(f) for f in ("report", "plan", "tight", "none", "hops"))
assert check(r, 1)["error"] > 0.5 * r["within"]["budget"], "the budget is there to be spent"
check(tight, 0.1)
check(none, 0)
check(hops, 1)
assert all(t["route"].count("encode") <= 1 for t in hops["tensors"])
assert r["step_ms"] < none["step_ms"] == none["dense_ms"] and all(t["spec"] == "dense" for t in none["tensors"])
assert p["format"] == "gradwire.plan/1" and p["tensors"] == r["tensors"] and abs(p["predicted"]["step_ms"] - r["step_ms"]) < 1e-6
end = max(e["ts"] + e["dur"] for e in load("trace")["traceEvents"] if e["ph"] == "X")
assert abs(end / 1000 + 3 - r["step_ms"]) < 1e-6, "the trace ends with the step"
words = open("words").read()
assert f'{r["step_ms"]:.3f} ms' in words and f'Error {r["within"]["error"]:.4g} of a budget of {r["within"]["budget"]:.4g}' in words, words
P
head -1 words
sed -n '4,8s/ *[0-9.]* ms.*//p' words
