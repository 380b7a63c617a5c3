python3 - <<E
import make
make.npy("x.npy", bytes(80), (10,), "<i8")
E
"$GRADWIRE" encode -c natural x.npy -o x.gw
