python3 - <<E
import make
make.f32("x.f32", make.gradient(1000))
E

echo before > old.gw
echo before > old.npy
printf junk > bad.npy
printf junk > bad.gw
"$GRADWIRE" encode -c natural bad.npy -o old.gw || echo "exit $?"
"$GRADWIRE" encode -c natural bad.npy -o new.gw || echo "exit $?"
"$GRADWIRE" decode bad.gw -o old.npy || echo "exit $?"
"$GRADWIRE" decode bad.gw -o new.npy || echo "exit $?"
cat old.gw old.npy
ls
