#!/usr/bin/env bash
# The Python tests with torch from PyPI: scripts/torch2.sh [VERSION]
# Makes build/torch2 once. Where PyPI cannot be reached, that is a skip with its reason.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-2.13.0}
venv=build/torch2
if ! "$venv/bin/python" -c "import torch; assert torch.__version__.startswith('$version')" 2>/dev/null; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    if ! "$venv/bin/pip" install -q --disable-pip-version-check "torch==$version" numpy 2>build/torch2.log; then
        tail -n 3 build/torch2.log >&2
        echo "skip: torch $version could not be installed from PyPI"
        exit 0
    fi
fi
cmake --preset dev >/dev/null
cmake --build build/dev --target gradwire_shared gradwire_cuda_emulated test_trainer_plan >/dev/null
echo "== test torch $version"
export GRADWIRE_LIBRARY=$PWD/build/dev/src/libgradwire.so PYTHONDONTWRITEBYTECODE=1
export GRADWIRE_TEST_PLAN=$PWD/build/dev/tests/test_trainer_plan
export GRADWIRE_EMULATED=$PWD/build/dev/tests/libgradwire_cuda_emulated.so
exec "$venv/bin/python" tests/python/all.py
