# A job holds no gradients: without them nothing is recommended but unbiased codecs and bf16; others when they are named, with a warning.
python3 - <<P
import json
tensors = [{"name": f"{kind}{i}", "shape": shape, "ready_ms": 1.0 + i} for i in range(4)
           for kind, shape in (("norm", [512]), ("bias", [512]), ("weight", [512, 512]), ("scale", []))]
json.dump({"format": "gradwire.job/1", "name": "small", "device": "cpu", "backward_ms": 10, "tensors": tensors}, open("job.json", "w"))
P
advise() { "$GRADWIRE" advise job.json --nodes 4 -q "$@"; }
for link in 1mbit 10mbit 100mbit 3gbit; do
    advise --link $link -o $link.plan --json > $link.json
done
advise --link 10mbit -c topk:density=0.01 -o topk.plan > topk.words
advise --link 10mbit -c topk:density=0.01 --json > topk.json
advise --link 3gbit -c natural:bits=8 -c dither:bits=4 --json > fastest.json
advise --link 10mbit -c dither:bits=4,rounding=nearest --json > nearest.json
"$GRADWIRE" codec list --json > codecs.json
python3 - <<P
import json
load = lambda name: json.load(open(name))
unbiased = {c["name"] for c in load("codecs.json") if "unbiased" in c["flags"]}
assert {"natural", "dither"} <= unbiased and "topk" not in unbiased, unbiased
def check(plan, allowed):
    specs = {t["name"]: t["spec"] for t in load(plan)["tensors"]}
    assert len(specs) == 16
    for name, spec in specs.items():
        assert (spec == "dense") == (not name.startswith("weight")), (plan, name, spec)
        assert spec == "dense" or spec.split(":")[0] in allowed, (plan, name, spec)
for link in ("1mbit", "10mbit", "100mbit", "3gbit"):
    a = load(link + ".json")
    assert a["answer"] == "yes" and a["spec"].split(":")[0] in unbiased | {"cast"}, a
    check(link + ".plan", unbiased | {"cast"})
check("topk.plan", {"topk", "cast"})
words, topk, nearest = open("topk.words").read(), load("topk.json"), load("nearest.json")
assert topk["spec"].startswith("topk:density=0.01") and topk["quality"] in words, topk
for needle in ("error feedback", "lose accuracy", "with Adam", "ruin", "docs/train.md"):
    assert needle in topk["quality"], (needle, topk)
assert "unbiased" not in topk["quality"] and "unbiased" not in nearest["quality"] and "rounds" in nearest["quality"], nearest
# the least noise of what is within 5 % of the fastest: bf16, though natural would be faster
gentle, fastest = load("3gbit.json"), load("fastest.json")
assert gentle["spec"] == "cast:to=bf16" and fastest["spec"] == "natural:bits=8", (gentle, fastest)
assert fastest["step_ms"] < gentle["step_ms"] <= 1.05 * fastest["step_ms"], (gentle, fastest)
assert gentle["relative_error"] < 1e-4 < 0.05 < fastest["relative_error"] < load("1mbit.json")["relative_error"]
P
