python3 - <<E
import make
nan, inf = float("nan"), float("inf")
make.f32("x.f32", make.gradient(100) + [nan, inf, -inf, 3e38])
E
"$GRADWIRE" encode -c natural x.f32 -o x.gw
"$GRADWIRE" encode -c cast:to=f16 x.f32 -o x.gw --json
"$GRADWIRE" encode -q -c natural x.f32 -o x.gw
