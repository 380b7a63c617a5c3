#!/usr/bin/env bash
# check_threads.sh PROGRAM LIBRARY SHIM: four threads make the preload's first sums at the same time, each on its own
# communicator. The shim holds the creation of the key, in which threads once overtook each other.
set -euo pipefail
program=$1 library=$2 shim=$3
command -v mpirun.openmpi >/dev/null || { echo "skip: no mpirun.openmpi here"; exit 77; }
[[ $(ldd "$program") == *libmpi.so* ]] || { echo "skip: built for another MPI"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
run() {
    timeout -k 5 120 mpirun.openmpi --allow-run-as-root --oversubscribe -np 2 --mca btl vader,self \
        -x GRADWIRE_PMPI_VERBOSE=1 -x GRADWIRE_PMPI_SPEC=cast:to=f32 "$@" "$program" >"$folder/out" 2>"$folder/err" ||
        { cat "$folder"/*; echo "the program fails, or hangs (status $?)"; exit 1; }
    ! grep '^skip:' "$folder/out" || exit 77
    [ "$(grep -c ': 0 wrong numbers$' "$folder/out")" -eq 2 ] || { cat "$folder"/*; exit 1; }
    [ "$(grep -c '^gradwire: 6 sums taken over' "$folder/err")" -eq 4 ] || { cat "$folder"/*; echo "not all sums were taken over"; exit 1; }
    [ "$(grep -c '^gradwire: preload: ' "$folder/err")" -eq 1 ] || { cat "$folder"/*; echo "not one line at start"; exit 1; }
}
run -x LD_PRELOAD="$library"
run -x LD_PRELOAD="$shim:$library"
[ "$(grep -c '^keys made: 1$' "$folder/out")" -eq 2 ] || { cat "$folder"/*; echo "the key was not made once"; exit 1; }
echo "four threads: right sums, and the key is made once on each rank"
