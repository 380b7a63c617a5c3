python3 - <<E
import make
make.f32("x.f32", make.gradient(1000))
E
"$GRADWIRE" encode -c natural x.f32 -o x.gw --fast
