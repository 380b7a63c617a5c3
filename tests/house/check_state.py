#!/usr/bin/env python3
"""Law 8: no global state, no printing, no environment: check_state.py LIBRARY... | --control COMPILER

Reads the symbols of static and shared libraries. A writable variable that is not in ALLOWED is a fault, and so is a
function that prints, reads the environment, or keeps state of its own. --control plants each kind.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

# (source file, variable): why it may be there
ALLOWED = {
    ("cpu.c", "known"): "the features of this processor: computed once, the same value whichever thread writes it",
}
RUNTIME = {"completed", "__dso_handle", "__TMC_END__", "__cpu_model", "__cpu_features2"}  # the compiler's own
WRITABLE = re.compile(r"^(\.data|\.bss|\.tdata|\.tbss|\*COM\*|\.lbss|\.ldata)(?!\.rel\.ro)")
FORBIDDEN = re.compile(
    r"^(_*(v?printf|v?dprintf|puts|putchar|perror|psignal|v?syslog|vwarnx?|warnx?|verrx?|errx?)(_chk)?"
    r"|stdout|stderr|stdin|__assert_fail"  # printing
    r"|getenv|secure_getenv|setenv|putenv|unsetenv|_*environ"  # the environment
    r"|rand|srand|random|srandom|[dlm]rand48|strtok|setlocale|localtime|gmtime|ctime|asctime)(@.*)?$")  # libc's own state


def variables(library):
    """(source file, name, section) of every object in a section that can be written."""
    member = ""
    for line in subprocess.run(["objdump", "-t", library], check=True, capture_output=True, text=True).stdout.splitlines():
        header = re.match(r"(\S+):\s+file format", line)
        symbol = re.match(r"[0-9a-f]+ (.{7}) (\S+)\s+[0-9a-f]+\s+(?:\.hidden )?(\S+)$", line)
        if header:
            member = re.sub(r"\.o$", "", pathlib.Path(header.group(1)).name)
        if not symbol:
            continue
        flags, section, name = symbol.groups()
        if "df" in flags:
            member = name
        elif (flags[6] == "O" or section.startswith(".t")) and "d" not in flags and WRITABLE.match(section):
            yield member, name, section


def faults_of(library):
    found = []
    for member, name, section in variables(library):
        words = name.split(".")  # known.0 by gcc, function.known by clang
        if not RUNTIME & set(words) and not any((member, word) in ALLOWED for word in words):
            found.append(f"{library}: {member}: the variable {name} can be written ({section})")
    undefined = subprocess.run(["nm", "-u", library], check=True, capture_output=True, text=True).stdout
    for name in sorted(set(re.findall(r"^\s+[Uw] (\S+)$", undefined, re.M))):
        if FORBIDDEN.match(name):
            found.append(f"{library} uses {name}")
    return found


PLANTED = {
    "calls": "static int calls; int gw_planted(void) { return ++calls; }",
    "ready": "static int ready = 1; int gw_planted(void) { return ready++; }",
    "mine": "static __thread int mine; int gw_planted(void) { return ++mine; }",
    "shown": "int shown; int gw_planted(void) { return shown; }",
    "printf": '#include <stdio.h>\nint gw_planted(int x) { return printf("%d", x); }',
    "stderr": '#include <stdio.h>\nint gw_planted(int x) { return fprintf(stderr, "%d", x); }',
    "getenv": '#include <stdlib.h>\nchar *gw_planted(void) { return getenv("HOME"); }',
    "rand": "#include <stdlib.h>\nint gw_planted(void) { return rand(); }",
}
INNOCENT = '#include <stdio.h>\nstatic const char *const table[] = {"a", "b"};\n' \
           'int gw_planted(char *text, int i) { return snprintf(text, 9, "%s", table[i]); }'


def build(compiler, folder, name, text):
    (folder / f"{name}.c").write_text(text + "\n")
    library = folder / f"{name}.a"
    shared = folder / f"{name}.so"
    subprocess.run([compiler, "-O1", "-fPIC", "-c", f"{name}.c"], check=True, cwd=folder)
    subprocess.run(["ar", "rcs", library, f"{name}.o"], check=True, cwd=folder)
    subprocess.run([compiler, "-shared", f"{name}.o", "-o", shared], check=True, cwd=folder)
    return str(library), str(shared)


def control(compiler):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, text in PLANTED.items():
            for library in build(compiler, folder, f"planted_{name}", text):
                faults = faults_of(library)
                assert len(faults) == 1 and re.search(rf"\b{name}\b", faults[0]), (library, faults)
        for library in build(compiler, folder, "innocent", INNOCENT):
            assert not faults_of(library), faults_of(library)
    print(f"{len(PLANTED)} planted faults are seen")


def main():
    if sys.argv[1] == "--control":
        control(sys.argv[2])
        return
    faults = [fault for library in sys.argv[1:] for fault in faults_of(library)]
    assert not faults, "\n".join(faults)
    print(f"{len(sys.argv) - 1} libraries: {len(ALLOWED)} variable, which is allowed; no printing, no environment")


if __name__ == "__main__":
    main()
