#!/usr/bin/env bash
# NETLAB=path/to/netlab bench/netlab_allreduce.sh
# Four nodes, each on a link of RATE both ways with a delay of 1us, so that small messages are not let through for
# free. Both sides, ours and the MPI library's allreduce, run with the same flags in the same run:
# btl_tcp_flags 1, without which Open MPI reaches half the wire.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${NETLAB:?the path of netlab}" "${BUILD:=build/release}" "${NODES:=4}" "${RATE:=1gbit}" "${DELAY:=1us}"
: "${ELEMENTS:=25Mi}" "${ROUNDS:=5}"
. bench/machine.sh
machine
"$NETLAB" up "$NODES" "$RATE" "$DELAY" >&2
trap '"$NETLAB" down >&2' EXIT
command=(bench allreduce -c natural:bits=8 --route sra -c dither:bits=4 --route sra -c topk:density=0.01 --route gather
    -n "$ELEMENTS" --rounds "$ROUNDS" --link "$RATE")
echo "netlab up $NODES $RATE $DELAY; netlab mpirun --mca btl_tcp_flags 1 gradwire-mpi ${command[*]}"
"$NETLAB" mpirun --mca btl_tcp_flags 1 "$PWD/$BUILD/cli/gradwire-mpi" "${command[@]}" "$@"
