# Whichever byte of a frame is changed, decode refuses it and leaves nothing behind.
python3 - <<E
import make
make.f32("x.f32", make.gradient(5))
E
"$GRADWIRE" encode -c natural x.f32 -o x.gw > /dev/null
python3 - <<E
import os, subprocess
frame = open("x.gw", "rb").read()
for at in range(len(frame)):
    open("y.gw", "wb").write(frame[:at] + bytes([frame[at] ^ 0x10]) + frame[at + 1:])
    done = subprocess.run([os.environ["GRADWIRE"], "decode", "y.gw", "-o", "y.f32"],
                          capture_output=True, text=True)
    if done.returncode != 1 or not done.stderr.startswith("gradwire: y.gw: ") or done.stdout:
        print(at, done)
    assert not os.path.exists("y.f32"), at
print(len(frame), "bytes")
E
