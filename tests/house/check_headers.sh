#!/usr/bin/env bash
# Every public header compiles alone, as C11 and as C++17.
set -euo pipefail
include=$1
command -v g++ >/dev/null || { echo "skip: no g++"; exit 77; }
for header in "$include"/gradwire/*.h; do
    name=gradwire/$(basename "$header")
    echo "#include <$name>" | gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$include" -x c -fsyntax-only -
    echo "#include <$name>" | g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$include" -x c++ -fsyntax-only -
done
echo "headers compile alone, as C11 and C++17"
