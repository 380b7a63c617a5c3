#!/usr/bin/env bash
# The virtual link against a real one: the same exchange by threads over a virtual link, and by MPI over
# netlab's, which is slow for real. As root; a table on stdout.
#   bench/link_model.sh NETLAB BUILD [RANKS [MBIT [BYTES...]]]
set -euo pipefail
netlab=$1 build=$2 ranks=${3:-4} mbit=${4:-1000}
shift $(($# < 4 ? $# : 4))
sizes=("$@")
[ ${#sizes[@]} -gt 0 ] || sizes=(4096 65536 1048576 16777216 104857600)
# what netlab's link of 1us has, by its README: 0.94 of the rate is payload, 120 µs and twice the delay for a round trip
payload=$(awk "BEGIN { print 0.94e-3 * $mbit }") latency=61

"$netlab" up "$ranks" "${mbit}mbit" 1us
trap '"$netlab" down' EXIT
real=$("$netlab" mpirun --mca btl_tcp_flags 1 --mca btl_tcp_sndbuf 131072 --mca btl_tcp_rcvbuf 131072 "$build/bench/bench_exchange_mpi" "${sizes[@]}")
virtual=$("$build/bench/bench_exchange" "$ranks" "$payload" "$latency" "${sizes[@]}")
echo "| bytes | netlab, ms | threads, ms | threads / netlab | by the model, ms |"
echo "|---|---|---|---|---|"
paste -d ' ' <(echo "$real") <(echo "$virtual") | awk -v p="$ranks" -v rate="$payload" -v latency="$latency" '{
    model = 2 * ($1 * (p - 1) / p / (rate * 1e9 / 8) + latency * 1e-6)
    printf "| %d | %.3f | %.3f | %.2f | %.3f |\n", $1, 1e3 * $2, 1e3 * $4, $4 / $2, 1e3 * model }'
