#!/usr/bin/env python3
"""`gradwire train` as its user has it: check_train.py CASE GRADWIRE [GRADWIRE_MPI [FLIP]]

Cases: resume, before, interrupt, disk, compare, plan, metrics, mpi, speaks, control. Runs are killed at lines they print and files they make, never by the clock.
"""

import glob
import json
import math
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile

import prometheus
import run_oracle
import small

STEPS = 40
GRADWIRE, MPI, FLIP = (pathlib.Path(p).resolve() for p in (*sys.argv[2:5], "none", "none")[:3])
# codec, from which rank to which, least bytes, and which of these messages: agreement before the run, groups, plans, gradients, the end
FLIPS = [("natural:bits=8", 0, 1, 1, 0), ("natural:bits=8", 1, 0, 1, 8), ("natural:bits=8", 2, 1, 1, 30), ("natural:bits=8", 1, 2, 5000, 5),
         ("natural:bits=8", 2, 0, 5000, 9), ("dense", 0, 2, 20000, 3), ("dense", 1, 0, 1, 70), ("lowrank:rank=2", 0, 1, 300, 7)]


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
    for spec in ("dense", "adacomp", "lowrank:rank=2", "adapt:period=10,metric=relative/topk:density=0.05"):
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
    said = run(*command(images, "-c", "adapt:metric=best/topk:density=0.05", "--steps", 1), status=2).stderr
    assert "metric=best" in said and "relative" in said, said
    damaged = work / "damaged"
    shutil.copytree(broken, damaged)
    (damaged / "run.json").write_text((damaged / "run.json").read_text().replace('"state":"finished"', '"state":"running"'))
    weights = damaged / f"checkpoint-{STEPS:06d}" / "weights.gw"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    said = run(GRADWIRE, "train", "--resume", damaged, status=1).stderr
    assert "weights.gw: segment" in said and "checksum does not match" in said, said


def case_before(work, images):
    one_before(work, images)
    two_before(work, images)


def two_before(work, images):
    """The same of a run of auto that was left as gradwire.run/2, killed after step 70, a checkpoint of step 66."""
    with tarfile.open(pathlib.Path(__file__).parent / "run-2.tar.xz") as old:
        old.extractall(work / "two")
    folder = work / "two" / "run"
    before = run_oracle.check(folder)
    assert before["format"] == "gradwire.run/2" and before["state"] == "running" and before["layers"][4]["spec"] == "dense"
    assert "1 run" in run(GRADWIRE, "report", folder, "-o", work / "two.html").stdout
    run(GRADWIRE, "train", "--resume", folder, "-q")
    after = run_oracle.check(folder)
    assert after["format"] == "gradwire.run/3" and after["state"] == "finished" and len(after["steps"]) == 90
    assert after["layers"][4]["spec"].startswith("dither:bits=4,"), after["layers"]  # as its first steps were sent
    seen = len(before["watch"])
    assert [w["measured_seconds"] for w in after["watch"][:seen]] == [w["measured_seconds"] for w in before["watch"]]
    made = before["auto"][0]["predicted_seconds"]
    assert [w["predicted_seconds"] for w in after["watch"][:seen]] == [None] + [made] * (seen - 1)
    assert [w["expected_seconds"] for w in after["watch"][:seen]] == [None, None] + [w["predicted_seconds"] for w in before["watch"][2:]]


