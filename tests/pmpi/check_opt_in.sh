#!/usr/bin/env bash
# check_opt_in.sh PROGRAM LIBRARY: a solver that needs exact sums. Without a codec the preload changes no bit of it and says so
# once; with one, rank 0 says what is compressed, and the solver reports a convergence that is not true.
set -euo pipefail
program=$1 library=$2
command -v mpirun.openmpi >/dev/null || { echo "skip: no mpirun.openmpi here"; exit 77; }
[[ $(ldd "$program") == *libmpi.so* ]] || { echo "skip: built for another MPI"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$*"; cat "$folder"/*; exit 1; }
# run NAME [FLAG...]: stdout and stderr in NAME.out, NAME.err
run() {
    local name=$1
    shift
    timeout 120 mpirun.openmpi --allow-run-as-root --oversubscribe -np 4 --mca btl vader,self "$@" "$program" \
        >"$folder/$name.out" 2>"$folder/$name.err" || fail "$name: the program fails"
}
said() { grep -c '^gradwire:' "$folder/$1.err" || true; }
# the two residuals of the program's line
residuals() { sed -n 's/.*own residual \([0-9.e+-]*\), true residual \([0-9.e+-]*\)$/\1 \2/p' "$folder/$1.out"; }

run plain
run no-codec -x LD_PRELOAD="$library"
run empty -x LD_PRELOAD="$library" -x GRADWIRE_PMPI_SPEC= -x GRADWIRE_PMPI_MIN_BYTES=4
run codec -x LD_PRELOAD="$library" -x GRADWIRE_PMPI_SPEC=natural:bits=8
run few -x LD_PRELOAD="$library" -x GRADWIRE_PMPI_SPEC=natural:bits=8 -x GRADWIRE_PMPI_MIN_BYTES=2000000
for name in plain codec; do head -1 "$folder/$name.out" | sed "s/^/$name: /"; done
residuals plain | awk '{ exit !($1 < 1e-4 && $2 < 2e-4) }' || fail "plain: the solver itself is wrong"

for name in no-codec empty; do
    cmp "$folder/plain.out" "$folder/$name.out" || fail "$name: the preload changed what it was not asked to change"
    [ "$(said $name)" -eq 1 ] || fail "$name: $(said $name) lines instead of one"
    grep -q '^gradwire: preload: .*GRADWIRE_PMPI_SPEC' "$folder/$name.err" || fail "$name: how to turn it on is not said"
done
grep '^gradwire:' "$folder/no-codec.err"

[ "$(said codec)" -eq 1 ] || fail "codec: $(said codec) lines instead of one"
for word in MPI_Allreduce MPI_FLOAT MPI_SUM '1048576 bytes' natural:bits=8 "route: as its nodes need it"; do
    grep -q "^gradwire: preload: .*$word" "$folder/codec.err" || fail "the line at start does not name $word"
done
grep '^gradwire:' "$folder/codec.err"
cmp -s "$folder/plain.out" "$folder/few.out" || fail "few: a sum below the limit was changed"
# the danger that docs/mpi.md describes: converged, and wrong
residuals codec | awk '{ exit !($1 < 1e-4 && $2 > 1e-2) }' || fail "the example of docs/mpi.md no longer shows the danger"
