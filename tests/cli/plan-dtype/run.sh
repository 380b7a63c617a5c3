# gradient_dtype of a job: dense sends as many bytes as the dtype has, and a 16-bit job's bf16_ms is its dense_ms.
python3 - <<P
import json
tensors = [{"name": f"layer{i}", "shape": [1024, 1024], "ready_ms": 0.001 * (i + 1)} for i in range(4)]
for dtype in ("float32", "float16", "bfloat16", "bf16", "int8", None):
    job = {"format": "gradwire.job/1", "name": "four", "device": "cpu", "tensors": tensors}
    if dtype is not None:
        job["gradient_dtype"] = dtype
    json.dump(job, open(f"{dtype}.json", "w"))
P
C="$CASE/../../../examples/clusters/office-1g.json"
for job in None float32 float16 bfloat16 bf16; do
    "$GRADWIRE" plan $job.json --cluster "$C" --no-fusion --json -q > $job.plan
    "$GRADWIRE" plan $job.json --cluster "$C" -c natural:bits=8 --json -q > $job.natural
    "$GRADWIRE" advise $job.json --cluster "$C" -c natural:bits=8 --json -q > $job.advice
done
python3 - <<P
import json
read = lambda job, kind: json.load(open(f"{job}.{kind}"))
whole = read("float32", "plan")
for kind in ("plan", "natural", "advice"):
    assert {**read("None", kind), "select_ms": 0} == {**read("float32", kind), "select_ms": 0}, kind
    for job in ("float16", "bfloat16", "bf16"):
        r = read(job, kind)
        assert r["bf16_ms"] == r["dense_ms"] and r["step_ms"] <= r["dense_ms"] and r["lower_bound_ms"] <= r["step_ms"], (job, kind, r)
        assert 0.49 < r["dense_ms"] / read("float32", kind)["dense_ms"] < 0.52, (job, kind, r["dense_ms"])
for job in ("float16", "bfloat16"):
    assert all(t["spec"] == "dense" for t in read(job, "plan")["tensors"]), "a cast that spares nothing"
assert any(t["spec"] == "cast:to=bf16" for t in whole["tensors"]) and whole["bf16_ms"] < whole["dense_ms"]
print("half of", "dense_ms")
P
"$GRADWIRE" plan bf16.json --cluster "$C" | grep -c "gradients have 16 bits already"
"$GRADWIRE" plan int8.json --cluster "$C" || echo "exit $?"