def one_before(work, images):
    """A run that gradwire 0.1.0 left (gradwire.run/1, killed after step 22, a checkpoint of step 18) still reports, and goes on."""
    with tarfile.open(pathlib.Path(__file__).parent / "run-1.tar.xz") as old:
        old.extractall(work)
    folder = work / "run"
    text = (folder / "run.json").read_text()
    before = run_oracle.check(folder)
    assert '"format":"gradwire.run/1"' in text and before["state"] == "running" and len(before["steps"]) == 18
    assert "1 run" in run(GRADWIRE, "report", folder, "-o", work / "before.html").stdout
    assert (folder / "run.json").read_text() == text and not (folder / "history.jsonl").exists()
    run(GRADWIRE, "train", "--resume", folder, "-q")
    after = run_oracle.check(folder)
    assert after["state"] == "finished" and len(after["steps"]) == STEPS and '"gradwire.run/3"' in (folder / "run.json").read_text()
    for key in ("steps", "tests", "samples"):
        if key == "steps":  # which all went to other nodes
            before[key] = [dict(step, far_bytes_sent=step["bytes_sent"], far_dense_bytes=step["dense_bytes"]) for step in before[key]]
        assert before[key] and after[key][: len(before[key])] == before[key], f"{key} of before"
    assert [t["step"] for t in after["tests"]] == list(range(4, 41, 4)) and [s["step"] for s in after["samples"]] == list(range(5, 41, 5))
    assert "1 run" in run(GRADWIRE, "report", folder, "-o", work / "after.html").stdout


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
        assert "adacomp" in out and f"(stopped after {done})" in out and str(folder) in out, out
        said = run(GRADWIRE, "train", "--resume", folder, "-c", "sign", status=1).stderr
        assert "spec is adacomp there, not sign" in said, said
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
    assert "adacomp" in out and "stopped" not in out, out
    assert all(run_oracle.check(p)["state"] == "finished" for p in folder.iterdir())


def case_nodes(work, images):
    """Bytes to other nodes and inside the node are counted apart; the compression is of what DDP's ring sends between nodes."""
    for per_node, codec, least, most in ((2, "dense", 1.45, 1.51), (2, "natural:bits=8", 5.4, 6.1), (4, "natural:bits=8", 3.5, 4.05)):
        folder = work / f"{codec.split(':')[0]}-{per_node}"
        line = command(images, "-c", codec, "--steps", 2, "--ranks-per-node", per_node, "--out", folder, "--json", "-q")
        line[line.index("--ranks") + 1] = 4
        said = run(*line)
        one, table = run_oracle.check(folder), json.loads(run(GRADWIRE, "report", folder, "-o", work / "r.html", "--json").stdout)
        ring = 2 * 3 / 4 * 4 * sum(layer["elements"] for layer in one["layers"])
        for step in one["steps"]:
            far, far_ring = (step[key] for key in ("far_bytes_sent", "far_dense_bytes"))
            if per_node == 4:
                assert far == far_ring == 0 and abs(step["dense_bytes"] - ring) <= 1e-3 * ring, step
            else:  # the two ranks of a node share its card
                assert abs(far_ring - ring / 2) <= 0.02 * ring and abs(step["dense_bytes"] - ring) <= 0.02 * ring, (ring, step)
                assert 0 < far < step["bytes_sent"], step
        sent, dense = (sum(step[key] for step in one["steps"]) for key in
                       (("bytes_sent", "dense_bytes") if per_node == 4 else ("far_bytes_sent", "far_dense_bytes")))
        assert abs(table["ways"][0]["ratio"] - dense / sent) < 1e-9 and least < dense / sent < most, (dense / sent, table["ways"])
        assert json.loads(said.stdout)["steps"] == one["steps"]


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
    assert all(title in rows[0] for title in ("accuracy (%)", "s to 50 %", "ms/step", "waiting (%)", "MB sent", "compression", "linear"))
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
    assert 0.999 < ratios["dense"] <= 1 and 1.8 < ratios["cast:to=bf16"] < 2 and ratios["topk:density=0.01,values=natural"] > 10, ratios
    text = small.text(work / "text")
    said = run(GRADWIRE, "train", "--model", "lstm", "--text", text, "--steps", 3, "--ranks", 2, "--batch", 4, "-c", "natural:bits=8",
               "--out", work / "lstm", "--json", "-q")
    assert json.loads(said.stdout) == run_oracle.check(work / "lstm")
    kinds = {layer["kind"] for layer in run_oracle.check(work / "lstm")["layers"]}
    assert kinds == {"loss", "bias", "linear", "lstm", "embedding"}, kinds


MLP = [("fc3.bias", 10), ("fc3.weight", 1280), ("fc2.bias", 128), ("fc2.weight", 32768), ("fc1.bias", 256), ("fc1.weight", 200704)]
PREDICTED = ("step_ms", "dense_ms", "bf16_ms", "all_compressed_ms", "zero_cost_ms", "lower_bound_ms", "step_high_ms", "dense_high_ms", "gap")


