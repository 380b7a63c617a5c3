#!/usr/bin/env bash
# bench/loopback_allreduce.sh
# Two MPI ranks in shared memory: no wire to save, so that coding has to be faster than the MPI library's own
# sum of the same floats in the same run.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${BUILD:=build/release}" "${ELEMENTS:=25M}" "${ROUNDS:=21}"
. bench/machine.sh
machine
flags=(-n 2)
[ "$(id -u)" -ne 0 ] || flags+=(--allow-run-as-root)
command=(bench allreduce -c natural:bits=8 -c cast:to=bf16 -n "$ELEMENTS" --rounds "$ROUNDS")
echo "mpirun -n 2 gradwire-mpi ${command[*]}"
mpirun "${flags[@]}" "$BUILD/cli/gradwire-mpi" "${command[@]}" "$@"
