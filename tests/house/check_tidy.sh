#!/usr/bin/env bash
# clang-tidy, warnings are errors, over what a build's compile_commands.json lists. One file an invocation:
# given several, version 14 reports va_list errors that are not there.
set -euo pipefail
build=$1 source=$2
tool=$(command -v clang-tidy-14 || true)
[ -n "$tool" ] || { echo "skip: no clang-tidy-14"; exit 77; }
# A file that two programs share is looked at once.
mkdir -p "$build/tidy"
files=$(python3 -c '
import json, sys
once = {e["file"]: e for e in json.load(open(sys.argv[1] + "/compile_commands.json")) if e["file"].endswith(".c")}
json.dump(list(once.values()), open(sys.argv[1] + "/tidy/compile_commands.json", "w"))
print("\n".join(sorted(once)))' "$build")
cd "$source"
# The analyzer takes most of the time. It leaves tests out, since it takes every assertion for one that may go on, and
# looks at a third of its usual states: its own shallow mode has as many.
export tool build source
echo "$files" | xargs -P "$(nproc)" -n 1 bash -c '
    checks=$([[ $0 != "$source"/tests/* ]] || echo "--checks=-clang-analyzer-*")
    "$tool" --quiet $checks -p "$build/tidy" \
        --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=75000 "$0" 2>/dev/null'
echo "$(wc -l <<<"$files") files are tidy"
