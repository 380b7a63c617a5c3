# Long runs stay a small page, and nothing is thinned out at the ends.
python3 - <<'P'
import make_runs
run = make_runs.make(spec="natural:bits=8", steps=40)
row = run["steps"][0]
run["steps"] = [dict(row, step=i + 1, loss=2 / (1 + i / 1000)) for i in range(10000)]
run["tests"] = [dict(step=i + 1, seconds=i / 10, accuracy=0.5 + i / 4000, loss=1, bits=1) for i in range(1000)]
for seed in range(5):
    for spec in ("natural:bits=8", "sign"):
        run["config"].update(seed=seed, spec=spec)
        make_runs.write(f"runs/{spec}-{seed}", run)
P
"$GRADWIRE" report runs -o page.html
python3 - <<'P'
import json, os
assert os.path.getsize("page.html") < 200_000, os.path.getsize("page.html")
data = json.loads(open("page.html").read().split('id="data">')[1].split("</script>")[0])
for way in data["ways"]:
    for curve, last in ((way["loss"], 10000), (way["test"], 1000)):
        assert len(curve["step"]) == 200 and curve["step"][0] == 1 and curve["step"][-1] == last, curve["step"]
        assert {len(values) for values in curve.values()} == {200}
    assert way["window"] == 201
P
