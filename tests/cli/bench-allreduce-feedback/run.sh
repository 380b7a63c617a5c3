# Codecs with feedback: what results and residuals hold together is checked against the sum of all rounds.
for codec in topk:density=0.01 sign randk:density=0.1 adacomp; do
    "$GRADWIRE" bench allreduce -c $codec -c $codec --route gather --route sra -n 30000 --ranks 3 --rounds 3 | grep -c "^$codec"
done
"$GRADWIRE" bench allreduce -c randk:density=0.1 --route sum -n 30000 --ranks 3 --rounds 3 | grep -c '^randk'
if "$GRADWIRE" codec list | grep -q '^lowrank'; then
    "$GRADWIRE" bench allreduce -c lowrank:rank=2 --route sum -n 65536 --ranks 3 --rounds 3 | grep -c '^lowrank'
else
    echo 1
fi
