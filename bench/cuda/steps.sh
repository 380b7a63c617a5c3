#!/usr/bin/env bash
# Steps and the PyTorch package with gradients on this machine's GPU: bench/cuda/steps.sh [STAGE]…
# Stages: build, steps (C; needs cmocka and CBLAS), python (needs torch), resnet (accuracy by codec; needs torch and Fashion-MNIST); none named is all.
# Needs nvcc and gcc, and xxhash.h or a libgradwire.so of this tree, by GRADWIRE_LIBRARY. `--data FOLDER` has Fashion-MNIST.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$PWD/build/bench-cuda out=${OUT:-$PWD/build/bench-cuda/out} data=/usr/share/datasets/fashion-mnist
stages=() failed=0
while [ $# -gt 0 ]; do
    case $1 in
    --data) data=${2:?--data needs a folder}; shift ;;
    build | steps | python | resnet) stages+=("$1") ;;
    *) echo "usage: bench/cuda/steps.sh [--data FOLDER] [build|steps|python|resnet]…" >&2; exit 2 ;;
    esac
    shift
done
[ ${#stages[@]} -gt 0 ] || stages=(build steps python resnet)
wanted() { [[ " ${stages[*]} " == *" $1 "* ]]; }
has_header() { echo "#include <$1>" | gcc -E -x c - >/dev/null 2>&1; }
mkdir -p "$build/core" "$out"

# The whole core, as a library and for the C test.
build_core() {
    local cflags=(-std=c11 -O2 -fPIC -ffp-contract=off -I"$build/list" -Isrc -Iinclude -Itests) libs=(-lpthread -lm -ldl) files
    mkdir -p "$build/list/codec"
    rm -f "$build"/core/*.o "$build"/test_*
    if has_header cblas.h; then
        cp src/codec/list.def "$build/list/codec/list.def"
        cflags+=(-DGW_HAVE_CBLAS)
        libs+=(-lopenblas)
    else
        grep -v lowrank src/codec/list.def >"$build/list/codec/list.def"
    fi
    [ "$(uname -m)" != x86_64 ] || cflags+=(-DGW_HAVE_AVX2 -DGW_HAVE_AVX512)
    files=$(find src/{adapt,base,codec,coll,comm,device,errors,feedback,plan,route,step,wire} -name '*.c' | sort | grep -v -e _neon -e comm/mpi)
    [ "$(uname -m)" = x86_64 ] || files=$(echo "$files" | grep -v -e _avx)
    [ -n "$(grep lowrank "$build/list/codec/list.def")" ] || files=$(echo "$files" | grep -v -e lowrank)
    for file in $files; do # flags as in cmake/flags.cmake
        local isa=()
        case $file in
        *_avx2.c) isa=(-mavx2 -mf16c) ;;
        *_avx512.c) isa=(-mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c -mprefer-vector-width=512) ;;
        esac
        echo "gcc ${cflags[*]} ${isa[*]} -c $file -o $build/core/$(echo "$file" | tr / _).o"
    done | xargs -P "$(nproc)" -d '\n' -n 1 bash -c
    gcc -shared -o "$build/libgradwire.so" "$build"/core/src_*.o "${libs[@]}"
    if has_header cmocka.h && has_header cblas.h; then
        for test in step_device step_device_rounds coll_device_rounds; do
            gcc "${cflags[@]}" -DGW_TESTS_EMULATED='""' -o "$build/test_$test" "tests/${test/_//test_}.c" \
                tests/support/{device_comm,gen,ranks,steps}.c "$build"/core/src_*.o -lcmocka "${libs[@]}"
        done
        gcc "${cflags[@]}" -shared -fvisibility=hidden -o "$build/libfake_nccl.so" tests/comm/{fake_nccl,fake_device}.c -lpthread
    fi
}

if wanted build; then
    bench/cuda/run.sh build
    if has_header xxhash.h; then
        build_core >"$out/core.log" 2>&1 || { tail -20 "$out/core.log"; exit 1; }
    else
        echo "no xxhash.h: ${GRADWIRE_LIBRARY:-the libgradwire.so of build/release or build/dev} is used as it is"
    fi
fi
export GRADWIRE_CUDA_LIBRARY=$build/libgradwire_cuda.so
if [ -z "${GRADWIRE_LIBRARY:-}" ] && [ -f "$build/libgradwire.so" ]; then export GRADWIRE_LIBRARY=$build/libgradwire.so; fi
if wanted steps && [ -x "$build/test_step_device" ]; then
    rm -f "$out/steps.txt"
    for test in step_device step_device_rounds coll_device_rounds; do
        timeout 300 "$build/test_$test" "$GRADWIRE_CUDA_LIBRARY" 2>&1 | tee -a "$out/steps.txt" || failed=1
    done
    # payloads that stay there: several ranks over the fake NCCL, which copies between them; one over NCCL itself
    nccl=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null || echo libnccl.so.2)
    for library in "$build/libfake_nccl.so" "$nccl"; do
        timeout 300 "$build/test_step_device" "$GRADWIRE_CUDA_LIBRARY" "$library" 2>&1 | tee -a "$out/steps.txt" || failed=1
    done
elif wanted steps; then
    echo "skip: steps in C: no cmocka.h, cblas.h or xxhash.h"
fi
if wanted python; then
    timeout 500 python3 tests/python/test_device.py 2>&1 | tee "$out/python.txt" || failed=1
fi
if wanted resnet; then
    for codec in none dense cast:to=bf16 natural:bits=8 dither:bits=4 topk:density=0.01 adacomp lowrank:rank=4; do
        timeout 150 python3 bench/cuda/resnet.py --data "$data" --codec "$codec" --json 2>>"$out/resnet.log" |
            tee -a "$out/resnet.json" || { failed=1; echo "resnet $codec FAILED: $(tail -1 "$out/resnet.log")"; }
    done
fi
exit $failed
