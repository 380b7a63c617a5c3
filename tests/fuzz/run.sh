#!/usr/bin/env bash
# Runs every fuzz target of a build for some seconds, one after the other, from a copy of its corpus:
#     tests/fuzz/run.sh BUILD_DIR SECONDS [TARGET...]
# Prints what each did; exit 1 if one of them found something. KEEP=DIR keeps the grown corpora there.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,4s/^# \?//p' "$0"; exit 2; }
build=$1 seconds=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- frame decode encode spec npy safetensors run job checkpoint route
work=$(mktemp -d)
failed=0
printf '%-12s %12s %9s %9s %9s %s\n' target executions coverage inputs findings artifacts
for target; do
    program=$build/tests/fuzz/fuzz_$target
    [ -x "$program" ] || { echo "$program is not there: cmake --preset fuzz && cmake --build build/fuzz"; exit 2; }
    mkdir -p "$work/$target" "$work/$target-found"
    cp -r "$here/corpus/$target/." "$work/$target"
    status=0
    "$program" "$work/$target" -max_total_time="$seconds" -max_len=4400 -timeout=10 -report_slow_units=1000 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$work/$target-found/" >"$work/$target.log" 2>&1 || status=$?
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target.log")
    coverage=$(sed -n 's/^#[0-9]*\t.* cov: \([0-9]*\) .*/\1/p' "$work/$target.log" | tail -1)
    findings=$(find "$work/$target-found" -type f | wc -l)
    where=-
    if [ "$status" -ne 0 ] || [ "$findings" -ne 0 ] || [ -z "$executions" ]; then
        failed=1
        where="$work/$target-found $work/$target.log (exit $status)"
    fi
    printf '%-12s %12s %9s %9s %9s %s\n' "$target" "${executions:--}" "${coverage:--}" \
        "$(find "$work/$target" -type f | wc -l)" "$findings" "$where"
    if [ -n "${KEEP:-}" ]; then
        mkdir -p "$KEEP/$target"
        cp -r "$work/$target/." "$KEEP/$target"
    fi
done
[ "$failed" -ne 0 ] || rm -rf "$work"
exit "$failed"
