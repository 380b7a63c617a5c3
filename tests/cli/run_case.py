#!/usr/bin/env python3
"""Runs one case of the command line: run_case.py CASE_DIR BINARY

CASE_DIR holds run.sh and what it must give; a file that is missing is not looked at:

    out.exact, err.exact    stdout, stderr, to the byte
    out.glob, err.glob      the same line by line; * is any text within a line, a line of ... is any
                            number of lines. An empty file: nothing may be said
    exit                    the exit status (0 without this file)

run.sh runs under `bash -eu` in a fresh folder, with GRADWIRE (the binary) and CASE (CASE_DIR) set;
Python in it finds make.py (files to encode) and the oracle gwframe.py. Exit 77 skips.
"""

import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def glob_to_regex(glob):
    """A regular expression for all of the text."""
    parts = []
    for line in glob.splitlines():
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(re.escape(piece) for piece in line.split("*")) + r"\n")
    return "".join(parts)


def differences(case, stream, text):
    """Lines that say how `text` differs from what the case asks for."""
    exact, glob = case / f"{stream}.exact", case / f"{stream}.glob"
    if exact.exists():
        wanted = exact.read_text()
        if text == wanted:
            return []
    elif glob.exists():
        wanted = glob.read_text()
        if re.fullmatch(glob_to_regex(wanted), text):
            return []
    else:
        return []
    kind = "exact" if exact.exists() else "glob"
    return list(
        difflib.unified_diff(
            wanted.splitlines(), text.splitlines(), f"{stream}.{kind}", f"std{stream}", lineterm=""
        )
    )


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    case, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    here = pathlib.Path(__file__).resolve().parent
    environment = dict(
        os.environ,
        GRADWIRE=str(binary),
        CASE=str(case),
        PYTHONPATH=os.pathsep.join([str(here), str(here.parent / "oracle")]),
        PYTHONDONTWRITEBYTECODE="1",
        LC_ALL="C.UTF-8",
    )
    with tempfile.TemporaryDirectory(prefix="gradwire-cli-") as folder:
        done = subprocess.run(
            ["bash", "-eu", str(case / "run.sh")],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
        )
    if done.returncode == 77:
        print(done.stdout.decode(errors="replace"), end="")
        return 77
    out, err = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    wanted = int((case / "exit").read_text()) if (case / "exit").exists() else 0
    wrong = differences(case, "out", out) + differences(case, "err", err)
    if done.returncode != wanted:
        wrong.append(f"exit status {done.returncode}, expected {wanted}")
    if wrong:
        print(f"FAILED {case.name}", *wrong, sep="\n")
        print("---- stdout", out, "---- stderr", err, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
