# What is not a file that can be read whole: an error that says so, no wait, no signal.
python3 - <<P
import make
make.f32("x.f32", make.gradient(1000))
P
odd() {
    code=0
    timeout 20 "$GRADWIRE" "$@" || code=$?
    test $code = 1 || echo "exit $code: $*"
}
mkdir folder.npy run
mkfifo pipe.npy pipe.safetensors pipe.f32 pipe.gw pipe.json run/run.json
ln -s /dev/zero zero.f32
ln -s /dev/tty tty.gw
for file in pipe.npy pipe.safetensors pipe.f32 pipe.gw folder.npy zero.f32; do
    odd inspect $file
done
odd inspect tty.gw 2> /dev/null # without a terminal it cannot even be opened
odd encode -c natural pipe.npy -o y.gw
odd decode pipe.gw -o y.npy
odd simulate pipe.json
odd plan pipe.json --nodes 2 --link 1gbit
odd adapt pipe.safetensors --family dither --default dither:bits=4
odd report run -o y.html
if "$GRADWIRE" train --help > /dev/null 2>&1; then
    odd train --resume run -q 2> said
    grep -q 'not a regular file' said || { echo "resume says:"; cat said; }
fi
ls y.* 2> /dev/null || true
