#!/usr/bin/env bash
# Two nodes with several ranks each on netlab's links: NETLAB=path/to/netlab bench/pytorch/nodes.sh [RANKS...]
# RANKS: of each node, "2 2" unless given. PYTHON (torch 2, for bf16), RATE (1gbit) and what nodes.py takes behind -- may be set.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${NETLAB:?the path of netlab}" "${PYTHON:=/usr/bin/python3}" "${RATE:=1gbit}"
nodes=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do nodes+=("$1"); shift; done
[ $# -eq 0 ] || shift
[ ${#nodes[@]} -gt 0 ] || nodes=(2 2)
ranks=0
for n in "${nodes[@]}"; do ranks=$((ranks + n)); done
"$NETLAB" up ${#nodes[@]} "$RATE" 1us >/dev/null
folder=$(mktemp -d)
trap '"$NETLAB" down; rm -rf "$folder"' EXIT
echo "nodes.sh ${nodes[*]}: $ranks ranks on ${#nodes[@]} nodes (network namespaces of one machine), links of $RATE"
rank=0
for node in "${!nodes[@]}"; do
    for _ in $(seq "${nodes[$node]}"); do
        "$NETLAB" exec "$node" "$PYTHON" bench/pytorch/nodes.py $rank $ranks "$folder/store" eth0 "$@" &
        rank=$((rank + 1))
    done
done
wait
