#!/usr/bin/env bash
# libgradwire_cuda exports its one table and links neither CUDA nor the core: LIBRARY
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '{print $3}')
[ "$exported" = gw_cuda_library ] || { echo "exports: $exported"; exit 1; }
if readelf -d "$1" | grep NEEDED | grep -E 'cuda|gradwire'; then
    echo "is linked against what it must not need"
    exit 1
fi
echo "one symbol, no CUDA library needed"