def plan_file(path, ways, buckets=None, names=MLP, rest="dense"):
    """ways: (spec, route) of some tensors; the rest is uncompressed, along the route `rest`. buckets: of each tensor."""
    tensors = []
    for i, (name, elements) in enumerate(names):
        spec, route = ways.get(name, ("dense", rest))
        tensors.append(dict(name=name, elements=elements, spec=spec, route=route, bucket=buckets[i] if buckets else i))
    plan = dict(format="gradwire.plan/1", job=dict(name="mlp", checksum="x"), cluster=dict(name="c", checksum="x", nodes=2, ranks_per_node=1),
                predicted={key: 1 for key in PREDICTED}, tensors=tensors)
    path.write_text(json.dumps(plan))
    return path


def check_trace(events, plan):
    """The last 20 steps: rows are named, computing is whole, and each bucket's exchange has its route's steps, in order."""
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    assert rows[0] == "compute" and rows[1] == "code" and {e["tid"] for e in spans} == set(rows), rows
    computing = [e for e in spans if e["tid"] == 0]
    assert [e["name"] for e in computing] == ["forward", "backward", "wait", "update"] * 20, computing[:5]
    assert [e["args"]["step"] for e in computing[::4]] == list(range(STEPS - 19, STEPS + 1))
    assert all(b["ts"] >= a["ts"] + a["dur"] - 1 for a, b in zip(computing, computing[1:])), "computing in turn"
    names = {}
    for tensor in plan["tensors"]:
        names.setdefault(tensor["bucket"], []).append(tensor)
    for bucket in names.values():
        name = ("+" if len(bucket) < 3 else "+...+").join(dict.fromkeys([bucket[0]["name"], bucket[-1]["name"]]))
        mine = [e for e in spans if e["args"].get("tensor") == name]
        steps = [e["name"].split()[-1] for e in mine]
        assert steps == bucket[0]["route"].split(" · ") * 20, (bucket[0], steps[:12])
        assert all(b["ts"] >= a["ts"] + a["dur"] - 1 for a, b in zip(mine, mine[1:])), "steps of a route in turn"


