# Every name stands for a line of the lists, and a line that has a name says so.
"$GRADWIRE" routes --names
"$GRADWIRE" routes --names --json | python3 -c '
import json, subprocess, sys
names = json.load(sys.stdin)
run = lambda *words: subprocess.run([sys.argv[1], "routes", *words], check=True, capture_output=True, text=True).stdout
lines = set(run("--devices", "gpu").splitlines() + run("--additive", "--devices", "gpu").splitlines())
for name in names:
    coded = "code" in name["steps"]
    asked = name["name"] + ("@gpu" if coded else "")
    told = json.loads(run(asked, "--json", *(["-c", "cast:to=f32"] if coded else [])))
    assert told["route"] in lines and told["name"] == asked, asked
print(len(names), "names")' "$GRADWIRE"
