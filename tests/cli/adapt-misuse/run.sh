# Every misuse: exit 2, a line that names what is wrong, nothing on stdout.
misuse() {
    code=0
    "$GRADWIRE" adapt "$@" 2> said || code=$?
    head -1 said >&2
    test $code = 2 || echo "exit $code: $*"
    grep -q '^usage: gradwire' said || echo "no usage: $*"
}
misuse
misuse x.txt --family dither --default dither
misuse x.f32 y.f32 --family dither --default dither
misuse x.f32 --default dither
misuse x.f32 --family dither
misuse x.f32 --family dither,lost --default dither
misuse x.f32 --family dither, --default dither
misuse x.f32 --family dither:bits=99 --default dither
misuse x.f32 --family dither --default dither:bits=99
misuse x.f32 --family dither --default dither --alpha -1
misuse x.f32 --family dither --default dither --alpha nan
misuse x.f32 --family dither --default dither --alpha 1x
misuse x.f32 --family dither --default dither --metric l7
misuse x.f32 --family dither --default dither --min-ratio ''
