# No library is an error with a name, exit 1, nothing on stdout and no file; wrong options are misuse. With the emulated library the file
# has both devices, copies, and nodes and links that were said, and says so.
refuse() {
    code=0
    "$GRADWIRE" profile -o out.json "$@" 2> said || code=$?
    head -1 said >&2
    test ! -e out.json || echo "a file: $*"
    echo "exit $code"
}
refuse --device cuda --cuda /nowhere/libgradwire_cuda.so -n 1Ki
refuse --device tpu
refuse --nodes 8
refuse --cluster other.json
refuse --link 1gbit
refuse --device cuda --nodes 8
refuse --device cuda --link 1gbit
refuse --device cuda --ranks 2 --nodes 2 --link 1gbit
refuse --device cuda -n 100
refuse --device cuda --cluster nowhere.json
echo '{"format": "gradwire.cluster/1", "nodes": 8}' > odd.json
refuse --device cuda --cluster odd.json
refuse --device cuda --cluster "$CASE/../../../examples/clusters/wan-100m.json" --ranks-per-node 8
test -n "${GRADWIRE_EMULATED:-}" || exit 0
profile() {
    "$GRADWIRE" profile --device cuda --cuda "$GRADWIRE_EMULATED" -n 1Ki -c natural:bits=8 --force "$@" > said 2> ignored
    grep -v "ASan doesn't fully support makecontext" ignored >&2 || true
}
profile --nodes 8 --ranks-per-node 4 --link 100gbit --latency 7us -o said.json
profile --cluster said.json --link 40gbit --name second -o second.json
python3 - <<P
import json
said, second = json.load(open("said.json")), json.load(open("second.json"))
for cluster in (said, second):
    assert (cluster["device"], cluster["nodes"], cluster["ranks_per_node"], cluster["cpu_workers"]) == ("gpu", 8, 4, 1), cluster
    assert [(c["spec"], c["device"]) for c in cluster["codecs"]] == [("natural:bits=8", "gpu"), ("natural:bits=8", "cpu")]
    for codec in cluster["codecs"]:
        assert [p["bytes"] for p in codec["points"]] == [1024, 4096]
        assert all(p["encode_us"] > 0 and p["decode_us"] > 0 and p["samples"] > 0 for p in codec["points"])
    assert cluster["copy"]["latency_us"] > 0 and cluster["copy"]["gbit_per_s"] > 0
    assert abs(cluster["inter"]["latency_us"] - 7) < 1e-6 and cluster["intra"]["gbit_per_s"] > 100
    words = {s["what"]: s["how"] for s in cluster["sources"]}
    assert all(words[k].startswith("measured") for k in ("codecs on the gpu", "codecs on the cpu", "copy")), words
assert abs(said["inter"]["gbit_per_s"] - 95) < 1e-6 and abs(second["inter"]["gbit_per_s"] - 40) < 1e-6
how = lambda cluster: [s["how"] for s in cluster["sources"] if s["what"] == "inter: gbit_per_s"]
assert how(said) == ["said: 100 Gbit/s, of which 95 % are taken"] and how(second)[-1] == "said: 40 Gbit/s", second["sources"]
assert said["name"] == "measured" and second["name"] == "second"
tensors = [{"name": f"layer{i}", "shape": [1024, 1024], "ready_ms": 1.0 + i} for i in range(5)]
json.dump({"format": "gradwire.job/1", "name": "five", "device": "NVIDIA H200", "backward_ms": 6, "tensors": tensors}, open("job.json", "w"))
P
"$GRADWIRE" advise job.json --cluster second.json -c natural:bits=8 --json > advice.json
