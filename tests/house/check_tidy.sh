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
# Not by the analyzer, which takes most of the time, what is in tests: it takes every assertion for one that may go on.
export tool build source
echo "$files" | xargs -P 2 -n 1 bash -c '
    checks=$([[ $0 != "$source"/tests/* ]] || echo "--checks=-clang-analyzer-*")
    "$tool" --quiet $checks -p "$build/tidy" "$0" 2>/dev/null'
echo "$(wc -l <<<"$files") files are tidy"
