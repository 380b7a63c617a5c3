# The figures, computed a second time from the files.
python3 - <<'P'
import make_runs
make_runs.write_all("runs", seeds=3, steps=60)
make_runs.write("runs/sign", make_runs.make(spec="sign", seed=9, steps=60, done=30, state="failed", error="no"))
make_runs.write("runs/adacomp-failed", make_runs.make(spec="adacomp", seed=9, steps=60, done=5, state="failed", error="no"))
P
"$GRADWIRE" report runs -o page.html --json > told.json
python3 - <<'P'
import json, math, pathlib, re, statistics
import make_runs

told = json.load(open("told.json"))
ways = {}
for path in sorted(pathlib.Path("runs").glob("*/run.json")):
    run = make_runs.read(path.parent)
    ways.setdefault(run["config"]["spec"], []).append(run)
good = {spec: [r for r in runs if r["state"] == "finished"] or runs for spec, runs in ways.items()}
best = [max(t["accuracy"] for t in r["tests"]) for runs in good.values() for r in runs if r["state"] == "finished"]
target = math.floor(min(best) * 1000) / 1000
assert abs(told["target"] - target) < 1e-9, (told["target"], target)
assert told["runs"] == sum(map(len, ways.values())) and told["bytes"] == pathlib.Path("page.html").stat().st_size
assert [w["label"] for w in told["ways"]] == ["dense", "cast:to=bf16", "natural:bits=8", "sign", "adacomp"]
for way in told["ways"]:
    runs = good[way["label"]]
    steps = [s for r in runs for s in r["steps"]]
    expected = dict(
        seeds=len(runs),
        quality=statistics.mean(r["tests"][-1]["accuracy"] for r in runs),
        step_seconds=statistics.median(s["seconds"] for s in steps),
        wait_share=sum(s["wait_seconds"] for s in steps) / sum(s["seconds"] for s in steps),
        bytes_sent=statistics.mean(s["bytes_sent"] for s in steps),
        ratio=sum(s["dense_bytes"] for s in steps) / sum(s["bytes_sent"] for s in steps),
    )
    reached = [[t["seconds"] for t in r["tests"] if t["accuracy"] >= target] for r in runs]
    expected["target_seconds"] = statistics.mean(r[0] for r in reached) if all(reached) else None
    for name, value in expected.items():
        assert way[name] == value or abs(way[name] - value) <= 1e-9 * abs(value), (way["label"], name, way[name], value)
    assert way["auto"] is None

# ratios by kind, from the table: without layers that travel together
rows = open("page.html").read().split('<table class="runs cards">')[1].split("</table>")[0].split("<tr>")[2:]
for way, row in zip(told["ways"], rows):
    layers = [l for r in good[way["label"]] for l in r["layers"] if not l["fused"]]
    cells = dict(re.findall(r'<td data-label="([^"]*)">([^<]*)', row))
    shown = [float(cells[kind].split("×")[0]) for kind in ("conv", "linear")]
    assert float(cells["accuracy (%)"]) == round(100 * way["quality"], 2) and abs(float(cells["ms/step"]) - 1e3 * way["step_seconds"]) <= .5, cells
    assert float(cells["waiting (%)"]) == round(100 * way["wait_share"]) and abs(float(cells["compression"][:-1]) / way["ratio"] - 1) < .02, cells
    for kind, value in zip(("conv", "linear"), shown):
        sent, dense = (sum(l[k] for l in layers if l["kind"] == kind) for k in ("bytes_sent", "dense_bytes"))
        assert abs(value - dense / sent) <= 0.05, (way["label"], kind, value, dense / sent)

