# Yes, no and alone; the numbers as a person writes them; what --json holds.
python3 - <<P
import json
tensors = [{"name": f"layer{i}", "shape": [1024, 1024], "ready_ms": 10.0 + 10 * i} for i in range(5)]
json.dump({"format": "gradwire.job/1", "name": "five", "device": "cpu", "forward_ms": 20, "backward_ms": 50, "tensors": tensors},
          open("job.json", "w"))
P
"$GRADWIRE" advise job.json --nodes 4 --link 100mbit -q
"$GRADWIRE" advise job.json --nodes 4 --link 1tbit -q
"$GRADWIRE" advise job.json --nodes 1 --link 1gbit -q
"$GRADWIRE" advise job.json --nodes 4 --link 1gbit -q --json > advice.json
python3 - <<P
import json
a = json.load(open("advice.json"))
assert a["answer"] == "yes" and a["reason"] and a["spec"] != "dense" and 1 < a["changes_at_gbit"] < 100
assert a["lower_bound_ms"] <= a["step_ms"] < a["bf16_ms"] < a["dense_ms"]
assert a["spec"].split(":")[0] in a["quality"] and "unbiased" in a["quality"] and 0 < a["relative_error"] < 0.25, a
assert f"{a['speed_up']:.2f} times as fast" in a["reason"] and "bf16" in a["reason"], a
P
"$GRADWIRE" advise job.json --nodes 4 || echo "exit $?"
