#!/usr/bin/env bash
# run_engines.sh COMPILER SOURCE PROGRAM LIBRARY [LIBRARY…]: builds test_engines for one MPI, and runs it.
set -euo pipefail
compiler=$1 source=$2 program=$3
shift 3
command -v "$compiler" >/dev/null || { echo "skip: no $compiler"; exit 77; }
"$compiler" -std=c11 -O1 -g -Wall -Wextra -Werror -I"$source/include" -I"$source/src" -I"$source/tests" -o "$program" \
    "$source"/tests/coll/test_engines.c "$source"/tests/support/{ranks,gen}.c "$source"/src/comm/mpi*.c "$@"
exec "$source/tests/comm/run_mpi.sh" 4 "$program"
