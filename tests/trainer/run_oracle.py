#!/usr/bin/env python3
"""A second reader of run folders, written from docs/run-format.md alone: run_oracle.py RUN...

check(folder) raises AssertionError with the place and the reason, or returns run.json with the arrays of history.jsonl in it.
"""

import json
import math
import pathlib
import re
import sys

COUNT, NUMBER, MAYBE, TEXT, FLAG = "count", "number", "number or null", "text", "flag"
CONFIG = dict(model=TEXT, engine=TEXT, ranks=COUNT, ranks_per_node=COUNT, batch=COUNT, steps=COUNT, seed=COUNT, spec=TEXT, route=TEXT,
              fuse_below=COUNT, link_bytes_per_second=NUMBER, latency_seconds=NUMBER, optimiser=TEXT, rate=NUMBER, warmup=COUNT,
              momentum=NUMBER, decay=NUMBER, schedule=TEXT, data=TEXT, plan=TEXT, plan_checksum=TEXT)
OPTIONAL = {"plan", "plan_checksum", "far_bytes_sent", "far_dense_bytes"}  # the last two: files of before lack them
LAYER = dict(name=TEXT, kind=TEXT, elements=COUNT, spec=TEXT, route=TEXT, fused=FLAG, bytes_sent=COUNT, dense_bytes=COUNT,
             far_bytes_sent=COUNT, far_dense_bytes=COUNT)
STEP = dict(step=COUNT, loss=MAYBE, seconds=NUMBER, wait_seconds=NUMBER, bytes_sent=COUNT, dense_bytes=COUNT, far_bytes_sent=COUNT,
            far_dense_bytes=COUNT, non_finite=COUNT)
TEST = dict(step=COUNT, seconds=NUMBER, accuracy=NUMBER, loss=MAYBE, bits=MAYBE)
SAMPLE = dict(step=COUNT, backward_seconds=NUMBER, forward_seconds=NUMBER, update_seconds=NUMBER, layers=list)
SAMPLE_LAYER = dict(posted=NUMBER, begun=NUMBER, arrived=NUMBER, encode_seconds=NUMBER, decode_seconds=NUMBER, bytes_sent=COUNT,
                    dense_bytes=COUNT, rel_error=MAYBE)
ADAPT = dict(step=COUNT, bound_at=COUNT, alpha=MAYBE, budget=MAYBE, error=MAYBE, bytes=COUNT, uniform_bytes=COUNT, lower_bound_bytes=COUNT,
             waited=COUNT, measure_seconds=NUMBER, solve_seconds=NUMBER, outcome=TEXT, words=TEXT, layers=list)
AUTO = dict(step=COUNT, bound_at=COUNT, reason=TEXT, outcome=TEXT, words=TEXT, predicted_seconds=MAYBE, dense_seconds=MAYBE, bound_seconds=MAYBE,
            half_seconds=MAYBE, double_seconds=MAYBE, alpha=MAYBE, budget=MAYBE, error=MAYBE, noise_ratio=MAYBE, link_bytes_per_second=MAYBE,
            latency_seconds=MAYBE, bytes=COUNT, dense_bytes=MAYBE, measure_seconds=MAYBE, solve_seconds=MAYBE, waited=MAYBE, layers=list)
TRAVEL = dict(spec=TEXT, route=TEXT)
WATCH = dict(step=COUNT, measured_seconds=MAYBE, predicted_seconds=MAYBE, expected_seconds=MAYBE, error=MAYBE, budget=MAYBE, noise_ratio=MAYBE, loss=MAYBE)
REASONS = ("start", "periodic", "slower", "faster", "error", "quiet", "diverging", "non_finite", "recovered")
SUMMARY = dict(steps=COUNT, seconds=NUMBER, wait_seconds=NUMBER, bytes_sent=COUNT, dense_bytes=COUNT, far_bytes_sent=COUNT,
            far_dense_bytes=COUNT, non_finite=COUNT)
ROOT = dict(format=TEXT, gradwire=TEXT, started=TEXT, state=TEXT, config=dict, weights=COUNT, layers=list, steps=list, tests=list,
            samples=list)


def no_constant(word):
    raise AssertionError(f"{word} is not JSON")


