# The page in a browser: no word on the console, data in every chart, nothing loaded, nothing wider than a phone, values
# under the pointer, dark when asked for, whole on paper.
command -v chromium > /dev/null || { echo "skip: no chromium"; exit 77; }
command -v pdftotext > /dev/null || { echo "skip: no pdftotext (poppler-utils)"; exit 77; }
python3 "$CASE/../make_runs.py" runs --seeds 2 --steps 60
python3 "$CASE/../make_runs.py" text --model lstm --steps 30 --spec dense --spec adacomp
python3 - <<'P'
import make_runs
for i, spec in enumerate(make_runs.CODECS):  # many ways, long names, hostile ones
    run = make_runs.make(spec=spec, steps=8)
    run["config"]["spec"] = spec + ":a_parameter_with_a_long_name=0.123456789,another=</script><img src=x onerror=alert(1)>"
    run["layers"][0]["name"] = "encoder.blocks.11.attention.self.query.projection.weight"
    make_runs.write(f"many/{i}", run)
    run["config"]["batch"] = 7
    make_runs.write(f"many/{i}b", run)
run.update(steps=[], tests=[], samples=[], state="running")
make_runs.write("nothing", run)
P
make_auto() { python3 -c "import make_runs; $1"; }
make_auto 'make_runs.write("auto/a", make_runs.make_auto(steps=120)); make_runs.write("auto/d", make_runs.make(steps=120))'
make_auto 'run = make_runs.make_auto(steps=40); run["auto"], run["watch"] = [], []; make_runs.write("quiet", run)'
for page in runs text many nothing auto quiet; do
    "$GRADWIRE" report $page -o $page.html
done
export HOME=$PWD
python3 "$CASE/look.py"
