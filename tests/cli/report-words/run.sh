# The summary: what it says of seeds, of runs that did not finish, and of settings that differ.
words() {
    "$GRADWIRE" report "$@" -o page.html > said
    python3 - <<'P'
import html, re
text = open("page.html").read().split("</h1>")[1].split("</header>")[0]
print(re.sub(r"\n+", "\n", html.unescape(re.sub(r"<[^>]*>", "", text)).replace("\u00a0", " ")).strip(), end="\n--\n")
P
}
python3 - <<'P'
import make_runs

def run(folder, spec, seed, accuracy, seconds, **more):
    made = make_runs.make(spec=spec, seed=seed, steps=4, **more)
    for step in made["steps"]:
        step["seconds"], step["wait_seconds"] = seconds, seconds / 4
    made["tests"] = [dict(step=n, seconds=n * seconds, accuracy=accuracy - (4 - n) / 100, loss=1, bits=1) for n in (2, 4)]
    make_runs.write(folder, made)

run("one/dense", "dense", 1, 0.915, 0.2)
run("one/natural", "natural:bits=8", 1, 0.914, 0.1)
run("one/stopped", "sign", 1, 0.9, 0.1, done=2, state="interrupted")
for seed in (1, 2):
    run(f"two/dense{seed}", "dense", seed, 0.91 + seed / 1000, 0.1)
    run(f"two/inside{seed}", "natural:bits=8", seed, 0.9115, 0.2)
    run(f"two/outside{seed}", "sign", seed, 0.9, 0.101)
run("two/failed", "sign", 3, 0.1, 0.1, state="failed", error="rank 2 is gone")
run("alone", "natural:bits=8", 1, 0.9, 0.1, state="running", done=3)
made = make_runs.make(spec="dense", steps=8, model="lstm")
made["steps"][3].update(loss=None, non_finite=2)
make_runs.write("text/dense", made)
made = make_runs.make(spec="dense", steps=8, model="lstm")
made["config"].update(link_bytes_per_second=1e9, ranks=8)
make_runs.write("text/other", made)
made = make_runs.make(spec="natural:bits=8", steps=8)
made.update(steps=[], tests=[], samples=[], state="running")
make_runs.write("nothing", made)
P
words one
words two
words alone
words text
words nothing
