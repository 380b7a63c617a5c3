#!/usr/bin/env bash
# check_install.sh BUILD SOURCE [hardened]: what is installed works, also after its folder was moved: the commands from
# another folder, programs built by pkg-config and by find_package, and, where there is an MPI, the same for it and the preload.
set -euo pipefail
build=$1 source=$2
unset LD_LIBRARY_PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >/dev/null
mkdir "$work/elsewhere"
mv "$work/first" "$work/elsewhere/prefix"
prefix=$work/elsewhere/prefix
cd /
libdir=$(dirname "$(find "$prefix" -name libgradwire.so | head -1)")
export PKG_CONFIG_PATH="$libdir/pkgconfig"
# flags FLAG... PACKAGE; compile OUT FILE FLAG...
flags() { pkg-config --cflags --libs "$@"; }
compile() { gcc -std=c11 -o "$1" "${@:2}" "-Wl,-rpath,$libdir"; }

"$prefix/bin/gradwire" --version
python3 "$source/tests/house/check_elf.py" gcc "$prefix" ${3:+"$prefix"}
# no file may name the folder of the build, or where it was installed first
! grep -rlF -e "$work/first" -e "$build" "$libdir" --include='*.pc' --include='*.cmake' || { echo "they name a folder that is gone"; exit 1; }
for file in "$prefix"/bin/* "$libdir"/*.so; do
    ! readelf -dW "$file" | grep -E '(RUNPATH|RPATH)' | grep -F "$build" || { echo "$file has a RUNPATH into the build"; exit 1; }
done

# shellcheck disable=SC2046
compile "$work/shared" "$source/examples/01_encode.c" $(flags gradwire)
"$work/shared" >/dev/null
# shellcheck disable=SC2046
compile "$work/static" "$source/examples/01_encode.c" -Wl,-Bstatic -lgradwire -Wl,-Bdynamic $(flags --static gradwire | sed 's/-lgradwire//')
! readelf -dW "$work/static" | grep 'libgradwire' || { echo "not linked statically"; exit 1; }
"$work/static" >/dev/null

"$prefix/bin/gradwire" plan "$source/examples/04_job.json" --nodes 2 --link 10mbit -c topk:density=0.05 -o "$work/plan.json" -q
# shellcheck disable=SC2046
compile "$work/train" "$source/examples/04_train_with_a_plan.c" $(flags gradwire-files) -lpthread
"$work/train" "$work/plan.json" >/dev/null
# shellcheck disable=SC2046
compile "$work/train_static" "$source/examples/04_train_with_a_plan.c" -Wl,-Bstatic -lgradwire_files -lgradwire -Wl,-Bdynamic \
    $(flags --static gradwire-files | sed -E 's/-lgradwire(_files)?( |$)/ /g')
! readelf -dW "$work/train_static" | grep 'libgradwire' || { echo "not linked statically"; exit 1; }
"$work/train_static" "$work/plan.json" >/dev/null

cp "$source/examples/01_encode.c" "$work/app.c"
cp "$source/examples/04_train_with_a_plan.c" "$work/train.c"
cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(outside C)
find_package(gradwire 0.1 REQUIRED)
add_executable(app app.c)
target_link_libraries(app PRIVATE gradwire::gradwire)
find_package(Threads REQUIRED)
foreach(kind files files_static)
  add_executable(train_${kind} train.c)
  target_link_libraries(train_${kind} PRIVATE gradwire::gradwire_${kind} Threads::Threads)
endforeach()
CMAKE
cmake -S "$work" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/app" >/dev/null
for kind in files files_static; do "$work/build/train_$kind" "$work/plan.json" >/dev/null; done
echo "installed and moved: the command, pkg-config (shared, static) and find_package, also of libgradwire_files"

[ -e "$prefix/bin/gradwire-mpi" ] || exit 0
if [[ $(ldd "$prefix/bin/gradwire-mpi") == *libmpich* ]]; then
    launch=(mpiexec.mpich -n 2)
else
    launch=(mpirun.openmpi --oversubscribe --allow-run-as-root --mca btl vader,self -n 2)
fi
command -v "${launch[0]}" >/dev/null || { echo "skip: no ${launch[0]}"; exit 77; }
run() { timeout 120 "${launch[@]}" "$@" 2>&1; }
run "$prefix/bin/gradwire-mpi" bench allreduce -c natural:bits=8 -n 100000 --rounds 1 >"$work/out" || { cat "$work/out"; exit 1; }
grep -q 'natural:bits=8' "$work/out" || { cat "$work/out"; exit 1; }
# shellcheck disable=SC2046
compile "$work/mpi" "$source/examples/03_allreduce_mpi.c" $(flags gradwire-mpi) -lm
run "$work/mpi" >"$work/out" || { cat "$work/out"; exit 1; }
# shellcheck disable=SC2046
compile "$work/plain" "$source/tests/pmpi/one_sum.c" -Wl,--as-needed $(flags gradwire-mpi)
! readelf -dW "$work/plain" | grep gradwire_mpi || { echo "not a plain MPI program"; exit 1; }
run env LD_PRELOAD="$libdir/libgradwire_pmpi.so" GRADWIRE_PMPI_SPEC=natural:bits=8 "$work/plain" 300000 300000 >"$work/out" || { cat "$work/out"; exit 1; }
grep -q '^gradwire: preload: .*natural:bits=8' "$work/out" && [ "$(grep -c 'the sum is right' "$work/out")" -eq 2 ] || { cat "$work/out"; exit 1; }
echo "installed and moved: gradwire-mpi, pkg-config for MPI, the preload"
