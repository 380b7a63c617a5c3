#!/usr/bin/env bash
# NETLAB=path/to/netlab bench/auto_links.sh [MODEL]
# Links that change under `auto`: 1 Gbit/s, 100 Mbit/s, 1 Gbit/s again, a third of the run each (bench/auto_links.py says what came of it), beside runs
# that had either rate from the start.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${NETLAB:?the path of netlab}" "${BUILD:=build/release}" "${DELAY:=1us}" "${BUFFER:=65536}" "${STEPS:=600}" "${OUT:=build/auto-links}"
model=${1:-cnn}
. bench/machine.sh
machine
[[ $OUT = /* ]] || OUT=$PWD/$OUT
rm -rf "$OUT"
mkdir -p "$OUT"
"$NETLAB" up 4 1gbit "$DELAY" >&2
trap '"$NETLAB" down >&2' EXIT
train() { # STEPS OPTION...
    local steps=$1
    shift
    # OpenBLAS would start a thread a core on every node
    OPENBLAS_NUM_THREADS=1 "$NETLAB" mpirun --mca btl_tcp_flags 1 --mca btl_tcp_sndbuf "$BUFFER" --mca btl_tcp_rcvbuf "$BUFFER" -n 4 "$PWD/$BUILD/cli/gradwire-mpi" train \
        --model "$model" --steps "$steps" --every 0 --sample 0 --checkpoint 0 -c auto -q "$@" </dev/null >/dev/null
}
now() { # steps that are done
    local steps
    steps=$(sed -n 's/^gradwire_step{.*} //p' "$OUT/metrics" 2>/dev/null) || true
    echo "${steps:-0}"
}
reach() { # STEP: wait until it is done
    while kill -0 "$job" 2>/dev/null && [ "$(now)" -lt "$1" ]; do sleep 0.2; done
}
train $((STEPS / 3)) -o "$OUT/1gbit"
train "$STEPS" -o "$OUT/changing" --metrics "$OUT/metrics" &
job=$!
for rate in 100mbit 1gbit; do
    part=$((${part:-0} + 1))
    reach $((STEPS * part / 3))
    "$NETLAB" shape "$rate" >&2
    echo "$rate $(now)" >>"$OUT/shaped"
done
wait "$job"
"$NETLAB" shape 100mbit >&2
train $((STEPS / 3)) -o "$OUT/100mbit"
python3 bench/auto_links.py "$OUT"
