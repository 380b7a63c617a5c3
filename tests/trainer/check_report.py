#!/usr/bin/env python3
"""What the report says of a run with auto, against run.json and history.jsonl: check_report.py GRADWIRE

The run is a real one; each sentence and number is computed a second time from the files that docs/run-format.md describes.
"""

import html
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import run_oracle
import small

GRADWIRE = pathlib.Path(sys.argv[1]).resolve()
STEPS = 90
RETIRED = ["as it is", "times fewer", "fewer x", "ms a step", "right %", "a step and rank", "no plan can be faster", "another plan"]


def run(*words):
    done = subprocess.run([str(w) for w in (GRADWIRE, *words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def near(a, b, digits=5):
    """Equal, as far as numbers on the page have digits."""
    return a is b is None or (a is not None and b is not None and math.isclose(a, b, rel_tol=10.0 ** (1 - digits)))


def ways(layers):
    return [(layer["spec"], layer["route"]) for layer in layers]


def changes(one):
    """The decisions by which a codec or a route changed."""
    all_ways = [ways(one["layers"]), *(ways(d["layers"]) for d in one["auto"])]
    return [after != before for before, after in zip(all_ways, all_ways[1:])]


def check_run(one, by_default):
    """What run.json itself says: what the first steps were sent by, what was predicted, what is expected."""
    assert one["format"] == "gradwire.run/3" and one["auto"] and len(one["watch"]) > 3
    assert ways(one["layers"]) == ways(by_default["layers"]), (ways(one["layers"]), ways(by_default["layers"]))
    first = one["auto"][0]["bound_at"]
    assert all(s["bytes_sent"] == by_default["steps"][0]["bytes_sent"] for s in one["steps"][:first - 1]), "the first steps were sent otherwise"
    made = None
    for d in one["auto"]:
        assert d["bound_seconds"] is None or d["predicted_seconds"] >= (1 - 1e-9) * d["bound_seconds"] > 0, d
    for i, window in enumerate(one["watch"]):
        for d in one["auto"]:  # the planner's number, of the decision that made the plan in force
            if d["bound_at"] <= window["step"] and (d is one["auto"][0] or d["outcome"] in ("switched", "dense")):
                made = d
        assert window["predicted_seconds"] == (made and made["predicted_seconds"]), (i, window, made)
        assert window["predicted_seconds"] not in [w["measured_seconds"] for w in one["watch"]], "predicted is what was measured"
        first = made and next(w for w in one["watch"] if w["step"] >= made["bound_at"])
        if made is None or first is window:
            assert window["expected_seconds"] is None, (i, window)
        elif not any(made["step"] < d["step"] <= window["step"] for d in one["auto"]):  # the oracle knows which measured one it may be
            assert window["expected_seconds"] is not None, (i, window)


def check_json(told, one):
    off = [abs(w["measured_seconds"] / w["predicted_seconds"] - 1) for w in one["watch"] if w["predicted_seconds"]]
    rated = [d for i, d in enumerate(one["auto"]) if i == 0 or d["half_seconds"] is not None][-1]
    expected = dict(decisions=len(one["auto"]), switches=sum(changes(one)), prediction_off=statistics.median(off),
                    **{key: rated[key] for key in ("predicted_seconds", "half_seconds", "double_seconds", "dense_seconds", "bound_seconds")})
    assert set(told) == set(expected) and all(near(told[key], value, 9) for key, value in expected.items()), (told, expected)
    return expected


def check_page(page, one, expected):
    text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", page.split("</style>")[1].split("<script")[0])))
    n, times = expected["decisions"], expected["switches"]
    said = f"It made {n} decision{'' if n == 1 else 's'} and changed its plan {times} time{'' if times == 1 else 's'}. The median window was "
    found = re.search(re.escape(said) + r"([\d.]+) % off what the planner had predicted\.", text)
    assert found and abs(float(found[1]) - 100 * expected["prediction_off"]) <= max(.06, .01 * float(found[1])), (said, text)
    assert not re.search(r"\d\s?[kMG]?B/s\b", text) and "200 Mbit/s" in text, text  # one kind of units
    for words in RETIRED:
        assert words not in page, words
    heads = [html.unescape(re.sub("<br>.*", "", head)) for head in re.findall(r'<th scope="col">(.*?)</th>', page)]
    assert heads[:7] == ["run", "accuracy (%)", heads[2], "ms/step", "waiting (%)", "sent/step", "compression"] and heads[2].startswith("time to"), heads
    row = page[page.rindex('<tr><th scope="row">'):].split("</tr>")[0]
    cells = dict((name, value) for name, value in re.findall(r'<td data-label="([^"]*)">([^<]*)', row))
    assert len(cells) == len(heads) - 1, (cells, heads)  # on a phone each says which column it is of
    seconds = statistics.median(s["seconds"] for s in one["steps"])
    ratio = sum(s["dense_bytes"] for s in one["steps"]) / sum(s["bytes_sent"] for s in one["steps"])
    assert float(cells["accuracy (%)"]) == round(100 * one["tests"][-1]["accuracy"], 2), cells
    assert abs(float(cells["ms/step"]) - 1e3 * seconds) <= .06 * max(1, 1e3 * seconds / 10), (cells, seconds)
    assert abs(float(cells["compression"][:-1]) - ratio) <= .06, (cells, ratio)


def check_data(way, one, expected):
    """What the charts and tables are drawn from."""
    assert ways(way["layers"]) == ways(one["auto"][-1]["layers"]), "not the plan in force at the end"
    drawn = way["auto"]
    assert [d["changed"] for d in drawn["decisions"]] == changes(one) and drawn["switches"] == expected["switches"]
    assert [(d["step"], d["bound"], d["words"]) for d in drawn["decisions"]] == [(d["step"], d["bound_at"], d["words"]) for d in one["auto"]]
    for shown, window in zip(drawn["watch"], one["watch"], strict=True):
        assert shown[0] == window["step"]
        assert all(near(a, window[key]) for a, key in zip(shown[1:4], ("measured_seconds", "predicted_seconds", "expected_seconds"))), (shown, window)
    for key, name in (("same", "predicted_seconds"), ("half", "half_seconds"), ("double", "double_seconds"), ("dense", "dense_seconds"), ("bound", "bound_seconds")):
        assert near(drawn["rates"][key], expected[name]), (key, drawn["rates"], expected)
    for row in drawn["rows"]:
        at = [layer["name"] for layer in one["layers"]].index(row["name"])
        parts = [[1, *ways(one["layers"])[at]]]
        for d in one["auto"]:
            if list(ways(d["layers"])[at]) != parts[-1][1:]:
                parts.append([d["bound_at"], *ways(d["layers"])[at]])
        assert [[p[0], p[1], p[3]] for p in row["parts"]] == parts and parts[0][1].startswith("dither:bits=4"), (row, parts)


def main():
    with tempfile.TemporaryDirectory(prefix="gradwire-report-") as folder:
        work = pathlib.Path(folder)
        images = small.images(work / "images")
        run("train", "--model", "mlp", "--images", images, "--ranks", 2, "--batch", 16, "--every", 30, "--sample", 30, "--seed", 5, "--steps", STEPS,
            "--link", "200mbit", "--latency", "1ms", "--compare", "dense,dither:bits=4,auto", "--out", work / "runs", "-q")
        one, by_default = (run_oracle.check(work / "runs" / f"{name}-seed5") for name in ("auto", "dither_bits=4"))
        check_run(one, by_default)
        for name in ("auto-seed5", "."):
            told = json.loads(run("report", work / "runs" / name, "-o", work / "page.html", "--json"))
            [told_auto] = [way["auto"] for way in told["ways"] if way["auto"]]
            page = (work / "page.html").read_text()
            [way] = [w for w in json.loads(page.split('id="data">')[1].split("</script>")[0])["ways"] if w["auto"]]
            expected = check_json(told_auto, one)
            check_data(way, one, expected)
            if name == "auto-seed5":
                check_page(page, one, expected)
        print(f"{expected['decisions']} decisions, {expected['switches']} changes of plan, {100 * expected['prediction_off']:.1f} % off: the page says so")


if __name__ == "__main__":
    main()
