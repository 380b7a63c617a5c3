#!/usr/bin/env python3
"""What README.md and docs/commands.md show can be pasted: check_paste.py

Copies the tracked files into an empty folder, as a clone has them, and runs every sh block of both pages in one shell,
in the order printed. Then README's Python block must be part of examples/pytorch/quickstart.py, which these commands run, and README's
table must have the rows that `make run` printed. The environment alone makes it short (STEPS), and keeps pip to the version of
torch that is tested (PIP_CONSTRAINT), and leaves CUDA out (CUDACXX).
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/commands.md"]
TORCH = "2.13.0"


def blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)


def copy_of_tracked_files(folder):
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_symlink() or (ROOT / name).exists():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target, follow_symlinks=False)


def rows(text):
    """What the rows of the first table of runs are called."""
    table = re.search(r"^spec .*\n((?:.*\d.*\n)+)", text, re.M)
    return [line.split()[0] for line in table.group(1).splitlines()] if table else []


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        clone = folder / "gradwire"
        copy_of_tracked_files(clone)
        (folder / "constraint").write_text(f"torch=={TORCH}\n")
        hidden = ("GRADWIRE_", "PYTHONPATH", "VIRTUAL_ENV", "CMAKE_PREFIX")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        environment.update(STEPS="20", PIP_CONSTRAINT=str(folder / "constraint"), CUDACXX="none", OMP_NUM_THREADS="1", LC_ALL="C.UTF-8")
        script = "set -euxo pipefail\n" + "".join(block for page in PAGES for block in blocks(page, "sh"))
        done = subprocess.run(["bash", "-c", script], cwd=clone, env=environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(done.stdout)
        assert done.returncode == 0, f"the last command above failed: exit status {done.returncode}"
        assert (clone / "build/run/report.html").stat().st_size > 10000, "make run wrote no report"
        shown = rows("".join(blocks("README.md", "text")))
        assert shown and shown == rows(done.stdout), f"README's table shows {shown}, make run printed {rows(done.stdout)}"
    quickstart = (ROOT / "examples/pytorch/quickstart.py").read_text().splitlines()
    for line in "".join(blocks("README.md", "python")).splitlines():
        assert line in quickstart, f"examples/pytorch/quickstart.py lacks README's line: {line}"
    assert sum(len(blocks(page, "sh")) for page in PAGES) >= 5
    print(f"{', '.join(PAGES)}: every command can be pasted")


if __name__ == "__main__":
    sys.exit(main())
