#!/usr/bin/env python3
"""What test suites said: summary.py SKIPS RESULT...

RESULT is a JUnit file of ctest or the output of tests/python/all.py; its base name is the suite's. Prints why tests were
skipped and, last, how many passed, failed and were skipped. SKIPS lists the skips to expect. Where CI is set, as in .ci/run,
any other skip is a failure: what CI leaves out is known.
"""

import fnmatch
import os
import pathlib
import re
import sys
import xml.etree.ElementTree

REASON = re.compile(r"^skip: (.*)$", re.MULTILINE)


def of_ctest(path):
    """(passed, failed, skipped, reasons): a test that passes may have skipped some of its scenes."""
    counts, reasons = [0, 0, 0], []
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        status = case.get("status")
        counts[{"run": 0, "notrun": 2, "disabled": 2}.get(status, 1)] += 1
        said = REASON.findall(case.findtext("system-out") or "")
        if status == "notrun" and not said:
            said = ["no reason given"]
        reasons += [f"{case.get('name')}: {reason}" for reason in said]
    return counts, reasons


def of_python(path):
    text = path.read_text()
    reasons = REASON.findall(text)
    counts = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", text, re.MULTILINE)
    if counts:
        return [int(n) for n in counts[-1]], reasons
    return [0, 0, 1] if reasons else [0, 1, 0], reasons  # all of it was skipped, or it broke off


def expected(path):
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def main():
    skips = expected(pathlib.Path(sys.argv[1]))
    total, unexpected = [0, 0, 0], []
    for path in map(pathlib.Path, sys.argv[2:]):
        counts, reasons = (of_ctest if path.suffix == ".xml" else of_python)(path)
        total = [a + b for a, b in zip(total, counts)]
        for reason in reasons:
            line = f"{path.stem}: " + re.sub(r" \([0-9.]+ s\)$", "", reason)
            known = any(fnmatch.fnmatchcase(line, pattern) for pattern in skips)
            print(f"skipped: {line}" + ("" if known else "   <- not in tests/skips.txt"))
            unexpected += [] if known else [line]
    strict = bool(os.environ.get("CI"))
    if unexpected:
        print(f"{len(unexpected)} unexpected skips" + (": a failure here" if strict else ": a failure in CI"))
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    sys.exit(bool(total[1] or total[0] == 0 or (strict and unexpected)))


main()
