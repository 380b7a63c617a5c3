#!/usr/bin/env bash
# Sees that what a door of the Makefile needs is installed: scripts/setup.sh run|check|test|all
# As root, or with sudo that asks nothing, it installs Debian's packages; otherwise it names them, as it always does for
# check. Then it makes the text that the trainer's lstm reads, build/data/kjv.txt.
set -euo pipefail

run=(gcc libc6-dev cmake ninja-build pkg-config libjansson-dev libxxhash-dev libopenblas-dev zlib1g-dev
    dataset-fashion-mnist bible-kjv)
check=(g++ libcmocka-dev clang-format-14 python3 git)
test=(libopenmpi-dev openmpi-bin)
all=(clang-14 clang-tidy-14 libclang-rt-14-dev qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    libmpich-dev mpich chromium poppler-utils python3-venv)

case "${1:-}" in
run) wanted=("${run[@]}") ;;
check) wanted=("${run[@]}" "${check[@]}") ;;
test) wanted=("${run[@]}" "${check[@]}" "${test[@]}") ;;
all) wanted=("${run[@]}" "${check[@]}" "${test[@]}" "${all[@]}") ;;
*) echo "usage: scripts/setup.sh run|check|test|all" >&2; exit 2 ;;
esac

# Any torch will do for the tests; Debian's takes 150 MB. Its matrix products need libopenblas0-pthread, which the
# libopenblas-dev above brings.
if [[ "$1" == test || "$1" == all ]] && ! python3 -c "import torch" 2>/dev/null && ! /usr/bin/python3 -c "import torch" 2>/dev/null; then
    wanted+=(python3-torch)
fi

if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system; make sure of these, or what they are called here:" >&2
    echo "  ${wanted[*]}" >&2
    exit 0
fi
missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
text() {
    "$(dirname "$0")/text.sh" "$(dirname "$0")/../build/data/kjv.txt"
}
if [ ${#missing[@]} -eq 0 ]; then
    text
    exit 0
fi

if [ "$1" = check ]; then
    echo "setup: these packages are not installed; if the build misses one, \`make test\` installs them, or:" >&2
    echo "  sudo apt-get install ${missing[*]}" >&2
    exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "setup: these packages are missing, and installing them takes root:" >&2
        echo "  sudo apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "setup: installing ${missing[*]}" >&2
install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
# The list of packages may be old or empty: update only if need be.
install 2>/dev/null || { "${as_root[@]}" apt-get update -qq >/dev/null && install; }
text
