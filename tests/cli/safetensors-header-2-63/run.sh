python3 - <<E
import struct
open("x.safetensors", "wb").write(struct.pack("<Q", 2**63) + b"{}")
E
"$GRADWIRE" encode -c natural x.safetensors -o x.gw
