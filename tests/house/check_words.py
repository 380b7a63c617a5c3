#!/usr/bin/env python3
"""Retired phrases become fewer, never more: check_words.py [--control | --update]

tests/retired_words.csv has each phrase of the style guide's list, what to write instead, and how often it may stand in the tree. A
change that adds one fails, with the places. --update writes the counts down where they have fallen. --control counts a planted text.
"""

import csv
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "tests" / "retired_words.csv"
KINDS = (".c", ".h", ".cu", ".py", ".sh", ".md", ".js", ".html")


def files():
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    # the changelog and decisions tell what was
    return [ROOT / n for n in names if n.endswith(KINDS) and n != "CHANGELOG.md" and not n.startswith("docs/decisions/") and (ROOT / n).exists()]


def count(phrase, texts):
    """(number, places)"""
    pattern, places = re.compile(rf"\b(?:{phrase})\b", re.I), []
    for path, text in texts:
        for match in pattern.finditer(text):
            begin, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.start())
            places.append(f"{path}:{text.count(chr(10), 0, begin) + 1}: {text[begin:end].strip()[:120]}")
    return len(places), places


def changed_lines():
    """path:line of every line that differs from what is committed, or came with the last commit."""
    found = set()
    for revisions in (["HEAD"], ["HEAD~1", "HEAD"]):
        diff = subprocess.run(["git", "-C", str(ROOT), "diff", "-U0", *revisions], capture_output=True, text=True).stdout
        path = ""
        for line in diff.splitlines():
            if line.startswith("+++ b/"):
                path = line[6:]
            at = re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))?", line)
            if at:
                found.update(f"{path}:{int(at.group(1)) + i}" for i in range(int(at.group(2) or 1)))
    return found


def main():
    with open(LIST, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if "--control" in sys.argv:
        assert count(rows[0]["phrase"], [("x", "a " + rows[0]["phrase"].split("|")[0] + " b")])[0] == 1
        print("a planted phrase is counted")
        return
    texts = [(path.relative_to(ROOT), path.read_text(encoding="utf-8", errors="replace")) for path in files()
             if path.name not in ("check_words.py",)]
    faults = []
    for row in rows:
        number, places = count(row["phrase"], texts)
        if number > int(row["count"]):
            lines = changed_lines()
            new = [p for p in places if ":".join(p.split(":")[:2]) in lines] or places[:5]
            faults.append(f"'{row['phrase']}' stands {number} times, {row['count']} are left to mend. Write: {row['instead']}\n    "
                          + "\n    ".join(new[:10]))
        if "--update" in sys.argv:
            row["count"] = min(number, int(row["count"]))
    if "--update" in sys.argv:
        with open(LIST, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["phrase", "instead", "count"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    assert not faults, "retired phrases were added:\n  " + "\n  ".join(faults)
    print(f"{len(rows)} retired phrases, none added")


if __name__ == "__main__":
    main()
