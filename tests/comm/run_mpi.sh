#!/usr/bin/env bash
# Runs a test under its MPI's launcher: run_mpi.sh RANKS PROGRAM [COMPILER SOURCE]
# With a compiler, PROGRAM is built first, from the sources of the MPI backend.
set -euo pipefail
ranks=$1 program=$2
if [ $# -gt 2 ]; then
    compiler=$3 source=$4
    command -v "$compiler" >/dev/null || { echo "skip: no $compiler"; exit 77; }
    "$compiler" -std=c11 -O1 -g -Wall -Wextra -Werror -I"$source/include" -I"$source/src" -I"$source/tests" -o "$program" \
        "$source"/tests/comm/test_mpi.c "$source"/src/comm/{mpi*,find_nodes,gather,pieces,wait}.c "$source"/src/base/{clock,cpu,hash,status,why}.c
fi
flags=()
if [[ $(ldd "$program") == *libmpich* ]]; then
    launcher=$(command -v mpiexec.mpich || command -v mpiexec || true)
else
    launcher=$(command -v mpirun.openmpi || command -v mpirun || true)
    flags=(--oversubscribe)
    [ "$(id -u)" -ne 0 ] || flags+=(--allow-run-as-root)
fi
[ -n "$launcher" ] || { echo "skip: no launcher for $program"; exit 77; }
# leaks are MPI's own
ASAN_OPTIONS=detect_leaks=0 timeout 120 "$launcher" "${flags[@]}" -n "$ranks" "$program"
