# run.json is read strictly: file, path and reason of each fault, and no page.
python3 - <<'P'
import copy, json, pathlib
import make_runs

good = make_runs.make(steps=3)
single = make_runs.before(good, 1)  # all in one file
planned = make_runs.before(make_runs.make_auto(steps=60), 1)
cases = []


def case(change, text=None, of=single):
    run = copy.deepcopy(of)
    if change:
        change(run)
    cases.append(text(json.dumps(run)) if text else json.dumps(run))


def owner(run, path):
    *way, last = path.split(".")
    for part in way:
        run = run[int(part)] if part.isdigit() else run[part]
    return run, last


def put(path, value):
    def change(run):
        holder, name = owner(run, path)
        holder[int(name) if isinstance(holder, list) else name] = value
    return change


def drop(path):
    def change(run):
        holder, name = owner(run, path)
        del holder[name]
    return change


case(put("format", "gradwire.run/4"))
case(drop("format"))
case(put("colour", "red"))
case(put("config.colour", "red"))
case(put("error", "but it finished"))
case(put("state", "failed"))
case(put("state", "lost"))
case(drop("weights"))
case(put("weights", -1))
case(put("weights", 1.5))
case(put("config.engine", "pigeons"))
case(put("config.ranks", 0))
case(put("config.rate", "fast"))
case(put("config", []))
case(put("layers", {}))
case(put("layers.2.kind", "round"))
case(put("layers.2.fused", 1))
case(put("layers.2.name", "fc2.bias"))
case(put("layers.2.elements", None))
case(drop("steps.1.loss"))
case(put("steps.1.seconds", None))
case(put("steps.1.loss", -0.5))
case(put("steps.1.step", 1))
case(put("steps.0.step", 0))
case(put("tests.1.accuracy", 1.01))
case(put("tests.1.step", 1))
case(lambda run: run["tests"].append(7))
case(put("samples.0.layers", []))
case(put("samples.0.layers.3.begun", None))
case(put("samples.0.layers.3.late", 1))
case(None, lambda text: text[:-5])
case(None, lambda text: text.replace('"weights": ', '"weights": NaN, "x":'))
case(None, lambda text: text.replace('"weights": ', '"weights": 1, "weights": '))
case(None, lambda text: text.replace('"seconds": 0', '"seconds": 1e999', 1))
case(None, lambda text: "[]")
case(None, lambda text: "")
case(put("auto", []))  # of a run whose spec is another
for change in (drop("auto"), drop("watch"), put("watch", {}), put("auto.0.reason", "boredom"), put("auto.0.outcome", "default"), put("auto.0.colour", "red"),
               drop("auto.2.half_seconds"), put("auto.2.bytes", None), put("auto.2.error", -1), put("auto.2.waited", "two"), put("auto.0.step", 0), put("auto.1.step", 1),
               put("auto.2.bound_at", 3), put("auto.2.layers", []), put("auto.2.layers.4", "dense"), put("auto.2.layers.4.route", None), drop("auto.2.layers.4.spec"),
               put("watch.3.step", 3), put("watch.3.loss", "low"), drop("watch.3.budget"), put("watch.3.speed", 1), put("config.spec", "autos")):
    case(change, of=planned)
for i, text in enumerate(cases):
    pathlib.Path(f"bad{i:02}").mkdir()
    pathlib.Path(f"bad{i:02}/run.json").write_text(text)
# from gradwire.run/2 on: the head, and a history beside it
head, history = make_runs.parts(good)
lines = history.splitlines(keepends=True)
changed = lambda key, value: json.dumps(dict(json.loads(head), **{key: value}))
summary = json.loads(head)["summary"]
for i, (run, text) in enumerate((
        (head, None), (changed("colour", "red"), history), (changed("steps", []), history), (head, history.replace("steps", "steps2", 1)),
        (head, '{"steps": {}, "tests": {}}\n'), (head, "[]\n"), (head, "\n" + history), (head, history + '{"watch": {"step": 1}}\n'),
        (head, history.replace('"loss"', '"lost"', 1)), (head, history.replace("}", "}}", 1)), (head, history + "\0\0\0\n"), (head, lines[0] + history),
        (head, "".join(line for line in lines if '{"step": 2' not in line)), (head, history[:history.rindex('{"steps": {"step": 3')]), (head, ""),
        (json.dumps({k: v for k, v in json.loads(head).items() if k != "summary"}), history), (changed("summary", dict(summary, colour=1)), history),
        (changed("summary", dict(summary, seconds=-1)), history))):
    pathlib.Path(f"new{i:02}").mkdir()
    pathlib.Path(f"new{i:02}/run.json").write_text(run)
    if text is not None:
        pathlib.Path(f"new{i:02}/history.jsonl").write_text(text)
# what a crash tore is left out: the end of a line, bytes that were never written
running = changed("state", "running")
for name, run, text in (("torn", running, history[:-20]), ("zeros", head, history + "\0" * 4096), ("behind", running, "")):
    pathlib.Path(name).mkdir()
    pathlib.Path(f"{name}/run.json").write_text(run)
    pathlib.Path(f"{name}/history.jsonl").write_text(text)
make_runs.write("good", good)
make_runs.write("before", good, version=1)
make_runs.write("before2", make_runs.make_auto(steps=60), version=2)
of_later = make_runs.before(make_runs.make_auto(steps=60), 2)
of_later["watch"][3]["expected_seconds"] = 1
make_runs.write("later", of_later)
make_runs.write("both/a", good)
make_runs.write("both/b", good)
make_runs.write("models/a", good)
make_runs.write("models/b", make_runs.make(steps=3, model="lstm"))
other = make_runs.make(steps=3, seed=2)
other["layers"][0]["name"] = "other"
make_runs.write("layers/a", good)
make_runs.write("layers/b", other)
P
mkdir -p empty/folder folder.html
touch file
for run in bad* new* later both models layers empty file nowhere; do
    "$GRADWIRE" report $run -o page.html && echo "$run was taken"
done
mkdir taken
for run in torn zeros behind before before2; do
    "$GRADWIRE" report $run -o taken/$run.html
done
"$GRADWIRE" report good bad00 -o page.html || "$GRADWIRE" report good -o folder.html || "$GRADWIRE" report good -o nowhere/page.html || echo "exit $?"
ls -d *.html
