#!/usr/bin/env bash
# The same bytes on every machine: check_cross.sh NATIVE_CROSS SOURCE WORK [XXHASH_INCLUDE]
# Builds the library and cross.c for aarch64 under WORK, runs them and the native build under emulated
# processors, and compares digests. Also sees which instruction set each processor is given.
set -euo pipefail
native=$1 source=$2 work=$3 xxhash=${4:-/usr/include}
compiler=aarch64-linux-gnu-gcc

skip() { echo "skip: $1"; exit 77; }
fail() { echo "cross: $1" >&2; exit 1; }
[ "$(uname -m)" = x86_64 ] || skip "this host is $(uname -m), not x86_64"
for tool in $compiler qemu-aarch64 qemu-x86_64; do
    command -v $tool >/dev/null || skip "no $tool"
done
[ -r "$xxhash/xxhash.h" ] || skip "no xxhash.h in $xxhash"
echo 'int main(void) { return 0; }' | $compiler -static -x c - -o /dev/null 2>/dev/null ||
    skip "$compiler cannot link: no libc6-dev-arm64-cross?"

# No BLAS there: the host's is not for another machine. xxhash is all header here, but the host's include
# folder is not for another machine's compiler.
mkdir -p "$work/include"
cp "$xxhash/xxhash.h" "$work/include/"
printf 'Name: libxxhash\nDescription: headers\nVersion: 0.8.0\nCflags: -I%s\n' "$work/include" >"$work/libxxhash.pc"
PKG_CONFIG_LIBDIR=$work cmake -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DGRADWIRE_CLI=OFF \
    -DGRADWIRE_BLAS=OFF -DGRADWIRE_WERROR=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=$compiler \
    >"$work/configure.log" 2>&1 || { cat "$work/configure.log"; fail "cannot configure for aarch64"; }
cmake --build "$work/build" --target gradwire_static >"$work/build.log" 2>&1 ||
    { cat "$work/build.log"; fail "cannot build for aarch64"; }
$compiler -static -std=c11 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -ffp-contract=off \
    -I"$source/include" -I"$source/src" -I"$source/tests" -isystem "$work/include" \
    "$source/tests/cross/cross.c" "$work/build/src/libgradwire.a" -lpthread -lm -o "$work/cross-aarch64"

# digests NAME COMMAND…: into WORK/NAME; a crash or an empty answer is a failure.
digests() {
    local name=$1
    shift
    "$@" >"$work/$name" 2>"$work/$name.err" || { cat "$work/$name.err" >&2; fail "$name: $* failed"; }
    grep -q '^cases [1-9]' "$work/$name" || fail "$name said nothing"
}
# same NAME [ISA]: digests as the native scalar code's; codecs with vector loops took ISA.
same() {
    diff <(cut -d ' ' -f 1,3- "$work/scalar") <(cut -d ' ' -f 1,3- "$work/$1") >&2 ||
        fail "$1 differs from scalar C on this machine"
    if [ $# -gt 1 ]; then
        awk -v isa="$2" '$3 ~ /^(cast|natural|ndither|dither|sign|topk|adacomp)(:|$)/ { n++; wrong += $2 != isa }
            END { exit n == 0 || wrong != 0 }' "$work/$1" || fail "$1 should run $2"
    fi
    echo "$1: the same, ${2:+by $2, }$(tail -n 1 "$work/$1")"
}
picks() {
    local want=$1 got
    shift
    got=$("$@" --picks 2>/dev/null)
    [ "$got" = "$want" ] || fail "auto on $*: $got, not $want"
}

arm="qemu-aarch64 $work/cross-aarch64"
nehalem="qemu-x86_64 -cpu Nehalem $native"
haswell="qemu-x86_64 -cpu Haswell $native"
echo "lowrank is left out: its products are BLAS's, and there is none for aarch64 here"
digests scalar "$native" --isa scalar
! grep -q ' lowrank' "$work/scalar" || fail "lowrank should have been left out"
digests native "$native"
digests native-odd-floats "$native" --odd-floats
digests aarch64 $arm --odd-floats
digests aarch64-scalar $arm --isa scalar
digests nehalem $nehalem
digests haswell $haswell
same native "$("$native" --picks)"
same native-odd-floats "$("$native" --picks)"
same aarch64 neon
same aarch64-scalar scalar
same nehalem scalar
same haswell avx2

picks scalar qemu-x86_64 -cpu Haswell,-f16c "$native" # AVX2 without the halves' conversions is not enough
picks scalar qemu-x86_64 -cpu SandyBridge "$native"
# By name, what a processor lacks is refused in words, never run, never replaced.
refused() {
    local status=0
    "$@" >/dev/null 2>"$work/refused.err" || status=$?
    [ $status -eq 3 ] || { cat "$work/refused.err" >&2; fail "$*: exit $status, not the 3 of unsupported"; }
}
refused $haswell --isa avx512
refused $haswell --isa neon
refused $nehalem --isa avx2
refused $arm --isa avx2
echo "auto takes what runs; what does not is refused"
