#!/usr/bin/env python3
"""Each law, its tests and its planted faults: laws.py BUILD [--control]

Laws come from docs/laws.md, tests from the labels that ctest knows, faults from check_controls.py and from tests with
the label `control`, which plant theirs themselves. Exit 1: a law has no test or no fault, or the test of a fault has
not the label of the fault's law. --control takes these away law by law; each must be missed.
"""

import json
import pathlib
import re
import subprocess
import sys

import check_controls

ROOT = pathlib.Path(__file__).resolve().parents[2]


def titles():
    found = re.findall(r"^## (\d+)\. (.*)$", (ROOT / "docs" / "laws.md").read_text(), re.M)
    return {int(number): title for number, title in found}


def tests_of(build):
    """(name, program without its folder, labels) of every test."""
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True, capture_output=True, text=True)
    for test in json.loads(shown.stdout)["tests"]:
        labels = [p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"]
        programs = [pathlib.Path(word).name for word in test.get("command", [])]
        yield test["name"], programs, set(labels[0] if labels else [])


def laws_in(labels):
    return {int(label[4:]) for label in labels if re.fullmatch(r"law-\d+", label)}


def table(laws, tests, faults):
    """law -> (tests, planted faults), and what is wrong."""
    rows = {law: ([], []) for law in laws}
    wrong = []
    for name, _, labels in tests:
        for law in laws_in(labels) - set(rows):
            wrong.append(f"{name} has the label law-{law}, and docs/laws.md has no such law")
        for law in laws_in(labels) & set(rows):
            rows[law][1 if "control" in labels else 0].append(name)
    for fault in faults:
        if not isinstance(fault[0], int):
            wrong.append(f"check_controls.py: a fault without the number of its law: {fault[0]}")
            continue
        law, what, path, _, _, program = fault[:6]
        names = [name for name, programs, labels in tests if f"test_{program}" in programs and law in laws_in(labels)]
        if law not in rows or not names:
            wrong.append(f"no test with the label law-{law} runs test_{program}, which has to detect: {what}")
            continue
        rows[law][1].append(f"{what} ({path} -> {names[0]})")
    for law, (named, planted) in rows.items():
        wrong += [] if named else [f"law {law} has no test"]
        wrong += [] if planted else [f"law {law} has no planted fault"]
    return rows, wrong


def control(laws, tests, faults):
    for law in laws:
        fewer = [t for t in tests if law not in laws_in(t[2]) or "control" in t[2]]
        assert f"law {law} has no test" in table(laws, fewer, faults)[1], law
        tame = [t for t in tests if law not in laws_in(t[2]) or "control" not in t[2]]
        assert f"law {law} has no planted fault" in table(laws, tame, [f for f in faults if f[0] != law])[1], law
    assert any("without the number" in w for w in table(laws, tests, [*faults, ("what", "file", "", "", "x")])[1])
    assert any("has to detect" in w for w in table(laws, tests, [*faults, (1, "what", "file", "", "", "x")])[1])
    print(f"{len(laws)} laws: a missing test and a missing fault of each is noticed")


def main():
    build = sys.argv[1]
    laws, tests = titles(), list(tests_of(build))
    assert list(laws) == list(range(1, 13)), "docs/laws.md does not state laws 1 to 12 in order"
    rows, wrong = table(laws, tests, check_controls.FAULTS)
    if "--control" in sys.argv:
        assert not wrong, "\n".join(wrong)
        control(laws, tests, check_controls.FAULTS)
        return
    for law, (named, planted) in rows.items():
        print(f"law {law}: {laws[law]}")
        for name in named:
            print(f"    test   {name}")
        for what in planted:
            print(f"    fault  {what}")
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    main()
