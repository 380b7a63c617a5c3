python3 - <<E
import make
make.f32("x.f32", make.gradient(1000))
E

# Exit 2, and the words of the library about what is wrong.
for spec in natural:bots=8 natural:bits=seven natural:bits=7 naturel dither:rounding=up \
    dither:bits=4,bits=4 dither:bucket=100 natural: ''; do
    code=0
    "$GRADWIRE" encode -c "$spec" x.f32 -o x.gw 2> said || code=$?
    test $code = 2 || echo "exit $code: $spec"
    head -1 said >&2
    "$GRADWIRE" inspect -c natural -c "$spec" x.f32 2> said && echo "inspect took $spec"
done
test ! -e x.gw
