#!/usr/bin/env bash
# check_killed.sh PROGRAM: a rank that is killed, or stopped, in mid-training. The launcher is told to let the others live.
set -euo pipefail
program=$1
command -v mpirun.openmpi >/dev/null || { echo "skip: no mpirun.openmpi here"; exit 77; }
[[ $(ldd "$program") == *libmpi.so* ]] || { echo "skip: built for another MPI"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=()
[ "$(id -u)" -ne 0 ] || root=(--allow-run-as-root)
errors="^rank [013]: a peer (did not answer in time|is gone): .*'weights'"
for how in kill stop; do
    timeout -k 5 60 mpirun.openmpi "${root[@]}" --oversubscribe --enable-recovery --mca btl vader,self -n 4 "$program" $how \
        >"$folder/out" 2>"$folder/err" &
    job=$!
    while kill -0 $job 2>/dev/null && [ "$(grep -cE "$errors" "$folder/out")" -lt 3 ]; do sleep 0.1; done
    pkill -KILL -f "^$program $how" || true # the stopped one, which the launcher would wait for
    wait $job || true
    cat "$folder/out"
    [ "$(grep -cE "$errors" "$folder/out")" -eq 3 ] || { cat "$folder/err"; echo "not every survivor named the error"; exit 1; }
    echo "$how: three survivors, three named errors"
done
