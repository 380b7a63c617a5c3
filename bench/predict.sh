#!/usr/bin/env bash
# NETLAB=path/to/netlab bench/predict.sh [MODEL RATE NODES RANKS_PER_NODE]
# Prediction and reality: the trainer's job and this lab's cluster are measured, then each of 20 plans (chosen, dense, one spec for
# all, random) is run, in rounds, and the median step set beside what was predicted. Without arguments: cnn and mlp, at 200mbit and
# 1gbit on 4 nodes, and on 2 nodes of 2 ranks. All of it shares this machine's cores: run it when nothing else does.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${NETLAB:?the path of netlab}" "${BUILD:=build/release}" "${DELAY:=1us}" "${BUFFER:=65536}" "${STEPS:=30}" "${ROUNDS:=3}" "${RANDOM_PLANS:=12}"
: "${SPECS:=cast:to=bf16 natural:bits=8 topk:density=0.01}" "${FORCE:=}" "${PREDICT:=build/dev/tests/bench_predict}"
. bench/machine.sh
# Nodes of several ranks are sessions of their own on this one machine. The kernel's groups by session were seen (Linux 6.18, ranks that yield) to
# give one node no core for minutes, as no machine of its own would: such groups are off while this runs.
groups=/proc/sys/kernel/sched_autogroup_enabled
if [ -w $groups ] && [ "$(cat $groups)" = 1 ]; then
    echo 0 >$groups
    trap 'echo 1 >$groups' EXIT
else
    groups=/dev/null
fi
one() { # MODEL RATE NODES RANKS_PER_NODE
    local work name milliseconds round flags specs=() ranks=$(($3 * $4))
    work=$(mktemp -d)
    flags=(--mca btl_tcp_flags 1 --mca btl_tcp_sndbuf "$BUFFER" --mca btl_tcp_rcvbuf "$BUFFER" -n "$ranks")
    [ "$4" = 1 ] || flags+=(--oversubscribe --map-by "ppr:$4:node")
    for name in $SPECS; do specs+=(-c "$name"); done
    "$NETLAB" up "$3" "$2" "$DELAY" >&2
    # shellcheck disable=SC2064
    trap "'$NETLAB' down >&2; rm -rf '$work'; echo 1 >$groups" EXIT
    # OpenBLAS would start a thread a core on every node
    mpi() { OPENBLAS_NUM_THREADS=1 "$NETLAB" mpirun "${flags[@]}" "$PWD/$BUILD/cli/gradwire-mpi" "$@" </dev/null; }
    train() { mpi train --model "$model" --steps "$STEPS" --every 0 --sample 0 --checkpoint 0 -q "$@" >/dev/null; }
    local model=$1
    echo "$1 at $2, $3 nodes of $4 ranks"
    mpi profile -o "$work/cluster.json" "${specs[@]}" $FORCE >&2
    train --out "$work/job" --profile "$work/job.json"
    # shellcheck disable=SC2086
    "$PREDICT" "$work/job.json" "$work/cluster.json" "$work" "$RANDOM_PLANS" $SPECS >"$work/predicted"
    for round in $(seq "$ROUNDS"); do
        while read -r name milliseconds; do
            train --out "$work/run-$name-$round" --plan "$work/$name.json"
        done <"$work/predicted"
    done
    [ -z "${KEEP:-}" ] || cp -r "$work" "$KEEP-$1-$2-$3x$4"
    PYTHONPATH="$(dirname "$0")" python3 - "$work" "$ROUNDS" <<'P'
import statistics, sys
import runs
rows = []
for line in open(f"{sys.argv[1]}/predicted"):
    name, predicted = line.split()
    steps = []
    for r in range(int(sys.argv[2])):
        steps += runs.load(f"{sys.argv[1]}/run-{name}-{r + 1}")["steps"][2:]
    rows.append((name, float(predicted), 1e3 * statistics.median(s["seconds"] for s in steps)))
print(f"{'plan':22} {'predicted, ms':>14} {'measured, ms':>13} {'off by':>8}")
for name, predicted, measured in rows:
    print(f"{name:22} {predicted:14.1f} {measured:13.1f} {100 * (predicted / measured - 1):+7.1f} %")
near = sum(abs(p / m - 1) <= 0.15 for _, p, m in rows)
best = min(rows, key=lambda r: r[2])
print(f"{near} of {len(rows)} within 15 %; chosen {rows[0][2]:.1f} ms, the best ({best[0]}) {best[2]:.1f} ms: {100 * (rows[0][2] / best[2] - 1):+.1f} %")
P
    "$NETLAB" down >&2
    trap "echo 1 >$groups" EXIT
    rm -rf "$work"
}
machine
if [ $# = 4 ]; then
    one "$@"
    exit
fi
for rate in 200mbit 1gbit; do
    for model in cnn mlp; do
        one "$model" "$rate" 4 1
        one "$model" "$rate" 2 2
    done
done