# the curves: first and last step, mean and range over seeds
data = json.loads(open("page.html").read().split('id="data">')[1].split("</script>")[0])
for way in data["ways"]:
    runs = good[way["label"]]
    loss, test = way["loss"], way["test"]
    assert loss["step"][0] == 1 and loss["step"][-1] == len(runs[0]["steps"]) == len(loss["step"])
    total = statistics.mean(sum(s["seconds"] for s in r["steps"]) for r in runs)
    assert abs(loss["seconds"][-1] - total) < 1e-4 * total, (loss["seconds"][-1], total)
    firsts = [r["steps"][0]["loss"] for r in runs]
    for name, value in (("mean", statistics.mean(firsts)), ("low", min(firsts)), ("high", max(firsts))):
        assert abs(loss[name][0] - value) < 1e-4 * value, (name, loss[name][0], value)
    lasts = [100 * r["tests"][-1]["accuracy"] for r in runs]
    assert abs(test["low"][-1] - min(lasts)) < 1e-2 and abs(test["high"][-1] - max(lasts)) < 1e-2
    middle = sorted((next(s["seconds"] for s in runs[0]["steps"] if s["step"] == m["step"]), m["step"]) for m in runs[0]["samples"])
    assert way["timeline"]["step"] == middle[(len(middle) - 1) // 2][1]
    for layer, own in zip(way["layers"], runs[0]["layers"]):
        assert layer["name"] == own["name"] and abs(layer["bytes"] - own["bytes_sent"] / len(runs[0]["steps"])) <= 1e-4 * own["bytes_sent"]
P
python3 -c 'import make_runs; make_runs.write("auto/1", make_runs.make_auto(steps=120)); make_runs.write("auto/2", make_runs.make_auto(steps=120, seed=2))'
"$GRADWIRE" report auto -o auto.html --json > told.json
python3 - <<'P'
import json, statistics
import make_runs

[told] = json.load(open("told.json"))["ways"]
runs = [make_runs.read(f"auto/{i}") for i in (1, 2)]
off = [abs(w["measured_seconds"] / w["predicted_seconds"] - 1) for r in runs for w in r["watch"] if w["predicted_seconds"]]
last = runs[0]["auto"][-1]
expected = dict(decisions=12, switches=6, prediction_off=statistics.median(off), **{k: last[k] for k in ("predicted_seconds", "half_seconds", "double_seconds", "dense_seconds", "bound_seconds")})
assert set(told["auto"]) == set(expected), told["auto"]
for name, value in expected.items():
    assert abs(told["auto"][name] - value) <= 1e-9 * value, (name, told["auto"][name], value)
page = open("auto.html").read()
assert "It made <b>12 decisions</b> and changed its plan 6 times. The median window was " in page
[way] = json.loads(page.split('id="data">')[1].split("</script>")[0])["ways"]
auto = way["auto"]
assert [d["changed"] for d in auto["decisions"]] == [d["outcome"] == "switched" for d in runs[0]["auto"]]
assert [(d["step"], d["bound"], d["words"]) for d in auto["decisions"]] == [(d["step"], d["bound_at"], d["words"]) for d in runs[0]["auto"]]
assert [w[0] for w in auto["watch"]] == [w["step"] for w in runs[0]["watch"]] and len(auto["bytes"]) == 120
layer = next(i for i, l in enumerate(runs[0]["layers"]) if l["name"] == "fc1.weight")
[row] = [r for r in auto["rows"] if r["name"] == "fc1.weight"]
plans = [(d["bound_at"], d["layers"][layer]["spec"], d["layers"][layer]["route"]) for d in runs[0]["auto"] if d["outcome"] == "switched"]
begin = (1, make_runs.DITHER % 4, make_runs.SRA)  # as step 1 was sent
assert [(p[0], p[1], p[3]) for p in row["parts"]] == [begin, *plans[1:]], row  # the first plan is no change of this layer
assert row["parts"][1][2] > row["parts"][0][2] > row["parts"][2][2] > 4, row  # topk is smallest
last = runs[0]["auto"][-1]["layers"]
assert [(l["spec"], l["route"]) for l in way["layers"]] == [(l["spec"], l["route"]) for l in last]  # the plan in force at the end
assert [w[1:4] for w in auto["watch"]] == [[w[k] and float("%.5g" % w[k]) for k in ("measured_seconds", "predicted_seconds", "expected_seconds")] for w in runs[0]["watch"]]
P

# The same runs as formats before had them: what was predicted is told from what was expected, the begin is not known.
for version in 1 2; do
    python3 -c "import make_runs; make_runs.write('old/1', make_runs.make_auto(steps=120), $version); make_runs.write('old/2', make_runs.make_auto(steps=120, seed=2), $version)"
    "$GRADWIRE" report old -o old.html --json > old.json
    python3 - <<'P'
import json
told, old = (json.load(open(name))["ways"][0]["auto"] for name in ("told.json", "old.json"))
assert old == told, (old, told)
now, before = (json.loads(open(name).read().split('id="data">')[1].split("</script>")[0])["ways"][0]["auto"] for name in ("auto.html", "old.html"))
assert now["watch"] == before["watch"], (now["watch"], before["watch"])
begin = {row["name"]: row["parts"][0] for row in before["rows"]}
assert begin["fc1.weight"] == [1, "not recorded", None, "not recorded"], begin
P
    rm -r old
done
