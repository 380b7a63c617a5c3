#!/usr/bin/env bash
# check_faults.sh PROGRAM LIBRARY SHIM: what the preload does about a changed byte, a lost message, and ranks that call
# MPI_Allreduce with different counts: the job ends, and a line says why.
set -euo pipefail
program=$1 library=$2 shim=$3
command -v mpirun.openmpi >/dev/null || { echo "skip: no mpirun.openmpi here"; exit 77; }
[[ $(ldd "$program") == *libmpi.so* ]] || { echo "skip: built for another MPI"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { cat "$folder"/*; echo "$*"; exit 1; }
# run HOW COUNT COUNT: the exit status is in $code; 124 is a hang. Open MPI prints each rank's error itself: mpirun sometimes
# loses them all when it tries to print equal ones once.
run() {
    code=0
    timeout -k 5 60 mpirun.openmpi --allow-run-as-root --oversubscribe -np 4 --mca btl vader,self \
        --mca orte_base_help_aggregate 0 -x BAD_WIRE="$1" \
        -x LD_PRELOAD="$shim:$library" -x GRADWIRE_PMPI_SPEC=natural:bits=8 -x GRADWIRE_PMPI_TIMEOUT="${timeout:-300}" \
        "$program" "$2" "$3" >"$folder/out" 2>"$folder/err" || code=$?
}
# ends REASON: not well, not by the time limit, no rank has a sum, and a line of ours has the reason
ends() {
    [ $code -ne 0 ] && [ $code -ne 124 ] && [ $code -ne 137 ] || fail "status $code"
    ! grep 'the sum is' "$folder/out" || fail "a rank went on"
    grep -m 1 -E "^gradwire: rank [0-3]: MPI_Allreduce: .*($1)" "$folder/err" || fail "no rank says: $1"
}
run none 300000 300000
[ $code -eq 0 ] && [ "$(grep -c 'is right' "$folder/out")" -eq 4 ] || fail "control: status $code"
run flip 300000 300000
ends 'was chan' # a relayed reason may be cut
timeout=3 run lose 300000 300000
ends 'no answer for 3 s.* not received from rank [0-3]'
run none 300000 300001
ends 'counts or GRADWIRE_PMPI_\* settings differ: 30000[01] floats here, 300000 to 300001 '
# the last rank's sum is too small to be taken over
run none 300000 262143
[ $code -ne 0 ] && [ $code -ne 124 ] && [ $code -ne 137 ] || fail "one rank below the limit: status $code"
grep -m 1 -E '^gradwire: rank|MPI_ERR' "$folder/err" || fail "one rank below the limit: nothing is said"
# settings that are none
timeout=soon run none 300000 300000
grep -m 1 '^gradwire: rank [0-3]: GRADWIRE_PMPI_TIMEOUT: ' "$folder/err" || fail "a wrong timeout is taken"
