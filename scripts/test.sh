#!/usr/bin/env bash
# All tests: under the sanitizers first, then as users build, by both compilers; the last summary is
# the whole suite's.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)

build() {
    echo "== build $1"
    cmake --preset "$1" >/dev/null
    cmake --build "build/$1"  | grep -E 'warning|error|FAILED' || true
    cmake --build "build/$1" >/dev/null
}
# The reason of every skip stands in its output.
suite() {
    local preset=$1
    shift
    echo "== test $preset"
    local failed=0
    (cd "build/$preset" && ctest -j "$jobs" --output-on-failure --no-tests=error "$@") || failed=1
    grep -h '^skip:' "build/$preset/Testing/Temporary/LastTest.log" || true
    return $failed
}

build dev-clang
build asan-ubsan
suite asan-ubsan -LE house -E '^trainer/train-profile$' # which measures for most of a minute, whatever the build
build tsan
suite tsan -R '^(base/pool|codec/random_cases|codec/threads|comm/threads|coll/routes|step/.*|trainer/training)$'
build dev
suite dev
