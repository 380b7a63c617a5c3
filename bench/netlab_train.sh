#!/usr/bin/env bash
# NETLAB=path/to/netlab bench/netlab_train.sh
# The same training over the virtual link, by threads, and over netlab's, by MPI processes on four nodes: milliseconds a step of each
# spec, and whether the order is the same. Both get RATE and DELAY; of netlab's rate 0.94 is payload.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${NETLAB:?the path of netlab}" "${BUILD:=build/release}" "${RATE:=200mbit}" "${DELAY:=1ms}" "${LATENCY:=1ms}" "${BUFFER:=65536}" "${STEPS:=100}"
: "${SPECS:=dense,cast:to=bf16,natural:bits=8,dither:bits=4,topk:density=0.01,adacomp}"
. bench/machine.sh
machine
work=$(mktemp -d)
flags=(--mca btl_tcp_flags 1 --mca btl_tcp_sndbuf "$BUFFER" --mca btl_tcp_rcvbuf "$BUFFER")
train=(train --compare "$SPECS" --steps "$STEPS" --every 0 --sample 0 --json -q)
"$NETLAB" up 4 "$RATE" "$DELAY" >&2
trap '"$NETLAB" down >&2; rm -rf "$work"' EXIT
echo "netlab up 4 $RATE $DELAY; netlab mpirun ${flags[*]} gradwire-mpi ${train[*]}"
"$BUILD/cli/gradwire" "${train[@]}" --ranks 4 --link "$RATE" --latency "$LATENCY" --out "$work/virtual" >"$work/virtual.json"
# OpenBLAS would start a thread a core on every node
OPENBLAS_NUM_THREADS=1 "$NETLAB" mpirun "${flags[@]}" "$PWD/$BUILD/cli/gradwire-mpi" "${train[@]}" --out "$work/netlab" >"$work/netlab.json" </dev/null
PYTHONPATH="$(dirname "$0")" python3 - "$work" <<'P'
import glob, os, statistics, sys
import runs
def medians(folder):
    found = [runs.load(os.path.dirname(f)) for f in glob.glob(os.path.join(sys.argv[1], folder, "*", "run.json"))]
    return {r["config"]["spec"]: 1e3 * statistics.median(s["seconds"] for s in r["steps"]) for r in found}
virtual, real = medians("virtual"), medians("netlab")
print(f"{'spec':20} {'virtual link, ms':>17} {'netlab, ms':>11} {'netlab / virtual':>17}")
for spec in sorted(virtual, key=virtual.get, reverse=True):
    print(f"{spec:20} {virtual[spec]:17.1f} {real[spec]:11.1f} {real[spec] / virtual[spec]:17.2f}")
same = sorted(virtual, key=virtual.get) == sorted(real, key=real.get)
print("the same order on both" if same else "the order differs: " + ", ".join(sorted(real, key=real.get, reverse=True)) + " on netlab")
P
