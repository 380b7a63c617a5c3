#!/usr/bin/env bash
# examples/clusters/h200-100g.json as measured: bench/cuda/clusters.sh [build|measure [--force]]; without a word both.
# `build` needs compilers (and bench/cuda/run.sh build), `measure` only what build left in $BUILD (build/bench-cuda), so that the two
# may be on different machines. Nodes and links are those of the files in $CLUSTERS (examples/clusters): nobody measured them. The new files go
# to $OUT (build/bench-cuda/out); copy them to examples/clusters. A minute and a half.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-$root/build/bench-cuda} clusters=${CLUSTERS:-$root/examples/clusters} out=${OUT:-$root/build/bench-cuda/out}
stage=${1:-both} force=${2:-}
case "$stage $force" in
"both " | "build " | "measure " | "measure --force") ;;
*) echo "usage: bench/cuda/clusters.sh [build|measure [--force]]" >&2; exit 2 ;;
esac
mkdir -p "$out"

# Without what the device's machine may lack; jansson comes along.
if [ "$stage" != measure ]; then
    cmake -S "$root" -B "$root/build/device" -DCMAKE_BUILD_TYPE=Release -DGRADWIRE_BLAS=OFF -DGRADWIRE_MPI=OFF \
        -DGRADWIRE_CUDA=OFF -DGRADWIRE_TESTS=OFF >"$out/clusters-build.log"
    cmake --build "$root/build/device" --target gradwire -j 2 >>"$out/clusters-build.log"
    cp "$root/build/device/cli/gradwire" "$(ldd "$root/build/device/cli/gradwire" | awk '/libjansson/ {print $3}')" "$build/"
fi
[ "$stage" != build ] || exit 0

export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
specs=()
for spec in cast:to=bf16 cast:to=f16 natural:bits=8 natural:bits=9 dither:bits=4 ndither:bits=4 sign topk:density=0.01 \
    randk:density=0.01 adacomp; do
    specs+=(-c "$spec")
done
"$build/gradwire" profile --device cuda --cuda "$(realpath "$build/libgradwire_cuda.so")" "${specs[@]}" $force \
    --cluster "$clusters/h200-100g.json" -o "$out/measured.json"
machine="$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1 || true)"
machine="${machine:-a device}; $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores"
python3 - "$out" "$clusters" "$machine" <<'P'
import json
import pathlib
import sys

out, clusters, machine = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
measured = json.loads((out / "measured.json").read_text())
LINKS = ("nodes", "intra", "inter", "collectives", "cluster")
name = "h200-100g"
said = json.loads((clusters / f"{name}.json").read_text())
new = dict(measured, name=name, nodes=said["nodes"], ranks_per_node=said["ranks_per_node"], intra=said["intra"], inter=said["inter"])
words = [s for s in measured["sources"] if not s["what"].startswith(LINKS)]
words += [s for s in said["sources"] if s["what"].startswith(LINKS[:4])]
new["sources"] = [{"what": "machine", "how": f"measured on one: {machine}"}] + words
new.pop("collectives")
(out / f"{name}.json").write_text(json.dumps(new, indent=1) + "\n")
print(f"{out / name}.json")
P
