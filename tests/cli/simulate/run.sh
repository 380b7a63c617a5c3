cat > lines.json <<J
[{"figure": "2b", "tensors": [{"compute": 8, "ops": [["net", 11]]}, {"compute": 8, "ops": [["net", 9]]},
  {"compute": 7, "ops": [["gpu", 3], ["net", 3]]}], "makespan": 31},
 {"figure": "half", "tensors": [{"compute": 0.5, "ops": [["cpu", 1.25], ["net", 1]]}]}]
J
"$GRADWIRE" simulate lines.json
"$GRADWIRE" simulate lines.json --json
sed -i 's/31/30/' lines.json
"$GRADWIRE" simulate lines.json || echo "exit $?"
refused() {
    cat > bad.json
    code=0
    "$GRADWIRE" simulate bad.json || code=$?
    echo "exit $code"
}
refused <<< '[{"figure": "x", "tensors": [{"compute": -1, "ops": []}]}]'
refused <<< '[{"figure": "x", "tensors": [{"compute": 1, "ops": [["tpu", 1]]}]}]'
refused <<< '[{"figure": "x", "tensors": [{"compute": 1, "ops": [["net", 1e300]]}]}]'
refused <<< '[{"figure": "x", "tensors": [], "after": "y"}]'
refused <<< '[]'
refused <<< '{"a": 1, "a": 2}'
