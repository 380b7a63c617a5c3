#!/usr/bin/env bash
# Coding on the GPU against coding on the CPU, predicted and measured: NETLAB=path/to/netlab bench/cuda/coding.sh [--dry] [build]
# Two ranks on one GPU, each a node of netlab with a slow link, train GPT-2 small. The script measures the job, the codecs on both
# devices and the link. It plans for the GPU alone, for the CPU alone and for both. Then it times these plans beside DDP.
# `build` only builds, into $BUILT (build/coding-built). Without it a complete folder is used as it is, so that both may be on
# different machines. --dry: a tiny model on the CPU; with EMULATED=path/to/libgradwire_cuda_emulated.so the CPU's memory is taken
# for a GPU's. Needs root. Results are in build/coding-out; the table, the runs and an archive of all are copied to $OUT.
# Also read: PACK (a folder of ../shared/lab/pack), PYTHON, RATES ("1gbit 10gbit"), SPECS (no rounds, so no lowrank), LIMIT (450 seconds for all; the
# timed runs share what the rest leaves).
set -euo pipefail
cd "$(dirname "$0")/../.."
built=${BUILT:-$PWD/build/coding-built} out=$PWD/build/coding-out # $OUT has room for few files
python=${PYTHON:-python3} dry=() only_build=0 failed=0
while [ $# -gt 0 ]; do
    case $1 in
    --dry) dry=(--dry) ;;
    build) only_build=1 ;;
    *) sed -n '2s/^# //p' "$0" >&2; exit 2 ;;
    esac
    shift
