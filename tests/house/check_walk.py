#!/usr/bin/env python3
"""The walk of a gradient in host memory is what src/README.md says: check_walk.py BUILD LINK... [--control]

Compiles the sources anew, to count the lines that run, and lets two ranks make one step of natural:bits=8 along sra and
gather. Between gw_step_post and gw_step_wait
- no line of device code runs;
- the source files that run, but those of base/ and comm/, are those of the table "The walk, file by file" of src/README.md;
- those of step/, coll/ and the codec have fewer than MOST_LINES lines of code, all together fewer than MOST_IN_ALL.
LINK are the libraries that the program needs. --control plants a call of device code, and a table without one of its files,
and expects both to be seen.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Rooms on the walk that have a description of their own.
BESIDE = ("src/base/", "src/comm/")
# Code that belongs to devices alone.
DEVICE = re.compile(r"^src/device/|/device_|/cuda")
# Lines that are neither blank nor comment only: of what a reader must read, and with what these files call in other rooms.
MOST_LINES, MOST_IN_ALL = 1500, 2050
READ = ("src/step/", "src/coll/", "src/codec/natural/")
ROW = re.compile(r"^\| `(src/[^`]+)` \|", re.M)
# --control: a call of device code in the middle of the walk
PLANTED = ("src/coll/bundle.c", "    gw_bundle *b = gw_bundle_begin(x, m);\n", "    gw_bundle *b = gw_bundle_begin(x, m);\n    (void)gw_cuda_has(NULL, x->config.params.codec);\n")


def tools():
    """The compiler of the build and its gcov."""
    compiler = shutil.which("gcc")
    if compiler is None:
        print("skip: no gcc")
        sys.exit(77)
    version = subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True, check=True).stdout.strip().split(".")[0]
    gcov = shutil.which(f"gcov-{version}") or shutil.which("gcov")
    if gcov is None:
        print("skip: no gcov")
        sys.exit(77)
    return compiler, gcov


def entries(build):
    """What the library is made of, but base/, comm/ and variants for instruction sets, which the program does not ask for."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
        ours = "gradwire_objects.dir" in entry["command"] and name.startswith("src/") and name.endswith(".c")
        if ours and not name.startswith(BESIDE) and not re.search(r"_(avx2|avx512|neon)\.c$", name):
            yield name, entry


def compile_one(compiler, entry, source, target):
    words = shlex.split(entry["command"])
    while pathlib.Path(words[0]).name == "ccache":
        words = words[1:]
    at = words.index("-o")
    del words[at:at + 2]
    del words[words.index("-c"):]
    flags = [w for w in words[1:] if not re.match(r"-(O|g|W|flto|DNDEBUG)", w)]
    subprocess.run([compiler, *flags, "-O0", "--coverage", "-c", str(source), "-o", str(target)], check=True, cwd=target.parent)


def compile_all(compiler, build, folder):
    """Objects by source file; those that are newer than every header and their own source stay."""
    newest = max(p.stat().st_mtime for p in [*(ROOT / "src").rglob("*.h"), *(ROOT / "include").rglob("*.h"), build / "compile_commands.json"])
    objects, work = {}, []
    for name, entry in entries(build):
        target = folder / (name.replace("/", "-")[:-2] + ".o")
        objects[name] = target
        if not target.exists() or target.stat().st_mtime < max(newest, (ROOT / name).stat().st_mtime):
            work.append((entry, ROOT / name, target))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda w: compile_one(compiler, *w), work))
    return objects


