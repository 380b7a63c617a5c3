refused() {
    code=0
    "$GRADWIRE" routes "$@" 2> said || code=$?
    head -1 said >&2
    echo "exit $code"
}
refused ring
refused "encode@cpu . flat:allgather . flat:allgather"
refused "flat:reduce . flat:allgather"
refused sra -c natural:bits=7
refused sra -c natural --ranks 0
refused sra -c natural --rank 4
refused hier-sra -c natural --ranks 6 --ranks-per-node 4
refused sum -c natural
refused sra
refused sra sra -c natural
refused sra --count
refused --names --count
refused -c natural
refused --devices tpu
refused --devices cpu,cpu
refused --devices cpu,