def case_plan(work, images):
    """From a run to a job to a plan to a run; a plan's run is that of the same specs and routes; what does not fit is told."""
    # a run's job is a job, whose plan runs
    run(*command(images, "--steps", 6), "--profile", work / "job.json", "--out", work / "profiled", "-q")
    job = json.loads((work / "job.json").read_text())
    assert [(t["name"], t["shape"]) for t in job["tensors"]][:2] == [("fc3.bias", [10]), ("fc3.weight", [10, 128])], job["tensors"][:2]
    ready = [t["ready_ms"] for t in job["tensors"]]
    assert ready == sorted(ready) and 0 < ready[-1] <= job["backward_ms"] and job["forward_ms"] > 0 and job["batch_per_rank"] == 16, job
    assert job["beside_ms"] > 0, job
    run(GRADWIRE, "plan", work / "job.json", "--nodes", 2, "--link", "100mbit", "-c", "natural:bits=8", "-o", work / "made.json", "-q")
    said = run(*command(images, "--steps", STEPS), "--plan", work / "made.json", "--trace", work / "trace.json", "--out", work / "made")
    check_trace(json.loads((work / "trace.json").read_text())["traceEvents"], json.loads((work / "made.json").read_text()))
    told = run(*command(images, "--steps", STEPS), "--trace", work / "x.json", "--compare", "dense,sign", "--out", work / "y", status=2).stderr
    assert "--trace is of one run" in told, told
    made = run_oracle.check(work / "made")
    assert made["config"]["plan"] == str(work / "made.json") and made["config"]["plan_checksum"].startswith("fnv1a64:"), made["config"]
    assert "plan:made" in said.stdout and any(layer["spec"] != "dense" for layer in made["layers"]), said.stdout
    run(GRADWIRE, "report", work / "made", "-o", work / "page.html", "-q")  # another reader, as strict

    # and so does its plan within an error budget, measured on numbers of the same names
    numbers, header, data = random.Random(3), {}, b""
    for t in job["tensors"]:
        n = math.prod(t["shape"])
        header[t["name"]] = dict(dtype="F32", shape=t["shape"], data_offsets=[len(data), len(data) + 4 * n])
        data += struct.pack(f"<{n}f", *(numbers.gauss(0, 1) for _ in range(n)))
    text = json.dumps(header).encode()
    (work / "grads.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    run(GRADWIRE, "plan", work / "job.json", "--nodes", 2, "--link", "100mbit", "--budget", 1, "--grads", work / "grads.safetensors",
        "--family", "dither", "--default", "dither:bits=4", "--no-fusion", "-o", work / "within.json", "-q")  # tensors keep their names
    run(*command(images, "--steps", STEPS), "--plan", work / "within.json", "--out", work / "within", "-q")
    planned = {t["name"]: t["spec"].split(":")[0] for t in json.loads((work / "within.json").read_text())["tensors"]}
    ran = {layer["name"]: layer["spec"].split(":")[0] for layer in run_oracle.check(work / "within")["layers"] if layer["name"] in planned}
    assert ran == planned and "dither" in planned.values(), (ran, planned)

    # the same bytes as without a plan, along flat and hierarchical routes, and with small tensors together
    for spec, route, ranks in (("natural:bits=8", "sra", 2), ("topk:density=0.05", "gather", 2), ("dither:bits=4", "hier2-sra", 4)):
        more = ["--ranks", ranks, "--ranks-per-node", ranks // 2] if ranks == 4 else []
        name = spec.split(":")[0]
        base = [c for c in command(images, "--steps", STEPS) if c not in ("--ranks", "2")] + (more or ["--ranks", 2])
        run(*base, "-c", spec, "--route", route, "--out", work / f"{name}-spec", "-q")
        for kind, buckets in (("alone", None), ("together", [0, 0, 1, 2, 3, 4])):
            way = {tensor: (spec, route) for tensor in ("fc2.weight", "fc1.weight")}
            rest = "hier-dense" if more else "dense"  # the usual route of these nodes
            plan = plan_file(work / f"{name}-{kind}.json", way, buckets, rest=rest)
            run(*base, "--plan", plan, "--out", work / f"{name}-{kind}", "-q")
            assert_same_end(work / f"{name}-spec", work / f"{name}-{kind}")  # sums of what goes together are those of each alone
        layers = run_oracle.check(work / f"{name}-together")["layers"]
        assert [layer["name"] for layer in layers][:4] == ["loss", "fc3.bias", "fc3.weight", "fc2.bias"], layers
        assert [layer["fused"] for layer in layers][:4] == [False, True, True, False], layers
        assert layers[1]["bytes_sent"] > 0 and layers[2]["bytes_sent"] == 0, "bytes of a bucket stand at its first"

    # coded together, in another order than backward's, stopped and resumed
    order = [MLP[i] for i in (5, 4, 1, 3, 0, 2)]
    plan = plan_file(work / "mixed.json", {name: ("topk:density=0.05", "gather") for name, _ in order[:4]}, [0, 1, 2, 2, 3, 3], order)
    text = plan.read_text().replace('"fc1.bias", "elements": 256, "spec": "topk:density=0.05", "route": "gather"',
                                    '"fc1.bias", "elements": 256, "spec": "sign", "route": "gather"')
    plan.write_text(text)
    base = command(images, "--steps", STEPS, "--plan", plan, "--checkpoint", 4)
    run(*base, "--out", work / "mixed", "-q")
    names = {layer["name"]: (layer["spec"].split(":")[0], layer["fused"]) for layer in run_oracle.check(work / "mixed")["layers"]}
    assert names["fc3.weight"] == names["fc2.weight"] == ("topk", True) and names["fc3.bias"] == names["fc2.bias"] == ("dense", True), names
    assert names["fc1.bias"] == ("sign", False), names
    kill_at_line(base + ["--latency", "3ms", "--out", work / "mixed-broken"], 6)
    run(GRADWIRE, "train", "--resume", work / "mixed-broken", "-q")
    assert_same_end(work / "mixed", work / "mixed-broken")
    plan.write_text(plan.read_text() + " ")
    said = run(GRADWIRE, "train", "--resume", work / "mixed-broken", status=1).stderr
    assert "not the plan it began with" in said, said

    # what does not fit
    fit = json.loads(plan_file(work / "fit.json", {}).read_text())
    def refused(change, words):
        wrong = json.loads(json.dumps(fit))
        change(wrong)
        (work / "wrong.json").write_text(json.dumps(wrong))
        said = run(*command(images, "--steps", 2), "--plan", work / "wrong.json", "--out", work / "wrong", "-q", status=1).stderr
        assert words in said and said.count("\n") == 1, said
        shutil.rmtree(work / "wrong", ignore_errors=True)
    tensor = lambda i, **of: (lambda plan: plan["tensors"][i].update(of))
    refused(tensor(0, name="conv1.weight"), "the plan has a tensor 'conv1.weight', and this model has not: a plan for another model?")
    refused(tensor(0, elements=1281), "'fc3.bias' has 1281 elements in the plan, and 10 in this model: a plan for another model?")
    refused(lambda plan: plan["tensors"].pop(), "the plan says nothing of 'fc1.weight', which this model has")
    refused(tensor(1, name="fc3.bias"), "tensors: two tensors are named 'fc3.bias'")
    refused(tensor(2, spec="natural:bits=8", route="encode@gpu . flat:allgather . decode@gpu"), "is coded on a GPU")
    refused(tensor(2, spec="natural:bits=8"), "tensors[2]: 'fc2.bias': the route encodes nothing, and the spec is natural:bits=8")
    refused(tensor(2, route="sra"), "the route encodes something, and the spec is dense")
    refused(tensor(2, spec="zip"), "no codec named 'zip'")
    refused(tensor(2, bucket=1, spec="natural:bits=8", route="sra"), "tensors[2]: bucket 1 goes two ways")
    refused(tensor(2, bucket=0), "bucket 0 comes after bucket 1")
    refused(tensor(2, elements=-1), "tensors[2].elements")
    refused(lambda plan: plan.update(more=1), "unknown key 'more'")
    refused(lambda plan: plan["predicted"].pop("gap"), "predicted: key 'gap' is missing")
    refused(lambda plan: plan["cluster"].update(nodes=0), "cluster.nodes")
    hierarchical = plan_file(work / "hierarchical.json", {"fc1.weight": ("natural:bits=8", "hier2-sra")})
    said = run(*command(images, "--steps", 2, "--ranks-per-node", 3), "--plan", hierarchical, "--out", work / "wrong", status=1).stderr
    assert "route of 'fc1.weight' needs nodes with equally many ranks" in said, said
    for more in (["-c", "sign"], ["--compare", "sign"], ["--route", "sra"]):
        assert "--plan says" in run(*command(images, "--plan", work / "fit.json", *more), status=2).stderr


def case_profile(work, images):
    """What is measured is a cluster file that plans can be made with. Noise is let pass here: see tests/cli/test_measure.c."""
    del images
    said = run(GRADWIRE, "profile", "-o", work / "one.json", "-c", "natural:bits=8", "--force", "--json")
    one = json.loads((work / "one.json").read_text())
    assert json.loads(said.stdout)["codecs"][0]["points"][0]["bytes"] == one["codecs"][0]["points"][0]["bytes"]
    assert one["nodes"] == one["ranks_per_node"] == 1 and one["collectives"] == [] and "inter" not in one, one
    run(GRADWIRE, "profile", "-o", work / "four.json", "--ranks", 4, "--ranks-per-node", 2, "--link", "1gbit", "-c", "sign", "--force")
    four = json.loads((work / "four.json").read_text())
    assert (four["nodes"], four["ranks_per_node"]) == (2, 2) and four["intra"]["gbit_per_s"] > four["inter"]["gbit_per_s"], four["inter"]
    assert {(c["op"], c["level"]) for c in four["collectives"]} == {
        (op, level) for level in ("flat", "intra")
        for op in ("alltoall", "allgather", "reduce_scatter", "allreduce", "reduce", "gather", "broadcast")}
    for curve in four["collectives"]:
        times = [p["us"] for p in curve["points"]]
        assert times == sorted(times) and all(p["samples"] >= 5 for p in curve["points"]), curve
    job = dict(format="gradwire.job/1", name="j", tensors=[dict(name="a", shape=[1000000], ready_ms=5)])
    (work / "job.json").write_text(json.dumps(job))
    for more in (["--cluster", work / "four.json"], ["--cluster", work / "one.json", "--nodes", 4, "--link", "1gbit"]):
        run(GRADWIRE, "plan", work / "job.json", *more, "-c", "sign", "-o", work / "plan.json", "-q")
    for link in (four["intra"], four["inter"]):
        assert 0 <= link["cpu_share"] <= 1 and link["busy_us"] >= 0, link
    # links that need the cores that compute make a step longer; what is no share is refused
    job["tensors"].append(dict(name="b", shape=[10], ready_ms=15))
    (work / "job.json").write_text(json.dumps(job))
    steps = []
    for more in (dict(cpu_share=0, busy_us=0), dict(cpu_share=1, busy_us=0), dict(cpu_share=0, busy_us=3000)):
        # rates that are said, not measured: the same on every machine
        links = dict(intra=dict(latency_us=10, gbit_per_s=100), inter=dict(latency_us=100, gbit_per_s=1, **more), collectives=[])
        (work / "busy.json").write_text(json.dumps(dict(four, **links)))
        said = run(GRADWIRE, "plan", work / "job.json", "--cluster", work / "busy.json", "-c", "sign", "--no-fusion", "--json")
        steps.append(json.loads(said.stdout)["dense_ms"])
    assert steps[1] > steps[0] + 1 and steps[2] > steps[0] + 1, steps
    (work / "busy.json").write_text(json.dumps(dict(four, inter=dict(four["inter"], cpu_share=2))))
    said = run(GRADWIRE, "plan", work / "job.json", "--cluster", work / "busy.json", "-c", "sign", status=1).stderr
    assert "inter" in said and "cpu_share" in said, said
    for wrong, words in ((["-c", "zip"], "no codec named"), (["-c", "lowrank"], "in rounds"), (["--link", "1gbit"], "--ranks"), (["x"], "'x'"),
                         (["--ranks", 4, "--ranks-per-node", 3], "equally many")):
        assert words in run(GRADWIRE, "profile", "-o", work / "x.json", *wrong, status=2).stderr, wrong
    assert "-o FILE" in run(GRADWIRE, "profile", status=2).stderr and not (work / "x.json").exists()


def assert_figures(path, folder):
    """What the file says is what run.json says of the run in `folder`, whose name is its label."""
    one, found = run_oracle.check(folder), prometheus.read(path.read_text())
    last, sums = one["steps"][-1], {key: sum(step[key] for step in one["steps"]) for key in
                                   ("bytes_sent", "dense_bytes", "far_bytes_sent", "far_dense_bytes", "non_finite")}
    expected = dict(step=last["step"], loss=last["loss"], step_seconds=last["seconds"], wait_seconds=last["wait_seconds"], bytes_sent_total=sums["bytes_sent"],
                    dense_bytes_total=sums["dense_bytes"], far_bytes_sent_total=sums["far_bytes_sent"], far_dense_bytes_total=sums["far_dense_bytes"],
                    non_finite_total=sums["non_finite"])
    if one["tests"]:
        expected["test_accuracy"] = one["tests"][-1]["accuracy"]
    assert found == {(f"gradwire_{name}", (("run", folder.name),)): value for name, value in expected.items()}, (found, expected)
    assert not list(path.parent.glob(f"{glob.escape(path.name)}.*.tmp"))


def case_metrics(work, images):
    folder = work / 'a "b" \\ c\nd'
    base = command(images, "-c", "adacomp", "--steps", STEPS, "--checkpoint", 4)
    run(*base, "--out", folder, "--metrics", work / "m.prom", "-q")
    assert_figures(work / "m.prom", folder)
    # stopped on the way; another file for the rest
    stopped = work / "stopped"
    kill_at_line(base + ["--latency", "10ms", "--out", stopped, "--metrics", work / "early.prom"], 3, signal.SIGINT)
    assert_figures(work / "early.prom", stopped)
    early = (work / "early.prom").read_bytes()
    run(GRADWIRE, "train", "--resume", stopped, "--metrics", work / "late.prom", "-q")
    assert_figures(work / "late.prom", stopped)
    assert (work / "early.prom").read_bytes() == early
    assert_same_end(folder, stopped)
    assert "metrics" not in (stopped / "run.json").read_text()
    # of several runs it is about the one under way; what cannot be written is said before the first step
    run(*command(images, "--steps", 3, "--compare", "dense,sign", "--out", work / "two", "--metrics", work / "two.prom", "-q"))
    assert_figures(work / "two.prom", work / "two" / "sign-seed5")
    for wrong, words in ((work / "nowhere" / "m.prom", "cannot write"), (work, "is there and is not a regular file")):
        said = run(*command(images, "--steps", 3, "--out", work / "wrong", "--metrics", wrong), status=1)
        assert f"{wrong}: {words}" in said.stderr and "step " not in said.stderr, said.stderr
        shutil.rmtree(work / "wrong")
        assert not list(wrong.parent.glob(f"{wrong.name}.*.tmp"))
    # the reader of this test is no yes-man
    good = (work / "two.prom").read_text()
    for wrong in (good[:-1], good + "x 1\n", good.replace("# TYPE gradwire_loss gauge\n", ""), good + good, good.replace('"} ', '",} ', 1),
                  good.replace("sign", 'si"gn'), good.replace("sign", "si\\gn"), good.replace("} ", "} x", 1), good.replace("counter", "gauge", 1)):
        try:
            prometheus.read(wrong)
        except AssertionError:
            continue
        raise AssertionError(f"this was taken: {wrong}")


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
    plan = plan_file(work / "plan.json", {"fc1.weight": ("adacomp:bin=500", "gather")}, [0, 0, 1, 1, 2, 3])
    for kind, begin in (("threads", []), ("mpi", [*start_ranks, "-n", "2"])):
        program = command(images, "--plan", plan, "--steps", STEPS, "--profile", work / f"{kind}.json", "--out", work / f"plan-{kind}", "-q")
        run(*begin, *([mpi, *program[1:]] if begin else program), env=environment)
    assert_same_end(work / "plan-threads", work / "plan-mpi")
    assert json.loads((work / "mpi.json").read_text())["format"] == "gradwire.job/1"
    measured = [*start_ranks, "-n", "2", mpi, "profile", "-o", work / "cluster.json", "-c", "sign", "--force"]
    run(*measured, env=environment)
    cluster = json.loads((work / "cluster.json").read_text())
    assert cluster["nodes"] * cluster["ranks_per_node"] == 2 and "mpi, 2 ranks" in cluster["measured_by"], cluster["measured_by"]
    said = run(*line, "--out", images / "train-labels-idx1-ubyte.gz" / "run", "-q", status=1, env=environment)
    assert said.stderr.count("Not a directory") == 1, said.stderr


def case_speaks(work, images):
    """One bit of one message changes: the rank that sees it says so, and rank 0, before the job ends."""
    start_ranks = launcher(MPI)
    if not start_ranks:
        print("skip: no launcher for", MPI)
        sys.exit(77)
    for i, (spec, sender, found, least, at) in enumerate(FLIPS):
        line = [*start_ranks, "-n", "3", "env", f"LD_PRELOAD={FLIP}", f"FLIP_FROM={sender}", f"FLIP_TO={found}", f"FLIP_LEAST={least}",
                f"FLIP_AT={at}", MPI, *command(images)[1:], "-c", spec, "--steps", 6, "--checkpoint", 3, "--out", work / f"speaks-{i}", "-q"]
        line[line.index("--ranks"):line.index("--ranks") + 2] = []
        done = subprocess.run([str(c) for c in line], capture_output=True, text=True, timeout=60)
        case = f"{FLIPS[i]}: exit {done.returncode}\n{done.stderr}"
        assert "flip: " in done.stderr, f"nothing was flipped: {case}"
        assert done.returncode not in (0, 124), case
        lines = re.findall(r"^gradwire: (?:train: )?(?:rank (\d+): )?(.*)$", done.stderr, re.M)
        said = {int(rank or 0): words for rank, words in lines}
        assert "changed" in said.get(found, ""), f"rank {found} did not say what it saw: {case}"
        assert "changed" in said.get(0, ""), f"rank 0 did not say why: {case}"
        assert len(lines) == len(said), f"said twice: {case}"


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


def main(cases):
    case = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="gradwire-train-") as folder:
        work = pathlib.Path(folder)
        os.chdir(work)
        cases[f"case_{case}"](work, small.images(work / "images"))
    print(f"{case}: fine")


if __name__ == "__main__":
    main(globals())
