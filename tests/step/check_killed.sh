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
launch() { # HOW [end]
    timeout -k 5 60 mpirun.openmpi "${root[@]}" --oversubscribe --enable-recovery --mca btl vader,self -n 4 "$program" "$@" \
        >"$folder/out" 2>"$folder/err"
}
for how in kill stop; do
    : >"$folder/out"
    launch $how &
    job=$!
    while kill -0 $job 2>/dev/null && [ "$(grep -cE "$errors" "$folder/out")" -lt 3 ]; do sleep 0.1; done
    pkill -KILL -f "^$program $how" || true # the stopped one, which the launcher would wait for
    wait $job || true
    cat "$folder/out"
    [ "$(grep -cE "$errors.*from rank 2" "$folder/out")" -eq 3 ] || { cat "$folder/err"; echo "not every survivor named the error"; exit 1; }
    echo "$how: three survivors, three named errors"
done

# Survivors that asked for it end the whole job, the stopped rank with it, after they have named the error. A launcher that lets
# ranks die calls any end a good one: its own status says only that it was not the timeout's, and what it prints of an abort may be lost
# when three ranks ask for it at once.
for how in kill stop; do
    code=0
    launch $how end || code=$?
    cat "$folder/out"
    first=$(grep -m 1 -oE "^rank [013]: MPI_Abort" "$folder/out") || { cat "$folder/err"; echo "nobody ended the job"; exit 1; }
    grep -B 9 "^$first" "$folder/out" | grep -qE "^${first%: *}: a peer .*'weights'" || { echo "ended before the error was named"; exit 1; }
    for _ in $(seq 100); do pgrep -f "^$program $how" >/dev/null || break; sleep 0.1; done # the launcher may be gone before its ranks
    if grep "the job goes on" "$folder/out" || [ $code -eq 124 ] || pgrep -fa "^$program $how"; then
        cat "$folder/err"; echo "the job was not ended (status $code)"; exit 1
    fi
    echo "$how: the job was ended after the error"
done
