python3 - <<E
import make
make.f32("x.f32", make.gradient(1000))
E

"$GRADWIRE" encode -c natural x.f32 -o nowhere/x.gw || echo "exit $?"
"$GRADWIRE" encode -c natural x.f32 -o x.f32/x.gw || echo "exit $?"
mkdir taken.gw
"$GRADWIRE" encode -c natural x.f32 -o taken.gw || echo "exit $?"
# A device must not be replaced by a file.
mkfifo pipe.gw
"$GRADWIRE" encode -c natural x.f32 -o pipe.gw || echo "exit $?"
test -p pipe.gw
# A link stays one: what it points to is replaced.
echo before > target.gw
ln -s target.gw link.gw
"$GRADWIRE" encode -c natural x.f32 -o link.gw
test -L link.gw
cmp link.gw target.gw
umask 027
"$GRADWIRE" encode -q -c natural x.f32 -o mode.gw > /dev/null
stat -c %a mode.gw
ls
if test "$(id -u)" != 0; then
    mkdir -m 555 readonly
    if "$GRADWIRE" encode -c natural x.f32 -o readonly/x.gw 2> /dev/null; then echo "written"; fi
fi
