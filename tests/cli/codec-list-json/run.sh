"$GRADWIRE" codec list --json > list.json
"$GRADWIRE" codec --json list | cmp - list.json
python3 - <<E
import json
for c in json.load(open("list.json")):
    assert sorted(c) == ["doc", "flags", "id", "isas", "name", "params"], c
    assert c["doc"] and "scalar" in c["isas"]
    if c["id"] > 4:  # a new codec needs no change here
        continue
    print(c["id"], c["name"], *c["flags"])
    for p in c["params"]:
        assert p.pop("doc")
        print(" ", json.dumps(p))
E
