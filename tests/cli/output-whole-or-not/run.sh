# A write that fails in the middle leaves nothing behind, and what was there before untouched.
python3 - <<E
import make
make.f32("x.f32", make.gradient(100000))
E
"$GRADWIRE" encode -c natural x.f32 -o big.gw > /dev/null
echo before > old.gw
echo before > old.npy
mkdir empty
(
    trap "" XFSZ
    ulimit -f 8 # blocks: the frame has 100 KB
    "$GRADWIRE" encode -c natural x.f32 -o old.gw || echo "exit $?"
    "$GRADWIRE" encode -c natural x.f32 -o empty/new.gw || echo "exit $?"
    "$GRADWIRE" decode big.gw -o old.npy || echo "exit $?"
    "$GRADWIRE" decode big.gw -o empty/new.safetensors || echo "exit $?"
)
cat old.gw old.npy
ls . empty
