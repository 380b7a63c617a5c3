python3 - <<E
import make
make.npy("x.npy", bytes(399), (10, 10))
E
"$GRADWIRE" encode -c natural x.npy -o x.gw
