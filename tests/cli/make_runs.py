#!/usr/bin/env python3
"""Run folders for the tests of `gradwire report`: runs that look like real ones, the same every time.

    make_runs.py FOLDER [--steps N] [--seeds N] [--model cnn|lstm] [--spec SPEC]...
"""

import argparse
import json
import math
import pathlib
import random
import re

# name, kind, elements, in the order in which backward makes them
LAYERS = {
    "cnn": [("fc2.bias", "bias", 10), ("fc2.weight", "linear", 3840), ("fc1.bias", "bias", 384),
            ("fc1.weight", "linear", 602112), ("conv2.bias", "bias", 32), ("conv2.weight", "conv", 9216),
            ("conv1.bias", "bias", 16), ("conv1.weight", "conv", 144), ("loss", "loss", 1)],
    "lstm": [("out.bias", "bias", 64), ("out.weight", "linear", 16384), ("lstm.bias", "bias", 1024),
             ("lstm.recurrent", "lstm", 262144), ("lstm.input", "lstm", 65536),
             ("embedding", "embedding", 4096), ("loss", "loss", 1)],
}
# spec -> route, bits an element on the wire, error of coding once, encode and decode in ns an element,
# loss of final accuracy
CODECS = {
    "dense": ("dense", 32, None, 0, 0, 0),
    "cast:to=bf16": ("sra", 16, 2.7e-6, 0.3, 0.4, 0),
    "natural:bits=8": ("sra", 8.02, 0.115, 0.5, 0.5, 0.0004),
    "adacomp": ("gather", 0.36, 0.87, 1.2, 0.2, 0.004),
    "sign": ("sra", 1.02, 0.41, 0.5, 0.4, 0.002),
    "topk:density=0.01": ("gather", 0.64, 0.73, 2.5, 0.2, 0.003),
}
RANKS, LINK, LATENCY, SAMPLE_EVERY = 4, 25e6, 1e-3, 25


def layer_plan(model, spec):
    """[(name, kind, elements, spec, route, fused, bytes a step, dense bytes a step)]"""
    plan = []
    for name, kind, n in LAYERS[model]:
        dense = round(2 * (RANKS - 1) / RANKS * 4 * n)
        small = kind in ("bias", "loss") or n < 1024
        if small or spec == "dense":
            plan.append((name, kind, n, "dense", "dense", small, dense, dense))
            continue
        route, bits = CODECS[spec][:2]
        factor = (RANKS - 1) if route == "gather" else 2 * (RANKS - 1) / RANKS
        if spec == "adacomp" and kind == "conv":
            bits *= 2.2
        plan.append((name, kind, n, spec, route, False, round(factor * bits / 8 * n) + 24, dense))
    if any(p[5] for p in plan):  # what fused layers cost stands at the first of them
        first = next(i for i, p in enumerate(plan) if p[5])
        cost = sum(p[6] for p in plan if p[5])
        plan = [p[:6] + (cost if i == first else 0, p[7]) if p[5] else p for i, p in enumerate(plan)]
    return plan


def timeline(plan, spec, jitter):
    """A step: the wire takes one tensor after the other. Seconds from the first post."""
    backward = 0.021 * jitter
    total = sum(p[2] for p in plan)
    clock, free, layers = 0.0, 0.0, []
    for name, kind, n, own, _, _, sent, dense in plan:
        clock += 0 if not layers else backward * (0.15 * n / total + 0.85 / (len(plan) - 1))
        encode, decode = (CODECS[own][k] * n * 1e-9 * 3 for k in (3, 4))
        begun = max(clock, free)
        arrived = begun + encode + sent / LINK * jitter + (2 * LATENCY if sent else 1e-5) + decode
        free = arrived - decode - (LATENCY if sent else 0)
        error = CODECS[own][2]
        layers.append(dict(posted=clock, begun=begun, arrived=arrived, encode_seconds=encode, decode_seconds=decode,
                           bytes_sent=sent, dense_bytes=dense, rel_error=None if error is None else error * jitter))
    last = max(l["arrived"] for l in layers)
    return dict(backward_seconds=clock, forward_seconds=0.011 * jitter, update_seconds=0.0016 * jitter, layers=layers), max(0.0, last - clock)


