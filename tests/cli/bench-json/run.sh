"$GRADWIRE" bench codec sign topk cast:to=f16 --feedback --steps 2 -n 100k -r 1 --json > bench.json
python3 - <<P
import json
for b in json.load(open("bench.json")):
    print(b["spec"], b["isa"] != "", b["device"], b["threads"], b["elements"], b["bytes"], b["feedback"])
    for key in ("encode_gbps", "decode_gbps", "copy_gbps", "add_gbps", "encode_roofline", "decode_roofline"):
        assert b[key] > 0, key
    assert b.get("nth_element_gbps", 0) > 0 if b["spec"] == "topk" else "nth_element_gbps" not in b
    assert b["break_even_gbit"] > 0 and abs(b["ratio"] * b["bytes"] / (4 * b["elements"]) - 1) < 1e-9
P
