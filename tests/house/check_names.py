#!/usr/bin/env python3
"""A source file's name is its own in the whole tree: check_names.py [--control]

Debuggers, logs and code search show a file's name without its folder. So no two .c, .h, .cu or .def files in src/, cli/
and trainer/ have one name. --control plants a second file of a name and expects to find it.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("src", "cli", "trainer")
SUFFIXES = (".c", ".h", ".cu", ".def")


def faults_of(files):
    by_name = {}
    for file in files:
        by_name.setdefault(file.name, []).append(str(file))
    return [f"{name}: {', '.join(places)}" for name, places in sorted(by_name.items()) if len(places) > 1]


def main():
    files = [path.relative_to(ROOT) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES]
    assert len(files) > 30, "where are the sources?"
    if "--control" in sys.argv:
        for planted in ("cli/plan/plan.c", "trainer/random.h", "src/codec/cast/sign.cu", "src/plan/list.def"):
            assert faults_of([*files, pathlib.Path(planted)]), f"{planted} was not seen"
        print("planted names are seen")
        return
    faults = faults_of(files)
    assert not faults, "names that several files have:\n  " + "\n  ".join(faults)
    print(f"{len(files)} files have names of their own")


if __name__ == "__main__":
    main()
