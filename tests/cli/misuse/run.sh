# Every misuse: exit 2, a line that names what is wrong, nothing on stdout.
misuse() {
    code=0
    "$GRADWIRE" "$@" 2> said || code=$?
    head -1 said >&2
    test $code = 2 || echo "exit $code: $*"
    grep -q '^usage: gradwire' said || echo "no usage: $*"
}
misuse
misuse frobnicate
misuse --frobnicate
misuse help frobnicate
misuse codec
misuse codec lost
misuse codec list more
misuse encode --frobnicate
misuse encode -x
misuse encode -qx
misuse encode --json=1
misuse encode x.f32
misuse encode -c natural x.f32
misuse encode -c natural -o x.gw
misuse encode -c natural -o x.gw x.f32 y.f32
misuse encode -c natural -o x.gw x.txt
misuse encode -c natural x.f32 -o
misuse encode -c natural x.f32 --output
misuse encode -c natural -c natural x.f32 -o x.gw
misuse encode -c natural x.f32 -o x.gw --seed -1
misuse encode -c natural x.f32 -o x.gw --seed 18446744073709551616
misuse encode -c natural x.f32 -o x.gw --rank 4294967296
misuse encode -c natural x.f32 -o x.gw --threads 0
misuse encode -c natural x.f32 -o x.gw --isa mmx
misuse decode -o x.npy
misuse decode x.gw
misuse decode x.gw -o x.txt
misuse inspect
misuse inspect x.txt
misuse inspect x.f32 --generate 5
misuse inspect --generate 5Q
misuse inspect --generate 99999999999Gi
misuse inspect x.gw -c natural
misuse report
misuse report run
misuse report run -o a.html -o b.html
