python3 - <<P
import json
tensors = [{"name": f"layer{i}", "shape": [256, 1024 * (i + 1)], "ready_ms": 1.0 + i} for i in range(5)]
json.dump({"format": "gradwire.job/1", "name": "five", "device": "cpu", "forward_ms": 2, "backward_ms": 7, "optimizer_ms": 1,
           "tensors": tensors}, open("job.json", "w"))
P
C="$CASE/../../../examples/clusters"
"$GRADWIRE" plan job.json --cluster "$C/office-1g.json" -c natural:bits=8 -c topk:density=0.01 -o plan.json --trace trace.json --json > report.json
"$GRADWIRE" plan job.json --cluster "$C/office-1g.json" -c natural:bits=8 -c topk:density=0.01 -o again.json > words
cmp plan.json again.json
python3 - <<P
import json
r, p, t = (json.load(open(f + ".json")) for f in ("report", "plan", "trace"))
for key in ("step_ms", "dense_ms", "bf16_ms", "all_compressed_ms", "zero_cost_ms", "lower_bound_ms", "select_ms", "evaluations",
            "candidates", "dominated"):
    assert r[key] > 0, key
assert r["zero_cost_ms"] <= r["step_ms"] <= min(r["dense_ms"], r["bf16_ms"], r["all_compressed_ms"])
assert r["lower_bound_ms"] <= r["step_ms"] and r["gap"] < 0.1, r["gap"]
assert p["format"] == "gradwire.plan/1" and p["job"]["name"] == "five" and p["job"]["checksum"].startswith("fnv1a64:")
assert p["tensors"] == r["tensors"] and [x["name"] for x in p["tensors"]] == [f"layer{i}" for i in range(5)]
assert abs(p["predicted"]["step_ms"] - r["step_ms"]) < 1e-6
end = max(e["ts"] + e["dur"] for e in t["traceEvents"] if e["ph"] == "X")
assert abs(end / 1000 + 3 - r["step_ms"]) < 1e-6, "the trace ends with the step"
print(len(r["tensors"]), "tensors,", r["tensors"][0]["elements"], "elements")
P
head -1 words
"$GRADWIRE" plan job.json --cluster "$C/office-1g.json" -c natural:bits=8 --explain | grep -c 'the step would take'
"$GRADWIRE" plan job.json --cluster "$C/office-1g.json" --what-if | tail -1 | awk '{print $1, $2, $3}'
