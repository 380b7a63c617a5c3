#!/usr/bin/env python3
"""`gradwire train` as its user has it: check_train.py CASE GRADWIRE [GRADWIRE_MPI]

Cases: resume, interrupt, disk, compare, mpi, control. Runs are killed at lines they print and files they make, never by the clock.
"""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

import run_oracle
import small

STEPS = 40
GRADWIRE, MPI = (pathlib.Path(p).resolve() for p in (*sys.argv[2:4], "none")[:2])


def command(images, *more):
    return [GRADWIRE, "train", "--model", "mlp", "--images", images, "--ranks", "2", "--batch", "16", "--every", "20", "--sample", "10",
            "--seed", "5", *more]


def run(*command_line, status=0, **more):
    done = subprocess.run([str(c) for c in command_line], capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == status, f"{command_line}: exit {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}"
    return done


def final(folder):
    """The bytes of the last checkpoint, all but checkpoint.json."""
    names = run_oracle.checkpoints(folder)
    assert len(names) == 1, f"{folder}: {names}"
    return names[0], {p.name: p.read_bytes() for p in sorted((folder / names[0]).iterdir()) if p.name != "checkpoint.json"}


def assert_same_end(a, b):
    (name_a, files_a), (name_b, files_b) = final(a), final(b)
    assert name_a == name_b == f"checkpoint-{STEPS:06d}" and set(files_a) == set(files_b), f"{name_a} {set(files_a)}, {name_b} {set(files_b)}"
    for name, content in files_a.items():
        assert content == files_b[name], f"{name} of {a.name} and {b.name} differ"


def same_course(a, b):
    """Losses, bytes and tests, step by step; times are no part of it."""
    def pick(folder):
        one = run_oracle.check(folder)
        return ([(s["step"], s["loss"], s["bytes_sent"], s["dense_bytes"]) for s in one["steps"]],
                [(t["step"], t["accuracy"], t["loss"]) for t in one["tests"]],
                [(layer["name"], layer["bytes_sent"], layer["dense_bytes"]) for layer in one["layers"]],
                [(s["step"], [layer["rel_error"] for layer in s["layers"]]) for s in one["samples"]])
    return pick(a) == pick(b)


def start(command_line):
    return subprocess.Popen([str(c) for c in command_line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process, number):
    """Sends the signal; everything it still said."""
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def kill_at_line(command_line, count, number=signal.SIGKILL):
    """After `count` lines of progress."""
    process = start(command_line)
    seen = 0
    while seen < count:
        line = process.stderr.readline()
        assert line, f"it ended after {seen} lines of progress"
        seen += "step " in line and " loss " in line
    return end(process, number)


def kill_at_file(command_line, pattern, folder):
    """As soon as such a file is seen; a folder that is half written, maybe."""
    process = start(command_line + ["-q"])
    while process.poll() is None and not list(folder.glob(pattern)):
        pass
    assert process.poll() is None, f"it ended before {pattern}: {process.communicate()}"
    end(process, signal.SIGKILL)


def case_resume(work, images):
    for spec in ("dense", "adacomp", "lowrank:rank=2", "adapt:period=10/topk:density=0.05"):
        name = spec.split(":")[0]
        whole, broken = work / f"{name}-whole", work / f"{name}-broken"
        # a slow link leaves time to kill it, and no trace in the weights
        base = command(images, "-c", spec, "--steps", STEPS, "--checkpoint", 4)
        run(*base, "--out", whole, "-q")
        slow = ["--latency", "3ms"]
        kill_at_line(base + slow + ["--out", broken], 1)
        again = [GRADWIRE, "train", "--resume", broken]
        kill_at_file(again, "checkpoint-000004*", broken)
        kill_at_line(again, 4)
        kill_at_file(again, "checkpoint-00002*.new/*", broken)
        kill_at_file(again, "checkpoint-00003*", broken)
        state = run_oracle.check(broken)["state"]
        assert state == "running", state
        run(*again, "-q")
        assert_same_end(whole, broken)
        assert same_course(whole, broken), f"{spec}: the course of the run"
        assert "is finished" in run(*again).stderr
        wrong = run(*again, "-c", "natural:bits=8", status=1).stderr
        assert "spec is " in wrong and "not natural:bits=8" in wrong, wrong
    for option, value, words in (("--ranks", "4", "ranks is 2 there, not 4"), ("--model", "cnn", "model is mlp there, not cnn"),
                                 ("--seed", "6", "seed is 5 there, not 6"), ("--steps", "50", "steps is 40 there, not 50")):
        said = run(*again, option, value, status=1).stderr
        assert words in said, said
    damaged = work / "damaged"
    shutil.copytree(broken, damaged)
    (damaged / "run.json").write_text((damaged / "run.json").read_text().replace('"state":"finished"', '"state":"running"'))
    weights = damaged / f"checkpoint-{STEPS:06d}" / "weights.gw"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    said = run(GRADWIRE, "train", "--resume", damaged, status=1).stderr
    assert "weights.gw: segment" in said and "checksum does not match" in said, said


def case_interrupt(work, images):
    base = command(images, "-c", "adacomp", "--steps", STEPS, "--checkpoint", 0)
    run(*base, "--out", work / "whole", "-q")
    for number in (signal.SIGINT, signal.SIGTERM):
        folder = work / f"stopped-{number}"
        code, out, err = kill_at_line(base + ["--latency", "3ms", "--out", folder], 3, number)
        assert code == 130, f"exit {code}\n{err}"
        one = run_oracle.check(folder)
        done = len(one["steps"])
        assert one["state"] == "interrupted" and 6 <= done < STEPS, f"{one['state']} after {done}"
        assert run_oracle.checkpoints(folder) == [f"checkpoint-{done:06d}"]
        assert "adacomp" in out and f"{done} so far" in out and str(folder) in out, out
        run(GRADWIRE, "train", "--resume", folder, "-q")
        assert_same_end(work / "whole", folder)
        assert same_course(work / "whole", folder)
    # of several runs the first is there, the second partly, the third not
    folder = work / "several"
    several = command(images, "--steps", STEPS, "--compare", "dense,sign,adacomp", "--latency", "3ms")
    code, out, err = kill_at_line(several + ["--out", folder], 25, signal.SIGINT)
    assert code == 130 and "dense" in out and "sign" in out and "adacomp" not in out, out
    states = {p.name: run_oracle.check(p)["state"] for p in folder.iterdir()}
    assert states == {"dense-seed5": "finished", "sign-seed5": "interrupted"}, states
    out = run(*several, "--resume", folder).stdout
    assert "adacomp" in out and "so far" not in out, out
    assert all(run_oracle.check(p)["state"] == "finished" for p in folder.iterdir())


def case_disk(work, images):
    """Before the first step where it can be known, else at the checkpoint, and the last good one stays."""
    base = command(images, "--steps", STEPS, "--checkpoint", 4)
    file = work / "file"
    file.write_text("")
    said = run(*base, "--out", file / "run", status=1)
    assert "Not a directory" in said.stderr and "step " not in said.stderr and said.stdout == "", said.stderr
    said = run(*base, "--out", "/proc/gradwire", status=1)
    assert "cannot make this folder" in said.stderr and "step " not in said.stderr, said.stderr
    said = run(*base, "--out", work, status=1)
    assert "not empty" in said.stderr, said.stderr
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    said = run(*base, "--out", work / "small", status=1, preexec_fn=limit)
    assert "no room for checkpoints" in said.stderr and "File too large" in said.stderr and "step " not in said.stderr, said.stderr

    run(*base, "--out", work / "whole", "-q")
    folder = work / "full"
    process = start([str(c) for c in base] + ["--latency", "3ms", "--out", str(folder), "-q"])
    while process.poll() is None and not (folder / "checkpoint-000004").exists():
        pass
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # a disk that is full from now on
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1 and "weights.gw: cannot write: File too large" in err, f"{process.returncode}: {err}"
    one = run_oracle.check(folder)
    assert one["state"] == "failed" and "File too large" in one["error"], one["state"]
    names = run_oracle.checkpoints(folder)
    assert len(names) == 1 and not names[0].endswith(".new"), names
    run(GRADWIRE, "train", "--resume", folder, "-q")
    assert_same_end(work / "whole", folder)


def case_compare(work, images):
    specs = "dense,cast:to=bf16,topk:density=0.01,values=natural,adacomp"
    line = command(images, "--steps", STEPS, "--compare", specs, "--compare", "lowrank:rank=2", "--seeds", 2, "--target", "50%")
    said = run(*line, "--out", work / "all")
    rows = said.stdout.split("\n")
    assert [r.split("  ")[0].strip() for r in rows[1:6]] == ["dense", "cast:to=bf16", "topk:density=0.01,values=natural", "adacomp",
                                                             "lowrank:rank=2"], said.stdout
    assert all(title in rows[0] for title in ("right %", "s to 50 %", "ms a step", "waiting %", "MB sent", "fewer x", "linear"))
    assert len({len(r) for r in rows[:6]}) == 1 and len(rows[0]) <= 120, said.stdout
    folders = sorted(p.name for p in (work / "all").iterdir())
    assert len(folders) == 10 and "topk_density=0.01_values=natural-seed6" in folders, folders
    runs = {p.name: run_oracle.check(p) for p in (work / "all").iterdir()}
    for seed in (5, 6):  # the same start, and then not the same way
        first = {name: one["steps"][0]["loss"] for name, one in runs.items() if name.endswith(f"seed{seed}")}
        last = {name: one["steps"][-1]["loss"] for name, one in runs.items() if name.endswith(f"seed{seed}")}
        assert len(set(first.values())) == 1 and len(set(last.values())) == 5, f"{first}\n{last}"
    table = json.loads(run(*line, "--resume", work / "all", "--json", "-q").stdout)
    for row in table["rows"]:
        mine = [runs[pathlib.Path(f).name] for f in row["folders"]]
        accuracies = [one["tests"][-1]["accuracy"] for one in mine]
        assert abs(row["accuracy"]["mean"] - sum(accuracies) / 2) < 1e-12, row
        assert abs(row["accuracy"]["deviation"] - abs(accuracies[0] - accuracies[1]) / 2**0.5) < 1e-9, row
        sent = [sum(s["bytes_sent"] for s in one["steps"]) for one in mine]
        dense = [sum(s["dense_bytes"] for s in one["steps"]) for one in mine]
        assert abs(row["ratio"]["mean"] - sum(d / s for d, s in zip(dense, sent)) / 2) < 1e-9, row
        reached = [next((t["seconds"] for t in one["tests"] if t["accuracy"] >= 0.5), None) for one in mine]
        assert row["seconds_to_target"]["seeds"] == sum(r is not None for r in reached), (row, reached)
    ratios = {row["spec"]: row["ratio"]["mean"] for row in table["rows"]}
    assert ratios["dense"] == 1 and 1.8 < ratios["cast:to=bf16"] < 2 and ratios["topk:density=0.01,values=natural"] > 10, ratios
    text = small.text(work / "text")
    said = run(GRADWIRE, "train", "--model", "lstm", "--text", text, "--steps", 3, "--ranks", 2, "--batch", 4, "-c", "natural:bits=8",
               "--out", work / "lstm", "--json", "-q")
    assert json.loads(said.stdout) == run_oracle.check(work / "lstm")
    kinds = {layer["kind"] for layer in run_oracle.check(work / "lstm")["layers"]}
    assert kinds == {"loss", "bias", "linear", "lstm", "embedding"}, kinds


def launcher(program):
    """The command that starts ranks of the MPI it is linked with; None: not here."""
    mpich = "libmpich" in run("ldd", program).stdout
    found = next(filter(None, map(shutil.which, ("mpiexec.mpich", "mpiexec") if mpich else ("mpirun.openmpi", "mpirun"))), None)
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    return found and [found, *([] if mpich else ["--oversubscribe", *root])]


def case_mpi(work, images):
    """Two processes come to the very bytes that two threads come to, also after a stop."""
    mpi = MPI
    start_ranks = launcher(mpi)
    if not start_ranks:
        print("skip: no launcher for", mpi)
        sys.exit(77)
    environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")  # leaks are MPI's own
    for spec in ("adacomp", "lowrank:rank=2"):
        name = spec.split(":")[0]
        alone = command(images, "-c", spec, "--steps", STEPS)
        run(*alone, "--out", work / f"{name}-threads", "-q")
        line = [*start_ranks, "-n", "2", mpi, *alone[1:]]
        said = run(*line, "--out", work / f"{name}-mpi", "-q", env=environment)
        assert said.stdout.count("run folder") == 1, said.stdout
        assert_same_end(work / f"{name}-threads", work / f"{name}-mpi")
        assert run_oracle.check(work / f"{name}-mpi")["config"]["engine"] == "mpi"
    said = run(*line, "--out", images / "train-labels-idx1-ubyte.gz" / "run", "-q", status=1, env=environment)
    assert said.stderr.count("Not a directory") == 1, said.stderr


def case_control(work, images):
    """What a resume that lost something would look like is seen: residuals of another run, a step too many."""
    base = command(images, "-c", "adacomp", "--steps", STEPS, "--checkpoint", 0)
    run(*base, "--out", work / "whole", "-q")
    kill_at_line(base + ["--latency", "3ms", "--out", work / "other"], 3, signal.SIGINT)
    folder = work / "other" / run_oracle.checkpoints(work / "other")[0]
    run(*command(images, "-c", "adacomp", "--steps", 8, "--rate", "0.5", "--checkpoint", 0), "--out", work / "foreign", "-q")
    shutil.copy(work / "foreign" / "checkpoint-000008" / "rank-0.residuals", folder / "rank-0.residuals")
    run(GRADWIRE, "train", "--resume", work / "other", "-q")
    try:
        assert_same_end(work / "whole", work / "other")
    except AssertionError:
        return
    raise AssertionError("foreign residuals made no difference")


def main():
    case = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="gradwire-train-") as folder:
        work = pathlib.Path(folder)
        os.chdir(work)
        globals()[f"case_{case}"](work, small.images(work / "images"))
    print(f"{case}: fine")


if __name__ == "__main__":
    main()
