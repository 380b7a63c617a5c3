#!/usr/bin/env bash
# check_preload.sh PROGRAM LIBRARY: an MPI program that does not know of us, as it is and with the preload. It
# converges in both, what is not a large float sum is the same bit for bit, and fewer bytes are sent.
set -euo pipefail
program=$1 library=$2
command -v mpirun.openmpi >/dev/null || { echo "skip: no mpirun.openmpi here"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
run() { mpirun.openmpi --allow-run-as-root --oversubscribe -np 4 --mca btl vader,self "$@"; }

run "$program" >"$folder/plain" 2>"$folder/plain.err"
run -x GRADWIRE_PMPI_SPEC=natural:bits=8 -x GRADWIRE_PMPI_VERBOSE=1 -x LD_PRELOAD="$library" "$program" >"$folder/preloaded" 2>"$folder/preloaded.err" ||
    { cat "$folder/preloaded.err"; echo "the program fails with the preload"; exit 1; }
grep -q '^converged 1 1$' "$folder/plain" || { cat "$folder/plain.err"; echo "the program itself does not converge"; exit 1; }
diff "$folder/plain" "$folder/preloaded" || { echo "the preload changed what it must not touch"; exit 1; }
line=$(grep -h 'sums taken over' "$folder/preloaded.err") || { cat "$folder/preloaded.err"; echo "nothing was taken over"; exit 1; }
echo "$line"
echo "$line" | sed 's/[^0-9 ]//g' | awk '{ exit !($1 == 60 && 3 * $3 <= $4) }' || { echo "too many bytes"; exit 1; }
grep -h 'loss fell' "$folder/preloaded.err"

# a codec that needs a residual is refused in words
if run -x GRADWIRE_PMPI_SPEC=topk -x LD_PRELOAD="$library" "$program" >/dev/null 2>"$folder/refused"; then
    echo "topk was accepted"; exit 1
fi
grep -q 'the codec must be unbiased' "$folder/refused" || { cat "$folder/refused"; exit 1; }
echo "a biased codec is refused"
