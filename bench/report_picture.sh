#!/usr/bin/env bash
# The picture of a report that a README shows: its title, its first sentence and its curves, 1120 pixels wide, twice as fine.
#     bench/report_picture.sh REPORT.html OUT.png [WIDTH HEIGHT]
set -euo pipefail
[ $# -eq 2 ] || [ $# -eq 4 ] || { sed -n '3s/^# *//p' "$0"; exit 2; }
report=$1 picture=$2 width=${3:-1120} height=${4:-950}
command -v chromium >/dev/null || { echo "no chromium: apt-get install chromium" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The page without what does not fit on a picture: table, layers, timelines.
python3 - "$report" "$work/page.html" <<'P'
import sys
page = open(sys.argv[1], encoding="utf-8").read()
style = ("<style>header p:not(.lead):not(.brand), header ul, section, footer { display: none } section[aria-labelledby=h-test] { display: block } "
         "section[aria-labelledby=h-test] > h2, .note { display: none } .pair { grid-template-columns: 1fr 1fr }</style>")
assert page.count("</head>") == 1, "not a report"
open(sys.argv[2], "w", encoding="utf-8").write(page.replace("</head>", style + "</head>"))
P
HOME=$work chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=2 --user-data-dir="$work/profile" \
    --window-size="$width,$height" --screenshot="$work/picture.png" "file://$work/page.html" 2>"$work/log" >&2 || { cat "$work/log" >&2; exit 1; }
mv "$work/picture.png" "$picture"
echo "$picture"
