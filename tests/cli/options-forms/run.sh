python3 - <<E
import make
make.f32("x.f32", make.gradient(1000))
E

# All the ways to write an option; words may stand anywhere, and behind -- everything is a word.
"$GRADWIRE" encode -cnatural -ox1.gw x.f32 -qv
"$GRADWIRE" encode --codec=natural x.f32 --output=x2.gw --seed=0x0
"$GRADWIRE" encode --output x3.gw --codec natural --quiet x.f32
cp x.f32 ./-x.f32
"$GRADWIRE" encode -c natural -o x4.gw -- -x.f32
cmp x1.gw x2.gw
cmp x1.gw x3.gw
"$GRADWIRE" encode -c natural -v -o x5.gw x.f32
