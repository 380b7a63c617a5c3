python3 - <<E
import make
make.f32("x.f32", make.gradient(1000))
E

"$GRADWIRE" encode -c cast:to=f32 x.f32 -o x.gw
"$GRADWIRE" decode x.gw -o y.f32
cmp x.f32 y.f32
"$GRADWIRE" decode -q x.gw -o y.npy
python3 -c 'import make; print(*make.npy_data("y.npy")[:2])'
"$GRADWIRE" decode -q x.gw -o y.safetensors
python3 -c 'import make; print(*make.safetensors_data("y.safetensors")[0][:3])'
printf abcde > odd.f32
"$GRADWIRE" encode -c cast odd.f32 -o odd.gw
