#!/usr/bin/env bash
# What is installed can be used from outside: by pkg-config and by find_package.
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
"$work/prefix/bin/gradwire" --version
cp "$source/examples/01_encode.c" "$work/app.c"
libdir=$(dirname "$(find "$work/prefix" -name libgradwire.so | head -1)")
# the prefix of the build is not the prefix of this installation
flags=$(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config --define-variable=prefix="$work/prefix" --cflags --libs gradwire)
# shellcheck disable=SC2086
gcc -std=c11 "$work/app.c" -o "$work/by_pkgconfig" $flags
LD_LIBRARY_PATH="$libdir" "$work/by_pkgconfig" >/dev/null
cat >"$work/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.20)
project(outside C)
find_package(gradwire 0.1 REQUIRED)
add_executable(app app.c)
target_link_libraries(app PRIVATE gradwire::gradwire)
EOF
cmake -S "$work" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/app" >/dev/null
echo "installed, and used by pkg-config and find_package"
