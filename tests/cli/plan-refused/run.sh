C="$CASE/../../../examples/clusters/office-1g.json"
refused() {
    code=0
    "$GRADWIRE" plan "$@" > out 2> said || code=$?
    sed 1q said >&2
    echo "exit $code"
}
job() { printf '{"format": "gradwire.job/1", "name": "j", "tensors": [%s]%s}' "$1" "${2-}" > job.json; }
A='{"name": "a", "shape": [10], "ready_ms": 1}'
job ''; refused job.json --cluster "$C"
job '{"name": "a", "shape": [10], "ready_ms": -1}'; refused job.json --cluster "$C"
job "$A, $A"; refused job.json --cluster "$C"
job '{"name": "a", "shape": [0], "ready_ms": 1}'; refused job.json --cluster "$C"
job '{"name": "a", "shape": [1000000000, 1000000000], "ready_ms": 1}'; refused job.json --cluster "$C"
job '{"name": "a", "shape": [10], "ready_ms": 1, "after": "b"}'; refused job.json --cluster "$C"
job "$A" ', "backward_ms": 0.5'; refused job.json --cluster "$C"
job "$A"
refused job.json
refused --cluster "$C"
refused job.json --cluster missing.json
refused job.json --cluster job.json
refused job.json --cluster "$C" -c zip
refused job.json --cluster "$C" --devices gpu
refused job.json --cluster "$C" --forbid ring
refused job.json --cluster "$C" --nodes 20000
cp "$C" office.json; refused job.json --cluster office.json --ranks-per-node 4
sed 's/"gbit_per_s": 0.94/"gbit_per_s": 0/' "$C" > zero.json; refused job.json --cluster zero.json
sed 's/"sign"/"sing"/' "$C" > unknown.json; refused job.json --cluster unknown.json
printf 'order,tensor,numel,gap_us\n0,a,10,0\n1,b,10,-5\n' > gaps.csv; refused gaps.csv --cluster "$C"
printf 'order,tensor,numel,gap_us\n' > empty.csv; refused empty.csv --cluster "$C"
job '{"name": "a", "shape": [1000000000], "ready_ms": 1}'; refused job.json --cluster "$C"
