# The commands that the advice prints: the first writes the plan, the trainer's is complete for its own jobs.
python3 - <<P
import json
tensors = [{"name": f"layer{i}", "shape": [512, 512], "ready_ms": 1.0 + i} for i in range(3)]
job = {"format": "gradwire.job/1", "name": "cnn", "device": "cpu", "software": "gradwire 0.1.0", "backward_ms": 10, "tensors": tensors}
json.dump(job, open("own.json", "w"))
json.dump({**job, "software": "torch 2.13"}, open("torch.json", "w"))
P
"$GRADWIRE" advise own.json --nodes 2 --ranks-per-node 2 --link 200mbit -q | sed -n '/^Next/,$p'
"$GRADWIRE" advise torch.json --nodes 4 --link 2500mbit -c dither:bits=2 -q | sed -n '/^Next/,$p'
sed -i 's/"backward_ms": 10/"backward_ms": 10, "beside_ms": 12/' own.json
words="$("$GRADWIRE" advise own.json --nodes 4 --link 200mbit -q | grep '^  gradwire advise')"
eval "$(echo "$words" | sed "s|gradwire|\"$GRADWIRE\"|")" > again 2>&1
grep -c 'attach(ddp, "plan.json")' again
python3 -c 'import json; print(json.load(open("plan.json"))["format"], len(json.load(open("plan.json"))["tensors"]))'
"$GRADWIRE" advise own.json --nodes 4 --link 100gbit -q -o no.json > no || echo "exit $?"
test ! -e no.json
"$GRADWIRE" advise own.json --nodes 4 --link 200mbit -q -o - || echo "exit $?"
