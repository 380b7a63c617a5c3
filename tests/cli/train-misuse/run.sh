# Exit 2, a line that names what is wrong, nothing on stdout, no folder.
"$GRADWIRE" train --help > help 2>&1 || { echo "skip: built without its trainer"; exit 77; }
misuse() {
    code=0
    "$GRADWIRE" train "$@" --out run 2> said || code=$?
    head -1 said >&2
    test $code = 2 || echo "exit $code: $*"
    grep -q '^usage: gradwire train' said || echo "no usage: $*"
    test ! -e run || echo "a folder: $*"
}
misuse cnn
misuse --model rnn
misuse --optimiser sdg
misuse --schedule linear
misuse --ranks 0
misuse --ranks 257
misuse --batch 0
misuse --steps 0
misuse --steps 10 --epochs 1
misuse --rate 0
misuse --rate fast
misuse --rate 0x1
misuse --rate ' 1'
misuse --rate -1
misuse --rate 1e999
misuse --momentum 1
misuse --seeds 0
misuse --seed 4503599627370497
misuse -c natrual
misuse -c natural:bits=10
misuse -c natural --compare dense
misuse --compare dense,natrual:bits=8
misuse --compare dense,topk:density=0.01,value=natural
misuse --compare dense,adacomp,dense
misuse --compare dense,,adacomp
misuse -c natural --route roundabout
misuse -c lowrank:rank=2 --route sra
misuse --compare natural,lowrank --route sra
misuse -c natural --route hier-gather --ranks 4 --ranks-per-node 3
misuse --target 90
misuse --target 0
misuse --target high
misuse --link fast
misuse --latency 1
misuse --resume run
misuse --text x
misuse --model lstm --images x
misuse --optimiser adam --momentum 0.5
misuse --route sra
misuse --model lstm --optimiser sgd
