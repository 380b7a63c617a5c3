#!/usr/bin/env python3
"""Every exported function is called with NULL for its pointers: no crash, and an error where NULL is not allowed.

null_calls.py generate OUT.c HEADER... [-- OTHER_HEADER...]   writes the calls of the functions that the headers declare
null_calls.py check PROGRAM LIBRARY                           runs them, and compares them with what the library exports

For each function: one call with every pointer NULL, then one call for each pointer, with that pointer NULL and valid
values for the rest (null_values.h makes them). A NULL handle and a NULL output must be refused, unless OPTIONAL names them.
"""

import pathlib
import re
import subprocess
import sys

# Pointers that may be NULL, and why: "function" for a call with every pointer NULL, "function parameter" for one.
OPTIONAL = {
    "gw_hosted_destroy": "destroying nothing succeeds",
    "gw_step_wait result": "documented: the result need not be asked for",
    "gw_feedback_load told": "documented: may be NULL",
    "gw_feedback_heirs ranks": "documented: with NULL it only counts",
    "gw_feedback_begin after": "documented: in place there is no second buffer",
    "gw_encode report": "documented: the report need not be asked for",
    "gw_encode_feedback report": "documented: the report need not be asked for",
}
# Scalars for which 1 is not a valid value of this test's handles.
ZERO = {"rank", "new_rank", "root", "layer", "member", "index", "user", "tensor", "round", "wire_id", "colour", "retire", "slot", "first"}
STEPS = {"gw_step_adapt_": "a_gw_step_that_adapts()", "gw_step_auto_": "a_gw_step_on_auto()"}
ANY_POINTER = {"gw_request", "MPI_Comm"}  # typedefs of pointers


def strip(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def opaque_types(texts):
    named = set(re.findall(r"typedef struct (\w+) \1;", texts))
    return named - set(re.findall(r"struct (\w+) \{", texts))


def functions(text):
    for match in re.finditer(r"GW_API\s+([^;{]*?)\b(gw_\w+)\s*\(([^;{]*)\)\s*;", strip(text), re.S):
        returns, name, inside = (" ".join(part.split()) for part in match.groups())
        parameters = []
        for one in inside.split(",") if inside not in ("void", "") else []:
            kind, label, array = re.fullmatch(r"(.*?)(\w+)\s*(\[.*\])?", one.strip()).groups()
            parameters.append((kind.strip() + ("*" if array else ""), label))
        yield returns, name, parameters


def base_of(kind):
    return re.sub(r"\bconst\b|\*|\bstruct\b", "", kind).strip()


def is_pointer(kind):
    return kind.endswith("*") or kind in ANY_POINTER


def valid(kind, label, place, opaque, makers):
    """An expression for a value that a correct caller might give."""
    base, stars = base_of(kind), kind.count("*")
    if kind == "MPI_Comm":
        return "MPI_COMM_SELF"
    if kind == "gw_request" or label == "id":
        return None  # nothing is under way
    if stars == 1 and base in makers:
        return f"a_{base}()"
    if stars == 1 and base in opaque:
        return None  # nothing here can make one: a device, say
    if stars == 1 and base == "char" and "const" in kind:
        return '"natural:bits=8"'
    if stars >= 1:
        return f"(void *)a_place({place})"
    if base in makers:
        return f"a_{base}()"
    if base.startswith("gw_") and base not in ("gw_status", "gw_dtype", "gw_isa", "gw_apply", "gw_feedback_mode") and base in STRUCTS:
        return f"({base}){{0}}"
    return f"({base})0" if label in ZERO else f"({base})1"


def must_refuse(kind, label, opaque):
    """A handle or an output."""
    base = base_of(kind)
    if not kind.endswith("*") or base == "gw_why" or (base == "void" and "const" not in kind and label in ("stream", "context")):
        return False
    return base in opaque or base == "gw_comm" or "const" not in kind or kind.count("*") > 1


def call_of(number, returns, name, arguments):
    call = f"{name}({', '.join(arguments)})"
    body = f"return {call} == GW_OK;" if returns == "gw_status" else f"(void){call}; return 0;"
    return f"static int call_{number}(void)\n{{\n    {body}\n}}\n"


STRUCTS = set()


def generate(out, headers, others):
    here = pathlib.Path(__file__).parent
    texts = strip("\n".join(pathlib.Path(h).read_text() for h in headers + others))
    makers = set(re.findall(r"\ba_(gw_\w+)\(void\)", (here / "null_values.h").read_text()))
    opaque = opaque_types(texts)
    STRUCTS.update(re.findall(r"typedef struct (\w+)", texts))
    calls, table, names = [], [], []
    for header in headers:
        for returns, name, parameters in functions(pathlib.Path(header).read_text()):
            pointers = [label for kind, label in parameters if is_pointer(kind)]
            is_status = returns == "gw_status"
            values = [valid(kind, label, i, opaque, makers) for i, (kind, label) in enumerate(parameters)]
            for family, maker in STEPS.items():
                if name.startswith(family) and "_begin" not in name:
                    values = [v.replace("a_gw_step()", maker) if v else v for v in values]
            names.append(name)

            def add(nulls, what, refuse):
                arguments = ["NULL" if label in nulls or value is None else value
                             for (kind, label), value in zip(parameters, values)]
                arguments = ["MPI_COMM_NULL" if a == "NULL" and kind == "MPI_Comm" else a
                             for a, (kind, _) in zip(arguments, parameters)]
                table.append(f'    {{"{name}", "{what}", call_{len(calls)}, {int(refuse and is_status)}}},')
                calls.append(call_of(len(calls), returns, name, arguments))

            refused = [label for kind, label in parameters if must_refuse(kind, label, opaque)]
            add(pointers, "every pointer", bool(refused) and name not in OPTIONAL)
            for label in pointers if len(pointers) > 1 else []:
                add([label], label, label in refused and f"{name} {label}" not in OPTIONAL)
    stale = [entry for entry in OPTIONAL if entry.split()[0] not in names] if others == [] else []
    if stale:
        sys.exit(f"OPTIONAL names functions that are not there: {stale}")
    text = "/* Generated by tests/house/null_calls.py. */\n" + "".join(
        f"#include <gradwire/{pathlib.Path(h).name}>\n" for h in headers + others)
    text += '#include "house/null_values.h"\n\n' + "\n".join(calls)
    text += "\nstatic const null_call CALLS[] = {\n" + "\n".join(table) + "\n};\n"
    text += "\nint main(int argc, char **argv)\n{\n    return null_calls_run(CALLS, sizeof CALLS / sizeof *CALLS, argc, argv);\n}\n"
    pathlib.Path(out).write_text(text)


def check(program, library):
    listed = set(subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split())
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[2] for line in symbols.splitlines() if line.split()[1] == "T"}
    if exported - listed:
        print("exported, but not called here:", *sorted(exported - listed))
        return 1
    return subprocess.run([program]).returncode


if __name__ == "__main__":
    if sys.argv[1] == "generate":
        cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
        generate(sys.argv[2], sys.argv[3:cut], sys.argv[cut + 1:])
    else:
        sys.exit(check(*sys.argv[2:]))
