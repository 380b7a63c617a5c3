#!/usr/bin/env bash
# Builds, checks and times the codecs' CUDA side with nvcc and gcc alone: bench/cuda/run.sh [STAGE]…
# Stages, in this order: build check sanitize time torch nccl; none named is all. `--quick` checks less. Logs and tables go to
# $OUT, or build/bench-cuda. The last lines are the short tables. nccl needs no other stage; its library is `--nccl FILE`, or the one of
# PyTorch's packages, or the system's.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$PWD/build/bench-cuda out=${OUT:-$PWD/build/bench-cuda/out}
quick=0 stages=() nccl=""
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --nccl) nccl=${2:?--nccl needs a file}; shift ;;
    build | check | sanitize | time | torch | nccl) stages+=("$1") ;;
    *) echo "usage: bench/cuda/run.sh [--quick] [--nccl FILE] [build|check|sanitize|time|torch|nccl]…" >&2; exit 2 ;;
    esac
    shift
done
[ ${#stages[@]} -gt 0 ] || stages=(build check sanitize time torch nccl)
jobs=$(nproc)
mkdir -p "$build/obj" "$out"
: >"$out/summary.txt"
say() { echo "$@" | tee -a "$out/summary.txt"; }
wanted() { [[ " ${stages[*]} " == *" $1 "* ]]; }
seed=${GW_SEED:-$(date +%s)}
library=$build/libgradwire_cuda.so

# The core without what needs other libraries: codecs, and what they stand on. Scalar C is the reference.
build_all() {
    local blas=0 cflags=(-std=c11 -O2 -fPIC -ffp-contract=off -I"$build/list" -Isrc -Iinclude -Itests)
    if echo '#include <cblas.h>' | gcc -E -x c - >/dev/null 2>&1; then blas=1; fi
    mkdir -p "$build/list/codec"
    if [ $blas = 1 ]; then
        cp src/codec/list.def "$build/list/codec/list.def"
        cflags+=(-DGW_HAVE_CBLAS)
    else
        grep -v lowrank src/codec/list.def >"$build/list/codec/list.def"
        cflags+=(-DGW_TESTS_NO_BLAS)
    fi
    local names sources=(src/base/{arena,convert,cpu,huge_pages,name,pool,status,why}.c
        src/codec/{bucket/bucket,codec,list,rounds,spec,sum,values/values}.c src/device/*.c tests/support/gen.c tests/cuda/check.c tests/cuda/due.c tests/cuda/hostile.c)
    [ $blas = 0 ] || sources+=(tests/cuda/check_lowrank.c tests/cuda/check_rounds.c)
    names=$(sed -n 's/^GW_CODEC([0-9]*, *\([a-z]*\))$/\1/p' "$build/list/codec/list.def")
    local cuda=(src/codec/cuda/cuda_table.cu src/codec/cuda/cuda_runtime.cu)
    for name in $names; do
        sources+=("src/codec/$name/$name.c")
        [ ! -f "src/codec/$name/$name.cu" ] || cuda+=("src/codec/$name/$name.cu")
        [ ! -f "src/codec/$name/${name}_rounds.cu" ] || cuda+=("src/codec/$name/${name}_rounds.cu")
    done
    local nvflags="-std=c++17 -O3 --fmad=false -gencode=arch=compute_90,code='[sm_90,compute_90]' -Xptxas -v"
    nvflags+=" -Xcompiler -fPIC,-fvisibility=hidden,-ffp-contract=off -I$build/list -Isrc -Iinclude -Itests"
    rm -f "$build"/obj/*
    {
        for file in "${sources[@]}"; do echo "gcc ${cflags[*]} -c $file -o $build/obj/$(basename "$file").o"; done
        for file in "${cuda[@]}" bench/cuda/memory.cu bench/cuda/time.cu; do
            echo "nvcc $nvflags -c $file -o $build/obj/$(basename "$file").o"
        done
    } | xargs -P "$jobs" -d '\n' -n 1 bash -c >"$out/build.log" 2>&1 || { tail -30 "$out/build.log"; return 1; }
    (
        cd "$build/obj"
        local libs=(-lpthread -lm -ldl)
        [ $blas = 0 ] || libs+=(-lopenblas)
        nvcc -shared -cudart static -Xlinker --exclude-libs,ALL -o "$library" \
            $(for file in "${cuda[@]}"; do echo "$(basename "$file").o"; done)
        core=$(ls ./*.c.o | grep -v -e check -e due.c.o -e hostile.c.o)
        for name in lowrank rounds; do
            [ $blas = 0 ] || nvcc -cudart static -o "$build/check_$name" "check_$name.c.o" memory.cu.o $core "${libs[@]}"
        done
        nvcc -cudart static -o "$build/check" check.c.o due.c.o hostile.c.o memory.cu.o $core "${libs[@]}"
        nvcc -cudart static -o "$build/time" time.cu.o $core "${libs[@]}"
    ) >>"$out/build.log" 2>&1 || { tail -30 "$out/build.log"; return 1; }
    say "built: $(echo $names | wc -w) codecs, ${#cuda[@]} CUDA files; spills: $(grep -c ' [1-9][0-9]* bytes spill' "$out/build.log" || true)"
}

check_all() {
    local cases=$((quick ? 300 : 4000)) matrix=$([ $quick = 1 ] && echo some || echo all) shares=6 failed=0
    seq 0 $((shares - 1)) | xargs -P $shares -I{} bash -c "'$build/check' '$library' --seed $((seed + 1)) --cases $((cases)) \
        --matrix $matrix --most 300000 --share {}/$shares >'$out/check-{}.log' 2>&1" || failed=1
    cat "$out"/check-*.log >"$out/check.log"
    grep -h FAILED "$out/check.log" | tee -a "$out/summary.txt" || true
    if [ $failed = 1 ]; then
        tail -5 "$out/check.log"
        say "CHECK FAILED (seed $((seed + 1)))"
        return 1
    fi
    for name in lowrank rounds; do
        for more in 1 2 3 4; do
            [ ! -x "$build/check_$name" ] || "$build/check_$name" "$library" $((seed + more)) >>"$out/check.log" 2>&1 || { say "check_$name FAILED (seed $((seed + more)))"; return 1; }
        done
    done
    awk '/agree to the bit/ {n += $1} /on the device (is|are) scalar/ {l++} /^[a-z]+ +[0-9]+$/ {c[$1] += $2}
        END {printf "checked: %d scenes, CUDA = scalar C to the bit:", n; for (k in c) if (c[k]) printf " %s %d", k, c[k]; print "; lowrank and its rounds, seeds:", l}' \
        "$out/check.log" | tee -a "$out/summary.txt"
}

sanitize_all() {
    local tool failed=0
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1 || true)
    if [ -z "$tool" ]; then
        say "skip: no compute-sanitizer"
        return 0
    fi
    for kind in memcheck racecheck; do
        if GW_EXACT=1 timeout 280 "$tool" --tool $kind --error-exitcode 9 "$build/check" "$library" --seed "$seed" \
            --cases $((quick ? 40 : 150)) --matrix none --most 20000 >"$out/$kind.log" 2>&1; then
            say "compute-sanitizer $kind: $(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$out/$kind.log" | tail -1 | sed 's/=* *//')"
        else
            failed=1
            say "compute-sanitizer $kind FAILED"
            tail -20 "$out/$kind.log"
        fi
    done
    return $failed
}

# One rank: NCCL takes no second one on a device.
check_nccl() {
    local sources=(src/comm/{link,nccl,nccl_exchange,nccl_load,pieces,threads,threads_exchange,threads_group,wait}.c
        src/base/{status,why}.c tests/cuda/check_nccl.c) folder=$build/nccl
    [ -n "$nccl" ] || nccl=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null || echo libnccl.so.2)
    mkdir -p "$folder"
    rm -f "$folder"/*.o
    (
        for file in "${sources[@]}"; do
            gcc -std=c11 -O2 -Isrc -Iinclude -Itests -c "$file" -o "$folder/$(basename "$file").o"
        done
        nvcc -std=c++17 -O2 -Iinclude -Itests -c bench/cuda/memory.cu -o "$folder/memory.cu.o"
        nvcc -cudart static -o "$folder/check_nccl" "$folder"/*.o -lpthread -ldl
    ) >"$out/nccl-build.log" 2>&1 || { tail -20 "$out/nccl-build.log"; say "NCCL CHECK NOT BUILT"; return 1; }
    if ! timeout 180 "$folder/check_nccl" "$nccl" >"$out/nccl.txt" 2>&1; then
        tail -20 "$out/nccl.txt"
        say "NCCL CHECK FAILED"
        return 1
    fi
    tee -a "$out/summary.txt" <"$out/nccl.txt" >/dev/null
}

failed=0
if wanted build; then build_all || exit 1; fi
if wanted check; then check_all || failed=1; fi
if wanted sanitize; then sanitize_all || failed=1; fi
if wanted time; then
    mapfile -t specs <bench/cuda/specs.txt
    "$build/time" "$library" -r $((quick ? 7 : 25)) "${specs[@]}" >"$out/time.txt" 2>&1 || { failed=1; say "TIMING FAILED"; }
fi
if wanted torch; then
    python3 bench/cuda/stock.py $([ $quick = 0 ] || echo --quick) >"$out/torch.txt" 2>"$out/torch.log" || say "no figures of PyTorch: $(tail -1 "$out/torch.log")"
fi
if wanted nccl; then check_nccl || failed=1; fi
echo "== tables"
! wanted torch || cat "$out/torch.txt"
! wanted time || cat "$out/time.txt"
cat "$out/summary.txt"
exit $failed
