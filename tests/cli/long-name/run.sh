python3 - <<E
import make
make.safetensors("fits.safetensors", [("n" * 1024, "F32", (1,), bytes(4))])
make.safetensors("long.safetensors", [("n" * 1025, "F32", (1,), bytes(4))])
E
"$GRADWIRE" encode -c natural fits.safetensors -o fits.gw
"$GRADWIRE" decode fits.gw -o y.safetensors
python3 -c 'import make; print(len(make.safetensors_data("y.safetensors")[0][0]))'
"$GRADWIRE" encode -c natural long.safetensors -o long.gw