def lines_run(compiler, gcov, build, folder, objects, link):
    """Source file, relative to the root -> the lines that ran."""
    program = folder / "walk"
    for stale in folder.glob("*.gcda"):
        stale.unlink()
    subprocess.run([compiler, "-std=c11", "-O0", "--coverage", f"-I{ROOT / 'include'}", str(ROOT / "tests/house/walk.c"), *map(str, objects),
                    str(build / "src/libgradwire.a"), *link, "-o", str(program)], check=True, cwd=folder)
    subprocess.run([str(program)], check=True, cwd=folder, timeout=60)
    counts = [str(p) for p in sorted(folder.glob("src-*.gcda"))]
    assert counts, "the program counted nothing"
    out = subprocess.run([gcov, "--json-format", "--stdout", *counts], check=True, cwd=folder, capture_output=True, text=True).stdout
    ran = {}
    for record in map(json.loads, filter(None, out.splitlines())):
        for file in record["files"]:
            path = pathlib.Path(record["current_working_directory"], file["file"]).resolve()
            lines = {line["line_number"] for line in file["lines"] if line["count"] > 0}
            if lines and path.is_relative_to(ROOT / "src"):
                ran.setdefault(str(path.relative_to(ROOT)), set()).update(lines)
    return ran


def code_lines(text):
    """Neither blank nor comment only."""
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", "", m.group()), text, flags=re.S)
    return sum(1 for line in text.splitlines() if line.strip())


def faults_of(ran, table):
    faults = [f"{name}: lines {sorted(lines)[:8]} of device code run" for name, lines in sorted(ran.items()) if DEVICE.search(name)]
    walk = {name for name in ran if not name.startswith(BESIDE) and not DEVICE.search(name)}
    faults += [f"{name} runs, and the table of src/README.md does not name it" for name in sorted(walk - set(table))]
    faults += [f"{name} is in the table of src/README.md, and does not run" for name in sorted(set(table) - walk)]
    return faults


def plant(compiler, build, folder, objects):
    name, text, fault = PLANTED
    source = (ROOT / name).read_text()
    assert source.count(text) == 1, f"{name} has no longer the place for the planted call"
    copy, target = folder / "planted.c", folder / "planted.o"
    copy.write_text(source.replace(text, fault))
    compile_one(compiler, dict(entries(build))[name], copy, target)
    return [target if o == objects[name] else o for o in objects.values()]


def main():
    control = "--control" in sys.argv
    build, *link = [a for a in sys.argv[1:] if a != "--control"]
    build = pathlib.Path(build).resolve()
    compiler, gcov = tools()
    folder = build / "walk"
    folder.mkdir(exist_ok=True)
    objects = compile_all(compiler, build, folder)
    table = ROW.findall((ROOT / "src/README.md").read_text())
    if control:
        ran = lines_run(compiler, gcov, build, folder, plant(compiler, build, folder, objects), link)
        assert any("device code" in fault for fault in faults_of(ran, table)), "a planted call of device code was not seen"
        ran = lines_run(compiler, gcov, build, folder, objects.values(), link)
        for name in table:
            assert any(name in fault for fault in faults_of(ran, [t for t in table if t != name])), f"{name}, taken out of the table, was not missed"
        assert faults_of(ran, [*table, "src/step/agree.c"]), "a file that does not run was not seen"
        print("a call of device code and a missing file are seen")
        return
    ran = lines_run(compiler, gcov, build, folder, objects.values(), link)
    texts = {name: (ROOT / name).read_text() for name in sorted(ran) if not name.startswith(BESIDE)}
    for name, text in texts.items():
        print(f"{name}: {len(text.splitlines())} lines, {code_lines(text)} of code, {len(ran[name])} run")
    faults = faults_of(ran, table)
    for what, names, most in (("step, coll and the codec", [n for n in texts if n.startswith(READ)], MOST_LINES), ("all", texts, MOST_IN_ALL)):
        lines, code = sum(len(texts[n].splitlines()) for n in names), sum(code_lines(texts[n]) for n in names)
        print(f"{what}: {len(names)} files, {lines} lines, {code} of code, {sum(len(ran[n]) for n in names)} run")
        if code >= most:
            faults.append(f"{what}: {code} lines of code, not fewer than {most}")
    assert not faults, "the walk is not what src/README.md says:\n  " + "\n  ".join(faults)


if __name__ == "__main__":
    main()
