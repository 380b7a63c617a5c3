# Espresso's numbers: the whole grammar with two devices and with one, and the additive routes.
"$GRADWIRE" routes --devices cpu,gpu --count -v
"$GRADWIRE" routes --devices cpu --count
"$GRADWIRE" routes --devices gpu --count
"$GRADWIRE" routes --count
"$GRADWIRE" routes --additive --count
"$GRADWIRE" routes --additive --devices gpu,cpu --count
"$GRADWIRE" routes --devices cpu,gpu | sort -u | wc -l
"$GRADWIRE" routes --devices cpu,gpu --count --json | tr -d ' \n'
echo
"$GRADWIRE" routes --devices cpu,gpu --json | python3 -c '
import json, sys
told = json.load(sys.stdin)
print(told["count"], len(set(told["routes"])), sum("intra" in route for route in told["routes"]))'
