# Binary data is not written to a terminal. Text is.
python3 - <<P
import make
make.f32("x.f32", make.gradient(1000))
P
cat > j.json <<J
{"format": "gradwire.job/1", "name": "j", "forward_ms": 1, "backward_ms": 3, "tensors": [{"name": "a", "shape": [300, 400], "ready_ms": 2}]}
J
"$GRADWIRE" encode -q -c natural x.f32 -o x.gw > /dev/null
cat > terminal.py <<'P'
import os, pty, subprocess, sys
seen, terminal = pty.openpty()
done = subprocess.run(sys.argv[1:], stdout=terminal, stderr=subprocess.PIPE, timeout=60)
os.close(terminal)
shown = b""
try:
    while piece := os.read(seen, 65536):
        shown += piece
except OSError:  # its other end is closed
    pass
print("exit", done.returncode, "shown", shown.decode().split('"')[1] if shown else "nothing")
print(done.stderr.decode().splitlines()[0] if done.stderr else "nothing on stderr")
P
python3 terminal.py "$GRADWIRE" encode -c natural x.f32 -o -
python3 terminal.py "$GRADWIRE" decode x.gw -o - --format f32
python3 terminal.py "$GRADWIRE" plan -q j.json --nodes 4 --link 1gbit -c sign -o -
