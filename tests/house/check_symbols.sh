#!/usr/bin/env bash
# A shared library exports gw_* and nothing else, and every function of its headers: LIBRARY HEADER...
set -euo pipefail
library=$1
shift
exported=$(nm -D --defined-only "$library" | awk '{print $3}' | sort)
foreign=$(grep -v '^gw_' <<<"$exported" || true)
if [ -n "$foreign" ]; then
    echo "exported, but not ours: $foreign"
    exit 1
fi
declared=$(cat "$@" | tr '\n' ' ' | grep -o 'GW_API[^;]*(' | grep -o 'gw_[a-z0-9_]*(' | tr -d '(' | sort -u)
difference=$(comm -3 <(echo "$exported") <(echo "$declared"))
if [ -n "$difference" ]; then
    echo "exported and declared differ (exported only | declared only):"
    echo "$difference"
    exit 1
fi
echo "$(wc -l <<<"$exported") symbols, all gw_*, all declared"
