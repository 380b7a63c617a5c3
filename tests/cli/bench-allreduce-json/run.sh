# What design promises to scripts, and what bytes and limits must be. No time is asserted.
"$GRADWIRE" bench allreduce -c natural:bits=8 --route sra -n 40960 --ranks 4 --link 1gbit --latency 10us --rounds 2 --json > one
"$GRADWIRE" bench allreduce -c cast:to=f32 -c natural:bits=8 --route hier-gather -n 40960 --ranks 4 --ranks-per-node 2 \
    --near-link 2.5gbit --rounds 1 --piece 8192 --lanes 2 --json > two
python3 - <<'P'
import json
one, two = json.load(open("one")), json.load(open("two"))
print(one["engine"], one["route"], one["spec"], one["ranks"], one["elements"], one["rounds"])
# dense 2 (P-1)/P of all; natural: ten blocks of 4096 + 1 bytes, of which a rank that owns three sends seven,
# then its three to three others: 16, in six payloads with a seal of 8. Dense: two seals of 8 for each of three peers.
print(one["dense_wire_bytes"], one["wire_bytes"])
for d in [one, *two]:
    assert d["seconds"] > 0 and d["dense_seconds"] > 0
    assert d["spread"][0] <= d["seconds"] <= d["spread"][1]
    assert d["dense_spread"][0] <= d["dense_seconds"] <= d["dense_spread"][1]
    assert abs(d["speed_up"] - d["dense_seconds"] / d["seconds"]) < 1e-9
    assert abs(d["limit_share"] - d["limit_seconds"] / d["seconds"]) < 1e-9
# a virtual link is never faster than its rate
assert one["limit_seconds"] == one["wire_bytes"] / 125e6 < one["seconds"]
assert one["dense_limit_seconds"] == one["dense_wire_bytes"] / 125e6 < one["dense_seconds"]
assert 0.01 < one["rel_error"] < 0.5, one["rel_error"]
# the exact codec, then the lossy one, along the same route
assert [d["spec"] for d in two] == ["cast:to=f32", "natural:bits=8"]
assert two[0]["rel_error"] < 1e-12 < 0.001 < two[1]["rel_error"]
assert two[0]["ranks_per_node"] == 2 and two[0]["dense_limit_seconds"] < two[0]["dense_seconds"]
P
