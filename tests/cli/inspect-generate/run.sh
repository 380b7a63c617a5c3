# The generated numbers are the same on every machine; what bf16 does to them stands here.
"$GRADWIRE" inspect --generate 64Ki -c cast:to=bf16 --json --threads 2 | tee first
"$GRADWIRE" inspect --generate 65536 -c cast:to=bf16 --json --isa scalar | cmp - first
"$GRADWIRE" inspect --generate 64Ki -c cast:to=bf16 --json --seed 1 > other
if cmp -s first other; then echo "the seed does nothing"; fi
"$GRADWIRE" inspect --generate 0 -c natural
