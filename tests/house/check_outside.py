#!/usr/bin/env python3
"""No test reads a file next to the repository, or one of the working machine: check_outside.py [--control]

Looks for such paths in tests/, scripts/, examples/, trainer/, the CMake files and the Makefile. What tests need lies in tests/data.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = re.compile(r"\.\./+shared\b|(?<![\w.}$-])/(?:work|root)/|PROJECT_SOURCE_DIR\}/\.\.")
PLACES = ["tests", "scripts", "examples", "trainer", "cmake", ".ci", "CMakeLists.txt", "Makefile", "*/CMakeLists.txt"]
BINARY = {".gw", ".safetensors", ".npy", ".gz", ".png", ".pyc"}


def faults_of(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        if PATH.search(line):
            yield f"{name}:{number}: a path outside of the repository: {line.strip()[:120]}"


def files():
    for place in PLACES:
        for path in ROOT.glob(place):
            for file in path.rglob("*") if path.is_dir() else [path]:
                if file.is_file() and file.suffix not in BINARY and "corpus" not in file.parts and file != pathlib.Path(__file__).resolve():
                    yield file


def control():
    planted = ["cp ../shared/data/x .", 'open("/work/shared/x")', "${PROJECT_SOURCE_DIR}/../data/x", "ls /root/data"]
    for line in planted:
        assert list(faults_of("planted", f"fine\n{line}\n")), line
    for line in ("gradwire_shared", "-I ../include", "$work/x", "${WORK}/home/x", "https://example.org/work/x"):
        assert not list(faults_of("fine", line)), line
    print(f"{len(planted)} planted paths are seen")


def main():
    if "--control" in sys.argv:
        control()
        return
    found = list(files())
    faults = [fault for file in found for fault in faults_of(file.relative_to(ROOT), file.read_text(errors="replace"))]
    assert not faults, "\n".join(faults)
    print(f"{len(found)} files read nothing outside of the repository")


if __name__ == "__main__":
    main()
