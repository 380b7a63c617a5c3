#!/usr/bin/env bash
# Builds and runs tests: scripts/test.sh check|test|all
#   check  house checks and quick tests: no root, no torch
#   test   those, then the slow ones: the whole functional suite, from the same build
#   all    the rest: clang with its sanitizers, emulated processors, the second MPI, browsers, torch from PyPI
# Which test is in which tier, and its time limit: tests/tiers.cmake. What may be skipped: tests/skips.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
what=${1:-}
results=$PWD/build/results/$what
failed=0

# build PRESET [cmake --build's arguments…]
build() {
    local preset=$1
    shift
    echo "== build $preset"
    cmake --preset "$preset" >/dev/null
    if [ -t 1 ]; then
        cmake --build "build/$preset" "$@"
    elif ! cmake --build "build/$preset" "$@" >"build/$preset.log" 2>&1; then
        grep -E -A 20 'error|FAILED' "build/$preset.log" | head -n 60
        exit 1
    fi
}
# suite NAME PRESET [ctest's arguments…]
suite() {
    local name=$1 preset=$2
    shift 2
    echo "== test $name"
    (cd "build/$preset" && ctest -j "$jobs" --output-on-failure --no-tests=error --test-output-size-passed 1000000 \
        --output-junit "$results/$name.xml" "$@") || failed=1
}
check() {
    build dev
    suite check dev -LE '^(slow|all)$'
}

case $what in
check | test | all) rm -rf "$results" && mkdir -p "$results" ;;
*) echo "usage: scripts/test.sh check|test|all" >&2; exit 2 ;;
esac
case $what in
check) check ;;
test)
    check
    suite slow dev -L '^slow$'
    ;;
all)
    build dev
    suite all dev -L '^all$'
    build asan-ubsan
    suite asan-ubsan asan-ubsan -LE '^house$' -E '^trainer/train-profile$' # which measures for most of a minute
    build tsan --target threaded_tests
    suite tsan tsan -L '^threads$'
    scripts/torch2.sh | tee "$results/torch2.log" || failed=1
    ;;
esac
python3 scripts/summary.py tests/skips.txt "$results"/* || failed=1
exit $failed
