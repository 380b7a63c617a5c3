#!/usr/bin/env bash
# The King James Bible as one text, for the trainer's lstm: scripts/text.sh FILE
# Made of Debian's bible-kjv; where that is not installed, nothing is made and a line says so.
set -euo pipefail
file=$1
[ ! -s "$file" ] || exit 0
if ! command -v bible >/dev/null; then
    echo "text: no bible-kjv here: $file is not made" >&2
    exit 0
fi
mkdir -p "$(dirname "$file")"
bible -f -l200 'gen1:1-rev22:21' </dev/null >"$file.tmp"
mv "$file.tmp" "$file"