done
[ ${#dry[@]} -gt 0 ] || : "${RATES:=1gbit 10gbit}"
: "${RATES:=100mbit}" "${LIMIT:=450}" "${SPECS:=dither:bits=4 topk:density=0.01}"
begun=$(date +%s)
say() { echo "[$(($(date +%s) - begun)) s] $*"; }

# What the pack compresses, to fit the limit on what travels.
if [ -n "${PACK:-}" ]; then
    for file in "$PACK"/lib/*.gz "$PACK"/built/*.gz; do [ ! -e "$file" ] || [ -e "${file%.gz}" ] || gunzip -k "$file"; done
    [ ! -e "$PACK/built/gradwire" ] || chmod +x "$PACK/built/gradwire"
    [ -n "${BUILT:-}" ] || [ ! -e "$PACK/built/gradwire" ] || built=$PACK/built
fi
files=(gradwire libgradwire.so)
[ ${#dry[@]} -gt 0 ] || files+=(libgradwire_cuda.so)
complete() { for file in "${files[@]}"; do [ -e "$built/$file" ] || return 1; done; "$built/gradwire" --version >/dev/null; }
if [ $only_build = 1 ] || ! complete; then
    say "build"
    mkdir -p "$built"
    cmake -S . -B build/coding -DCMAKE_BUILD_TYPE=Release -DGRADWIRE_MPI=OFF -DGRADWIRE_TESTS=OFF >"$built/build.log"
    cmake --build build/coding -j "$(nproc)" >>"$built/build.log"
    cp -L build/coding/cli/gradwire build/coding/src/libgradwire.so "$built/"
    [ ! -e build/coding/src/libgradwire_cuda.so ] || cp -L build/coding/src/libgradwire_cuda.so "$built/"
fi
[ $only_build = 0 ] || exit 0
cuda=$built/libgradwire_cuda.so
[ ${#dry[@]} -eq 0 ] || cuda=${EMULATED:-}
export GRADWIRE_LIBRARY=$built/libgradwire.so GRADWIRE_CUDA_LIBRARY=$cuda OPENBLAS_NUM_THREADS=1 PYTHONUNBUFFERED=1
netlab=${NETLAB:-$(command -v netlab)} || { echo "coding.sh: no netlab: set NETLAB" >&2; exit 1; }
mkdir -p "$out"
rm -rf "${out:?}"/*

finish() {
    "$netlab" down >/dev/null 2>&1 || true
    [ -n "${OUT:-}" ] || return 0
    tar -C "$out" -czf "$OUT/coding.tar.gz" .
    for file in "$out"/{table.txt,job.json,run-*.json}; do [ ! -e "$file" ] || cp "$file" "$OUT/"; done
}
trap finish EXIT
up() { # RATE: with a delay if the machine can, so that small messages cost what they should
    "$netlab" up 2 "$1" 1us >"$out/netlab.log" 2>&1 && return
    say "no delay here ($(tail -1 "$out/netlab.log")): links let 128 KiB through for free after a pause"
    "$netlab" down >/dev/null 2>&1 || true
    "$netlab" up 2 "$1" >"$out/netlab.log" 2>&1
}
ranks() { NETLAB_TIMEOUT=${patience:-120} "$netlab" run "$python" bench/cuda/coding.py "$@" "${dry[@]}" | sed -u 's/^\[0\] //'; }

first=${RATES%% *}
up "$first"
say "job"
patience=200 ranks job "$out" # the first import of torch on a fresh machine may take a minute

# Both ranks' cores and the GPU are shared while codecs are measured, as in a step.
specs=(-c cast:to=bf16)
for spec in $SPECS; do specs+=(-c "$spec"); done
device=() elements=()
[ -z "$cuda" ] || device=(--device cuda --cuda "$cuda" --nodes 2 --ranks-per-node 1 --link "$first")
[ ${#dry[@]} -eq 0 ] || elements=(-n 128Ki)
say "codecs"
each=$((($(nproc) - 2) / 2))
of_rank() { # RANK COMMAND...: on that rank's cores, as in coding.py
    if [ $each -lt 2 ]; then "${@:2}"; else taskset -c "$(($1 * each))-$((($1 + 1) * each - 1))" "${@:2}"; fi
}
jobs=()
for rank in 0 1; do
    of_rank $rank timeout 150 "$built/gradwire" profile "${device[@]}" "${elements[@]}" "${specs[@]}" --force -o "$out/codecs-$rank.json" \
        >"$out/codecs-$rank.log" 2>&1 &
    jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || { cat "$out"/codecs-*.log; exit 1; }; done

rates_left=$(wc -w <<<"$RATES")
for rate in $RATES; do
    [ "$rate" = "$first" ] || { "$netlab" down >/dev/null 2>&1 || true; up "$rate"; }
    say "link $rate"
    ranks link "$out" "$rate"
    threads=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["coding_threads"])' "$out/link-$rate.json")
    if [ "$rate" = "$first" ] && [ "$threads" -gt 1 ]; then
        say "codecs with $threads threads"
        for spec in $SPECS; do
            feedback=()
            case $spec in topk* | adacomp* | sign* | randk* | lowrank*) feedback=(--feedback --steps 8) ;; esac
            for count in 1 "$threads"; do
                name=all
                [ "$count" != 1 ] || name=one
                jobs=()
                for rank in 0 1; do
                    of_rank $rank timeout 60 "$built/gradwire" bench codec "$spec" -n 8Mi -r 7 --threads "$count" "${feedback[@]}" --json \
                        >"$out/threads-$name-${spec//[:=]/_}.json.$rank" 2>>"$out/threads.log" &
                    jobs+=($!)
                done
                for job in "${jobs[@]}"; do wait "$job" || { tail -3 "$out/threads.log"; exit 1; }; done
                mv "$out/threads-$name-${spec//[:=]/_}.json.0" "$out/threads-$name-${spec//[:=]/_}.json"
                rm "$out/threads-$name-${spec//[:=]/_}.json.1"
            done
        done
    fi
    "$python" bench/cuda/coding.py cluster "$out" "$rate"
    for spec in $SPECS; do
        for where in gpu cpu cpu,gpu; do
            [ -n "$cuda" ] || [ $where = cpu ] || continue
            name=plan-$rate-${spec/:/_}-${where/cpu,gpu/mix}
            "$built/gradwire" plan "$out/job.json" --cluster "$out/cluster-$rate.json" -c "$spec" --devices $where --no-fusion --json \
                -o "$out/$name.json" >"$out/$name.out.json"
        done
    done
    say "runs at $rate, before them predicted:"
    grep -H '"step_ms"' "$out/plan-$rate-"*.out.json | sed "s|.*plan-$rate-||; s|.out.json:||"
    seconds=$(((LIMIT - $(date +%s) + begun) / rates_left - 30))
    [ $seconds -ge 20 ] || seconds=20
    rates_left=$((rates_left - 1))
    patience=$((seconds + 90)) ranks run "$out" "$rate" --seconds $seconds || { failed=1; say "the runs at $rate FAILED; the table has those before"; }
    say "done with $rate"
done
for rate in $RATES; do "$python" bench/cuda/coding.py table "$out" "$rate" || failed=1; done > >(tee "$out/table.txt")
exit $failed
