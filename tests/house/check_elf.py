#!/usr/bin/env python3
"""How our programs and libraries are linked: check_elf.py CC FOLDER [HARDENED_FOLDER...]

No ELF file under FOLDER may have a RUNPATH entry that is empty or relative: the loader would take libraries from the
current directory. $ORIGIN is the file's own folder. Files under the other folders also have what a release is built
with: stack protector, FORTIFY, full RELRO, BIND_NOW, and programs are position-independent.

Before that, the same judge must find the faults of small files that are built to have them.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

# what is wrong -> flags of the compiler, for CONTROL
GOOD = ["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-fPIE", "-pie", "-Wl,-z,relro,-z,now"]
PLANTED = {
    "empty RUNPATH": ["-Wl,-rpath,/usr/lib:"],
    "empty RUNPATH in the middle": ["-Wl,-rpath,/usr/lib::/lib"],
    "relative RUNPATH": ["-Wl,-rpath,lib"],
    "relative RPATH": ["-Wl,--disable-new-dtags,-rpath,./lib"],
    "no stack protector": ["-fno-stack-protector"],
    "no FORTIFY": ["-U_FORTIFY_SOURCE"],
    "no RELRO": ["-Wl,-z,norelro"],
    "no BIND_NOW": ["-Wl,-z,lazy"],
    "no PIE": ["-fno-pie", "-no-pie"],
}
PROGRAM = """#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    char text[64];
    strcpy(text, argv[argc - 1]);
    return printf("%s", text) < 0;
}
"""


def readelf(path, *flags):
    return subprocess.run(["readelf", "-W", *flags, path], check=True, capture_output=True, text=True).stdout


def bad_paths(dynamic):
    lists = re.findall(r"\((?:RUNPATH|RPATH)\)\s+Library r(?:un)?path: \[(.*)\]", dynamic)
    return [f"RUNPATH entry '{entry}' in [{entries}]" for entries in lists for entry in entries.split(":")
            if not re.match(r"/|\$ORIGIN\b|\$\{ORIGIN\}", entry)]


def not_hardened(path, dynamic):
    symbols = set(re.findall(r"(__\w+_chk\w*)", readelf(path, "--dyn-syms")))
    wanted = {
        "stack protector": "__stack_chk_fail" in symbols,
        "FORTIFY": bool(symbols - {"__stack_chk_fail"}),
        "RELRO": "GNU_RELRO" in readelf(path, "-l"),
        "BIND_NOW": bool(re.search(r"\(FLAGS(_1)?\).*\b(BIND_NOW|NOW)\b", dynamic)),
        "PIE": "INTERP" not in readelf(path, "-l") or bool(re.search(r"\(FLAGS_1\).*\bPIE\b", dynamic)),
    }
    return [f"no {name}" for name, there in wanted.items() if not there]


def is_elf(path):
    if path.is_symlink() or not path.is_file() or "CMakeFiles" in path.parts or path.suffix in (".o", ".a"):
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def control(compiler):
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "program.c"), pathlib.Path(folder, "program")
        source.write_text(PROGRAM)
        for what, flags in {"": ["-Wl,-rpath,/usr/lib:$ORIGIN/../lib"], **PLANTED}.items():
            subprocess.run([compiler, *GOOD, *flags, source, "-o", program], check=True)
            dynamic = readelf(program, "-d")
            found = bad_paths(dynamic) + not_hardened(program, dynamic)
            assert len(found) == (what != ""), f"planted: {what or 'nothing'}; found: {found}"
    print(f"{len(PLANTED)} planted faults are found")


def elf_files(folders):
    return [path for folder in folders for path in sorted(pathlib.Path(folder).rglob("*")) if is_elf(path)]


def main():
    compiler, folder, *hardened_folders = sys.argv[1:]
    control(compiler)
    files, hardened = elf_files([folder]), elf_files(hardened_folders)
    assert files and bool(hardened) == bool(hardened_folders), f"no ELF file in {folder} or in {hardened_folders}"
    wrong = [f"{path}: {fault}" for path in files for fault in bad_paths(readelf(path, "-d"))]
    wrong += [f"{path}: {fault}" for path in hardened for fault in not_hardened(path, readelf(path, "-d"))]
    assert not wrong, "\n" + "\n".join(wrong)
    print(f"{len(files)} ELF files: no RUNPATH through the current directory; {len(hardened)} hardened")


if __name__ == "__main__":
    main()
