#!/usr/bin/env bash
# Every public header compiles alone, as C11 and as C++17: INCLUDE [MPI's include folders]
set -euo pipefail
include=$1
shift
mpi=("${@/#/-isystem}")
command -v g++ >/dev/null || { echo "skip: no g++"; exit 77; }
for header in "$include"/gradwire/*.h; do
    name=gradwire/$(basename "$header")
    if [ "$name" = gradwire/mpi.h ] && [ $# -eq 0 ]; then
        echo "no MPI: $name is not compiled"
        continue
    fi
    echo "#include <$name>" | gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$include" "${mpi[@]}" -x c -fsyntax-only -
    echo "#include <$name>" | g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$include" "${mpi[@]}" -x c++ -fsyntax-only -
done
echo "headers compile alone, as C11 and C++17"