def no_duplicates(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key twice among {keys}"
    return dict(pairs)


def fits(value, kind):
    if kind in (list, dict):
        return isinstance(value, kind)
    if kind == TEXT:
        return isinstance(value, str) and value != ""
    if kind == FLAG:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == COUNT:
        return isinstance(value, int) and value >= 0
    return (value is None and kind == MAYBE) or (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0)


def check_object(value, kinds, where):
    assert isinstance(value, dict), f"{where}: not an object"
    assert set(value) - OPTIONAL == set(kinds) - OPTIONAL, f"{where}: keys {sorted(set(value) ^ set(kinds))}"
    for key, kind in kinds.items():
        assert key in OPTIONAL and key not in value or fits(value[key], kind), f"{where}.{key}: {value[key]!r} is not a {kind}"


def check_order(run):
    done = len(run["steps"])
    assert [s["step"] for s in run["steps"]] == list(range(1, done + 1)), "steps are not 1, 2, 3, ..."
    assert done <= run["config"]["steps"] and (run["state"] != "finished" or done == run["config"]["steps"]), "steps and state"
    for name in ("tests", "samples"):
        at = [one["step"] for one in run[name]]
        assert at == sorted(set(at)) and all(1 <= step <= done for step in at), f"{name} at steps {at}"
    if run["state"] == "finished":
        assert run["tests"] and run["tests"][-1]["step"] == done, "the last step was not tested"
    for one in run["tests"]:
        trained = sum(s["seconds"] for s in run["steps"][: one["step"]])
        assert math.isclose(one["seconds"], trained, rel_tol=1e-9), f"test at {one['step']}: {one['seconds']} s, steps took {trained}"
        assert one["accuracy"] <= 1 and math.isclose(one["bits"], one["loss"] / math.log(2), rel_tol=1e-9), f"test at {one['step']}"


def check_bytes(run):
    """What layers sent is what steps sent."""
    if run["state"] == "finished":
        for key in ("bytes_sent", "dense_bytes", "far_bytes_sent", "far_dense_bytes"):
            layers, steps = (sum(one.get(key, one[key.removeprefix("far_")]) for one in run[part]) for part in ("layers", "steps"))
            assert layers == steps, f"{key} of layers {layers}, of steps {steps}"
    for step in run["steps"]:
        assert step["wait_seconds"] <= step["seconds"], f"step {step['step']} waited longer than it took"


def check_adapt(run):
    """Choices come in order, within their budget and never with more bytes than the default."""
    last = 0
    for i, one in enumerate(run.get("adapt", [])):
        check_object(one, ADAPT, f"adapt[{i}]")
        assert last < one["step"] < one["bound_at"] <= len(run["steps"]) + 1, f"adapt[{i}] at {one['step']}, {one['bound_at']}"
        last = one["bound_at"] - 1
        assert len(one["layers"]) == len(run["layers"]) and all(isinstance(spec, str) for spec in one["layers"]), f"adapt[{i}].layers"
        assert one["outcome"] in ("switched", "same", "small_gain", "default", "nothing", "failed"), one["outcome"]
        if one["outcome"] in ("switched", "same"):
            assert one["error"] <= one["budget"] and one["lower_bound_bytes"] <= one["bytes"], f"adapt[{i}]: {one}"
            assert one["alpha"] < 1 or one["bytes"] <= one["uniform_bytes"], f"adapt[{i}]: more bytes than the default"


def changes(run):
    """The decisions by which some layer has another codec or another route."""
    ways = [run["layers"], *(one["layers"] for one in run["auto"])]
    ways = [[(layer["spec"], layer["route"]) for layer in layers] for layers in ways]
    return [after != before for before, after in zip(ways, ways[1:])]


def check_auto(run):
    """Decisions and windows come in order; what changed goes by a later step."""
    step, bound_at, done = 0, 1, len(run["steps"])
    for i, one in enumerate(run.get("auto", [])):
        check_object(one, AUTO, f"auto[{i}]")
        assert max(step, 1) <= one["step"] <= done and bound_at <= one["bound_at"] <= done + 1, f"auto[{i}] at {one['step']}, {one['bound_at']}"
        step, bound_at = one["step"], one["bound_at"]
        assert one["reason"] in REASONS and one["outcome"] in ("switched", "same", "small_gain", "dense", "failed"), f"auto[{i}]: {one['reason']}, {one['outcome']}"
        assert one["outcome"] != "switched" or one["bound_at"] > one["step"], f"auto[{i}] goes by a step that was done"
        assert len(one["layers"]) == len(run["layers"]), f"auto[{i}].layers"
        for l, layer in enumerate(one["layers"]):
            check_object(layer, TRAVEL, f"auto[{i}].layers[{l}]")
        if one["bound_seconds"] is not None and one["predicted_seconds"] is not None and (run["format"] == "gradwire.run/3" or one["outcome"] == "switched"):
            assert one["bound_seconds"] <= one["predicted_seconds"] * (1 + 1e-9), f"auto[{i}]: faster than the bound"
    last = 0
    for i, one in enumerate(run.get("watch", [])):
        check_object(one, {key: kind for key, kind in WATCH.items() if key != "expected_seconds" or run["format"] == "gradwire.run/3"}, f"watch[{i}]")
        assert last < one["step"] <= done, f"watch[{i}] at {one['step']} after {last}"
        last = one["step"]
        if run["format"] == "gradwire.run/3":
            check_window(run, i)


def check_window(run, i):
    """Predicted: by the planner, before the window. Expected: by a window that was measured."""
    one, before = run["watch"][i], [w["measured_seconds"] for w in run["watch"][:i]]
    known = [d["predicted_seconds"] for d in run["auto"] if d["bound_at"] <= one["step"]]
    assert one["predicted_seconds"] in (known or [None]), f"watch[{i}]: {one['predicted_seconds']} is none of the planner's {known}"
    assert one["expected_seconds"] is None or any(math.isclose(one["expected_seconds"], m, rel_tol=1e-9) for m in before), f"watch[{i}]: {one['expected_seconds']} was not measured"


def strictly(text):
    return json.loads(text, parse_constant=no_constant, object_pairs_hook=no_duplicates)


def join_history(folder, run):
    """run.json with the arrays in it, and a summary that is theirs."""
    summary, done = run.pop("summary"), run["state"] == "finished"
    check_object(summary, SUMMARY, "summary")
    choices = ["adapt"] if run["config"]["spec"].startswith(("adapt/", "adapt:")) else ["auto", "watch"] if is_auto(run) else []
    arrays = {kind: [] for kind in ("steps", "tests", "samples", *choices)}
    assert not set(arrays) & set(run), "an array in run.json"
    text = (pathlib.Path(folder) / "history.jsonl").read_bytes().decode()
    assert not done or text.endswith("\n"), "the last line is torn"
    for number, line in enumerate(text.split("\n")[:-1], 1):
        record = strictly(line)
        assert isinstance(record, dict) and len(record) == 1 and set(record) <= set(arrays), f"history.jsonl, line {number}: {line}"
        [(kind, value)] = record.items()
        arrays[kind].append(value)
    run.update(arrays)
    known = arrays["steps"][: summary["steps"]]
    assert len(known) == summary["steps"] and (not done or len(arrays["steps"]) == len(known)), f"{len(arrays['steps'])} steps, summary {summary}"
    for key in (key for key in summary if "bytes" in key or key == "non_finite"):
        assert summary[key] == sum(step[key] for step in known), f"summary.{key}"
    for key in ("seconds", "wait_seconds"):
        assert math.isclose(summary[key], sum(step[key] for step in known), rel_tol=1e-9), f"summary.{key}"


def is_auto(run):
    return re.match(r"auto($|[:/])", run["config"]["spec"])


def check(folder):
    run = strictly((pathlib.Path(folder) / "run.json").read_text())
    if run["format"] != "gradwire.run/1":
        join_history(folder, run)
    check_object(run, dict(ROOT, **({"error": TEXT} if run.get("state") == "failed" else {}),
                           **({"adapt": list} if run["config"]["spec"].startswith(("adapt/", "adapt:")) else {}),
                           **({"auto": list, "watch": list} if is_auto(run) else {})), "run.json")
    assert run["format"] in ("gradwire.run/1", "gradwire.run/2", "gradwire.run/3") and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", run["started"])
    assert run["state"] in ("running", "finished", "interrupted", "failed"), run["state"]
    check_object(run["config"], CONFIG, "config")
    for key, kinds in (("layers", LAYER), ("steps", STEP), ("tests", TEST), ("samples", SAMPLE)):
        for i, one in enumerate(run[key]):
            check_object(one, kinds, f"{key}[{i}]")
    assert run["weights"] == sum(layer["elements"] for layer in run["layers"] if layer["kind"] != "loss")
    assert {layer["kind"] for layer in run["layers"]} <= {"bias", "linear", "conv", "lstm", "embedding", "loss"}
    for i, sample in enumerate(run["samples"]):
        assert len(sample["layers"]) == len(run["layers"]), f"samples[{i}] has {len(sample['layers'])} layers"
        for layer, planned in zip(sample["layers"], run["layers"]):
            check_object(layer, SAMPLE_LAYER, f"samples[{i}]: {planned['name']}")
            assert "adapt" in run or "auto" in run or planned["fused"] or (layer["rel_error"] is None) == (planned["spec"] == "dense"), f"samples[{i}]: {planned['name']}: {layer['rel_error']}"
            assert layer["posted"] <= layer["begun"] <= layer["arrived"], f"samples[{i}]: {planned['name']} out of order"
    check_order(run)
    check_bytes(run)
    check_adapt(run)
    check_auto(run)
    return run


def checkpoints(folder):
    return sorted(p.name for p in pathlib.Path(folder).glob("checkpoint-*"))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, check(name)["state"])
