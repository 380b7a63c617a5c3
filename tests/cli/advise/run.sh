python3 - <<P
import json
tensors = [{"name": f"layer{i}", "shape": [1024, 1024], "ready_ms": 10.0 + 10 * i} for i in range(5)]
json.dump({"format": "gradwire.job/1", "name": "five", "device": "cpu", "forward_ms": 20, "backward_ms": 50, "tensors": tensors},
          open("job.json", "w"))
P
"$GRADWIRE" advise job.json --nodes 4 --link 100mbit -q > slow
"$GRADWIRE" advise job.json --nodes 4 --link 100gbit -q > fast
"$GRADWIRE" advise job.json --nodes 1 --link 1gbit -q > alone
head -1 slow fast alone
"$GRADWIRE" advise job.json --nodes 4 --link 1gbit -q --json > advice.json
python3 - <<P
import json
a = json.load(open("advice.json"))
assert a["answer"] == "yes" and a["reason"] and a["spec"] != "dense" and 1 < a["changes_at_gbit"] < 100
assert a["lower_bound_ms"] <= a["step_ms"] < a["bf16_ms"] < a["dense_ms"]
P
"$GRADWIRE" advise job.json --nodes 4 || echo "exit $?"
