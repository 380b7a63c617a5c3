#!/usr/bin/env bash
# NETLAB=path/to/netlab bench/auto.sh [MODEL RATE]
# `auto` beside dense and every fixed codec at its default, on four nodes of a lab: quality, and seconds until a run is as good as the uncompressed
# ones get (bench/auto.py). Without arguments: cnn and lstm, at 200mbit and 1gbit. All of it shares this machine's cores: run it when nothing else does.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${NETLAB:?the path of netlab}" "${BUILD:=build/release}" "${DELAY:=1us}" "${BUFFER:=65536}" "${STEPS:=300}" "${EVERY:=30}" "${SEEDS:=3}" "${OUT:=build/auto}"
: "${WAYS:=dense,cast:to=bf16,natural:bits=8,dither:bits=4,topk:density=0.01,adacomp,lowrank:rank=4,auto}"
export NETLAB_TIMEOUT=${NETLAB_TIMEOUT:-3600} # seconds that one comparison may take
. bench/machine.sh
[[ $OUT = /* ]] || OUT=$PWD/$OUT
one() { # MODEL RATE
    local more=()
    [ "$1" != lstm ] || more=(--batch 8)
    rm -rf "$OUT/$1-$2"
    mkdir -p "$OUT"
    "$NETLAB" up 4 "$2" "$DELAY" >&2
    # shellcheck disable=SC2064
    trap "'$NETLAB' down >&2" EXIT
    # OpenBLAS would start a thread a core on every node
    OPENBLAS_NUM_THREADS=1 "$NETLAB" mpirun --mca btl_tcp_flags 1 --mca btl_tcp_sndbuf "$BUFFER" --mca btl_tcp_rcvbuf "$BUFFER" -n 4 "$PWD/$BUILD/cli/gradwire-mpi" train \
        --model "$1" --steps "$STEPS" --every "$EVERY" --sample 0 --checkpoint 0 --seeds "$SEEDS" --compare "$WAYS" "${more[@]}" -q -o "$OUT/$1-$2" </dev/null >/dev/null
    "$NETLAB" down >&2
    trap - EXIT
    echo "$1 at $2, 4 nodes, $STEPS steps, $SEEDS seeds"
    python3 bench/auto.py "$OUT/$1-$2"
}
machine
if [ $# = 2 ]; then
    one "$@"
    exit
fi
for rate in 200mbit 1gbit; do
    for model in cnn lstm; do
        one "$model" "$rate"
    done
done