def make(model="cnn", spec="dense", seed=1, steps=400, done=None, state="finished", error=None):
    dice = random.Random(f"{model} {spec} {seed}")
    done = steps if done is None else done
    plan = layer_plan(model, spec)
    rows, tests, samples, seconds = [], [], [], 0.0
    text = model == "lstm"
    level = (1.62 if text else 0.915) + (1 if text else -1) * (CODECS[spec][5] * (20 if text else 1)) + dice.gauss(0, 0.001)
    for step in range(1, done + 1):
        jitter = 1 + 0.04 * dice.random() + (0.3 if dice.random() < 0.02 else 0)
        sample, wait = timeline(plan, spec, jitter)
        took = sample["forward_seconds"] + sample["backward_seconds"] + 0.004 + wait + sample["update_seconds"]
        seconds += took
        part = step / steps
        start, end = (4.2, 1.13) if text else (2.31, 0.19)
        loss = (end + (start - end) * (0.55 * math.exp(-40 * part) + 0.45 * math.exp(-5 * part))) * math.exp(dice.gauss(0, 0.1))
        rows.append(dict(step=step, loss=loss, seconds=took, wait_seconds=wait, bytes_sent=sum(p[6] for p in plan),
                         dense_bytes=sum(p[7] for p in plan), non_finite=0))
        if step % max(1, steps // 16) == 0 or step == steps:
            far = math.exp(-6 * part) + 0.25 * math.exp(-60 * part) - math.exp(-6)
            quality = level + (1.6 * far if text else -0.16 * far) + dice.gauss(0, 0.0015)
            bits = quality if text else 0.34
            tests.append(dict(step=step, seconds=seconds, accuracy=0.66 - 0.1 * far if text else quality, loss=bits * math.log(2), bits=bits))
        if step % min(SAMPLE_EVERY, steps) == 0:
            samples.append(dict(step=step, **sample))
    run = dict(
        format="gradwire.run/3", gradwire="0.1.0", started="2026-01-31T12:00:00Z", state=state,
        config=dict(model=model, engine="threads", ranks=RANKS, ranks_per_node=1, batch=32, steps=steps, seed=seed, spec=spec,
                    route=CODECS[spec][0], fuse_below=1024, link_bytes_per_second=LINK, latency_seconds=LATENCY, optimiser="sgd",
                    rate=0.08, warmup=50, momentum=0.9, decay=0.0005, schedule="cosine",
                    data="kjv.txt" if text else "fashion-mnist"),
        weights=sum(n for _, kind, n in LAYERS[model] if kind != "loss"),
        layers=[dict(name=name, kind=kind, elements=n, spec=own, route=route, fused=fused, bytes_sent=sent * done, dense_bytes=dense * done)
                for name, kind, n, own, route, fused, sent, dense in plan],
        steps=rows, tests=tests, samples=samples,
    )
    if error is not None:
        run["error"] = error
    return run


GATHER, SRA = "encode@cpu · flat:allgather · decode@cpu", "encode@cpu · flat:alltoall · decode@cpu · encode@cpu · flat:allgather · decode@cpu"
DITHER, TOPK = "dither:bits=%d,bucket=512,norm=max,rounding=stochastic", "topk:density=%g,values=f32"
# auto's plans: layers that are coded -> (spec, route, bytes an element)
PLANS = {
    "begin": {name: (DITHER % 4, SRA, .77) for name in ("fc1.weight", "conv2.weight", "fc2.weight")},
    "first": {"fc1.weight": (DITHER % 4, SRA, .77), "conv2.weight": (DITHER % 6, GATHER, 2.3)},
    "slow": {"fc1.weight": (TOPK % 0.01, GATHER, .24), "conv2.weight": (DITHER % 4, GATHER, 1.6), "fc2.weight": (DITHER % 4, GATHER, 1.6)},
    "fast": {"fc1.weight": (DITHER % 5, SRA, .95)},
}


def make_auto(steps=600, seed=1, spec="auto:error=1"):
    """A run of auto: by its default first; the link drops to a fifth at a third of the steps and is back at two thirds; three switches."""
    run = make(spec="dense", seed=seed, steps=steps)
    dice = random.Random(f"auto {seed}")
    drop, back, window = steps // 3, 2 * steps // 3, max(1, steps // 60)
    layers = run["layers"]
    compute, dense_bytes = 0.038, sum(layer["dense_bytes"] for layer in layers) // steps

    def sent(plan):
        return sum(round(PLANS[plan][l["name"]][2] * l["elements"]) if l["name"] in PLANS.get(plan, {}) else l["dense_bytes"] // steps for l in layers)

    def took(plan, rate):
        return compute + (0.03 if plan == "slow" else 0) + sent(plan) / rate + 2 * LATENCY  # topk is slow to encode

    def rate_at(step):
        return LINK / (5 if drop < step <= back else 1)

    first, slower, faster = 3 * window, drop + 2 * window, back + 2 * window
    error = {"begin": 0, "first": 0.0093, "slow": 0.0108, "fast": 0.0034}
    moments = [(first, "start", "switched", "first"), (first + 10 * window, "periodic", "same", "first"), (slower, "slower", "switched", "slow"),
               (slower + 10 * window, "periodic", "small_gain", "slow"), (faster, "faster", "switched", "fast"), (faster + 10 * window, "quiet", "same", "fast")]
    plans, decisions, now = [(1, "begin")], [], "begin"
    for layer in layers:
        layer["spec"], layer["route"] = PLANS["begin"].get(layer["name"], ("dense", "dense"))[:2]
    for step, reason, outcome, plan in moments:
        rate, before = rate_at(step), took(now, rate_at(step))
        bound = step + 1  # the first step after it, also where nothing changed
        if outcome == "switched":
            now = plan
            plans.append((bound, plan))
        words = (f"{reason}: the link does {rate * 8e-6:.1f} Mbit/s; {len(PLANS[plan])} of {len(layers)} layers coded, {took(plan, rate) * 1e3:.1f} ms predicted "
                 f"instead of {before * 1e3:.1f} ms" if outcome == "switched" else f"{reason}: nothing gains 2 % on {took(plan, rate) * 1e3:.1f} ms")
        decisions.append(dict(
            step=step, bound_at=bound, reason=reason, outcome=outcome, words=words, predicted_seconds=0.93 * took(plan, rate), dense_seconds=took("dense", rate),
            bound_seconds=0.9 * took(plan, rate), half_seconds=took(plan, rate / 2) * 0.96, double_seconds=took(plan, rate * 2) * 0.98, alpha=1, budget=0.0112,
            error=error[plan], noise_ratio=4 * error[plan], link_bytes_per_second=rate, latency_seconds=LATENCY, bytes=sent(plan), dense_bytes=dense_bytes,
            measure_seconds=0.013, solve_seconds=0.004, waited=0,
            layers=[dict(zip(("spec", "route"), PLANS[plan].get(layer["name"], ("dense", "dense"))[:2])) for layer in layers]))
    watch = []
    for i, row in enumerate(run["steps"]):
        step, plan = i + 1, [p for from_, p in plans if from_ <= i + 1][-1]
        told = [d for d in decisions if d["step"] < step]
        row["seconds"] = took(plan, rate_at(step)) * (1 + 0.03 * dice.random())
        row.update(wait_seconds=row["seconds"] - compute, bytes_sent=sent(plan))
        if step % window == 0:
            made = [d for d in told if d["outcome"] == "switched"]
            since = [w["measured_seconds"] for w in watch if made and w["step"] > made[-1]["step"]]
            fade = math.exp(-1.5 * step / steps) + 0.4
            watch.append(dict(step=step, measured_seconds=row["seconds"], predicted_seconds=made[-1]["predicted_seconds"] if made else None,
                              expected_seconds=since[0] if since else None,
                              error=error[plan] * fade * (1 + 0.03 * dice.random()) if told else None, budget=0.0112 * fade if told else None,
                              noise_ratio=4 * error[plan] * (2 - fade) if told else None, loss=row["loss"]))
    for layer in layers:
        layer["bytes_sent"] = sum(round(PLANS[p][layer["name"]][2] * layer["elements"]) if layer["name"] in PLANS.get(p, {}) else layer["dense_bytes"] // steps
                                  for step in range(1, steps + 1) for p in [[q for from_, q in plans if from_ <= step][-1]])
    total = 0
    sums = [total := total + row["seconds"] for row in run["steps"]]
    for test in run["tests"]:
        test["seconds"] = sums[test["step"] - 1]
    run["config"]["spec"] = spec
    run.update(auto=decisions, watch=watch)
    return run


def parts(run):
    """A run in one object as run.json and history.jsonl."""
    arrays = ("steps", "tests", "samples", "adapt", "auto", "watch")
    head = {key: value for key, value in run.items() if key not in arrays}
    sums = {key: sum(step[key] for step in run["steps"]) for key in ("seconds", "wait_seconds", "bytes_sent", "dense_bytes", "non_finite")}
    head["summary"] = dict(steps=len(run["steps"]), **sums)
    lines = [{kind: record} for kind in arrays for record in run.get(kind, [])]
    # as training writes them: by step, what a step did before what was found about it
    lines.sort(key=lambda line: next(iter(line.values()))["step"])
    return json.dumps(head), "".join(json.dumps(line) + "\n" for line in lines)


def before(run, version):
    """As gradwire.run/1 or /2 had it: what is expected stood as predicted, and an auto run's layers as dense."""
    if version == 3:
        return run
    run = json.loads(json.dumps(dict(run, format=f"gradwire.run/{version}")))
    for layer in run["layers"] if "auto" in run else []:
        layer["spec"] = layer["route"] = "dense"
    for window in run.get("watch", []):
        expected = window.pop("expected_seconds")
        window["predicted_seconds"] = window["predicted_seconds"] if expected is None else expected
    return run


def write(folder, run, version=3):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run = before(run, version)
    if version == 1:
        (folder / "run.json").write_text(json.dumps(run))
        return folder
    head, history = parts(run)
    (folder / "run.json").write_text(head)
    (folder / "history.jsonl").write_text(history)
    return folder


def read(folder):
    folder = pathlib.Path(folder)
    run = dict(json.loads((folder / "run.json").read_text()), steps=[], tests=[], samples=[])
    for line in (folder / "history.jsonl").read_text().splitlines():
        [(kind, record)] = json.loads(line).items()
        run.setdefault(kind, []).append(record)
    return run


def write_all(folder, specs=("dense", "cast:to=bf16", "natural:bits=8", "adacomp"), seeds=1, **settings):
    for spec in specs:
        for seed in range(1, seeds + 1):
            name = re.sub(r"[^A-Za-z0-9.=_-]", "_", f"{spec}-seed{seed}")
            write(pathlib.Path(folder) / name, make(spec=spec, seed=seed, **settings))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--model", choices=LAYERS, default="cnn")
    parser.add_argument("--spec", action="append", choices=CODECS)
    args = parser.parse_args()
    more = {"specs": args.spec} if args.spec else {}
    write_all(args.folder, seeds=args.seeds, steps=args.steps, model=args.model, **more)
