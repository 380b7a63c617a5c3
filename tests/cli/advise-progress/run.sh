# What takes time is shown on a terminal, and leaves no trace there; with -q or in a pipe nothing is shown.
python3 - <<P
import json
tensors = [{"name": f"layer{i}", "shape": [1024, 1024], "ready_ms": 10.0 + 10 * i} for i in range(5)]
json.dump({"format": "gradwire.job/1", "name": "five", "device": "cpu", "forward_ms": 20, "backward_ms": 50, "tensors": tensors},
          open("job.json", "w"))
P
cat > terminal.py <<'P'
import os, pty, subprocess, sys
seen, terminal = pty.openpty()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=terminal, timeout=60)
os.close(terminal)
shown = b""
try:
    while piece := os.read(seen, 65536):
        shown += piece
except OSError:  # its other end is closed
    pass
shown = shown.decode()
print("exit", done.returncode, "planning" in shown, shown.count("the answer changes between") > 3, shown.endswith("\033[K"))
P
python3 terminal.py "$GRADWIRE" advise job.json --nodes 4 --link 1gbit
python3 terminal.py "$GRADWIRE" advise job.json --nodes 4 --link 1gbit -q
"$GRADWIRE" advise job.json --nodes 4 --link 1gbit --json > /dev/null
