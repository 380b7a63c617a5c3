#!/usr/bin/env bash
# A build can leave codecs out: the command then does not know them, and a name that is none is an error.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake -S "$source" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DGRADWIRE_CUDA=OFF "-DGRADWIRE_CODECS=cast;natural" >/dev/null
cmake --build "$work" >/dev/null
[ "$("$work/cli/gradwire" codec list --json | grep -c '"id"')" -eq 2 ]
if "$work/cli/gradwire" inspect --generate 10 -c adacomp 2>"$work/said"; then
    echo "adacomp is left out, and runs"
    exit 1
fi
grep -q "no codec named 'adacomp'" "$work/said"
if cmake -S "$source" -B "$work/wrong" -G Ninja "-DGRADWIRE_CODECS=cast;zip" >/dev/null 2>&1; then
    echo "a codec that is none was accepted"
    exit 1
fi
echo "builds without some codecs"
