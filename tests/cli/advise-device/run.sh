# A job without a device, or one measured on a processor, is planned for CPUs; one of a GPU's name for GPUs.
python3 - <<P
import json
tensors = [{"name": f"layer{i}", "shape": [1024, 1024], "ready_ms": 10.0 + 10 * i} for i in range(5)]
job = {"format": "gradwire.job/1", "name": "five", "forward_ms": 20, "backward_ms": 50, "tensors": tensors}
json.dump(job, open("none.json", "w"))
for i, device in enumerate(["x86_64", "AMD64", "aarch64", "arm64", "i686", "ppc64le", "s390x", "riscv64", "cpu, 2 cores",
                            "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", "AMD EPYC 9654"]):
    json.dump({**job, "device": device}, open(f"cpu{i}.json", "w"))
for i, device in enumerate(["NVIDIA H200", "Tesla V100-SXM2-16GB", "AMD Instinct MI300X", "cuda"]):
    json.dump({**job, "device": device}, open(f"gpu{i}.json", "w"))
P
printf 'order,tensor,numel,gap_us\n0,a.weight,1048576,10000\n1,a.bias,33278,10\n2,b.bn.weight,2048,5\n' > none.csv
C="$CASE/../../../examples/clusters"
for job in none.json none.csv cpu*.json gpu*.json; do
    "$GRADWIRE" advise $job --nodes 4 --link 100mbit --json -o $job.plan > $job.advice 2> $job.said
    "$GRADWIRE" advise $job --cluster "$C/office-1g.json" --json 2>&1 > /dev/null | grep -c "was measured on a GPU" > $job.misfit || true
done
python3 - <<P
import glob, json
jobs = glob.glob("*.advice")
assert len(jobs) == 17, jobs
for path in jobs:
    job = path.removesuffix(".advice")
    plan, on_gpu = open(job + ".plan").read(), job.startswith("gpu")
    assert json.load(open(path))["answer"] == "yes" and '"natural' in plan or '"dither' in plan, plan
    assert ("@gpu" in plan) <= on_gpu, (job, plan)
    assert ("names no device: a CPU is assumed" in open(job + ".said").read()) == job.startswith("none"), job
    assert int(open(job + ".misfit").read()) == on_gpu, job
specs = {t["name"]: t["spec"] for t in json.load(open("none.csv.plan"))["tensors"]}
assert specs["a.weight"] != "dense" and specs["a.bias"] == specs["b.bn.weight"] == "dense", specs
assert any("@gpu" in open(f"gpu{i}.json.plan").read() for i in range(4))
P
# a plan for GPUs is refused by name where there is none, before anything is trained
sed 's/@cpu/@gpu/g' none.json.plan > gpu.plan
"$GRADWIRE" train --model mlp --steps 1 --plan gpu.plan -q -o run || echo "exit $?"
