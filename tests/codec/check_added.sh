#!/usr/bin/env bash
# A codec is added by one folder and one line of list.def: check_added.sh SOURCE. The control is the folder without the line.
set -euo pipefail
source=$1
here=$source/tests/codec/added
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source/CMakeLists.txt" "$source/cmake" "$source/include" "$source/src" "$work"
cp -r "$here/toy" "$work/src/codec"
cmake -S "$work" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DGRADWIRE_CLI=OFF -DGRADWIRE_BLAS=OFF -DGRADWIRE_MPI=OFF \
    -DGRADWIRE_CUDA=OFF >/dev/null
try() {
    cmake --build "$work/build" --target gradwire_shared >/dev/null
    cc -std=c11 -I "$work/include" "$here/user.c" -L "$work/build/src" -lgradwire "-Wl,-rpath,$work/build/src" -o "$work/user"
    "$work/user"
}
if try >"$work/said"; then
    echo "a codec that no line names was built"
    exit 1
fi
grep -q "no codec named 'toy'" "$work/said"
echo 'GW_CODEC(200, toy)' >>"$work/src/codec/list.def"
try
