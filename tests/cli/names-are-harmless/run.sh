# A name from a file must not be able to command the terminal.
python3 - <<E
import make
make.safetensors("x.safetensors", [("red \x1b[31m \u009b \x7f\n", "F32", (1,), bytes(4))])
make.safetensors("bad.safetensors", [("\x1b]0;owned\x07", "I64", (1,), bytes(8))])
E
"$GRADWIRE" inspect x.safetensors -c natural
"$GRADWIRE" encode -c natural x.safetensors -o x.gw > /dev/null
"$GRADWIRE" inspect x.gw
"$GRADWIRE" inspect x.gw --json | grep tensor
"$GRADWIRE" inspect bad.safetensors
