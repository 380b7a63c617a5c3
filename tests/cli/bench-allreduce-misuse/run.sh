# Exit 2, a line that names what is wrong, nothing on stdout.
misuse() {
    code=0
    "$GRADWIRE" bench allreduce "$@" 2> said || code=$?
    head -1 said >&2
    test $code = 2 || echo "exit $code: $*"
    grep -q '^usage: gradwire bench allreduce' said || echo "no usage: $*"
}
misuse
misuse natural
misuse -c natrual
misuse -c natural --route roundabout
misuse -c natural --route sum
misuse -c lowrank:rank=2 --route sra
misuse -c natural --route sra --route gather
misuse -c natural --route hier-gather --ranks 4 --ranks-per-node 3
misuse -c natural -n 0
misuse -c natural --rounds 0
misuse -c natural --rounds 102
misuse -c natural --ranks 257
misuse -c natural --lanes 17
for rate in 1 gbit 1Gbit '1 gbit' -1gbit 1e9bit 1.gbit .5gbit 1..5gbit 1.5.gbit 1gbits nan inf ''; do
    misuse -c natural --link "$rate"
done
misuse -c natural --near-link fast
for time in 1 ms 1min '1 ms' -1us 0x1s; do
    misuse -c natural --latency "$time"
done
