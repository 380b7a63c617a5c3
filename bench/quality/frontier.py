#!/usr/bin/env python3
"""Draws loss against compression: frontier.py OUT.svg RESULTS.jsonl… (lines of lab.py or of ddp.py's gpt, of one table)

A dot is a run; runs that differ in their seed alone have one colour and one label. The grey band is the range of dense's seeds.
"""

import json
import math
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1080, 460, 70, 430, 30, 50
COLOURS = ["#1b5e9e", "#c0392b", "#2e7d32", "#8e44ad", "#d68910", "#00838f", "#6d4c41", "#ad1457", "#455a64", "#7cb342", "#3949ab", "#ef6c00"]


def label(run):
    spec = run.get("way") or run["spec"] + (" on gradients" if run["plain"] else " on momenta" if run["spec"] not in ("dense",) else "")
    return spec + ("" if run["b2"] == 0.95 else f", β2 {run['b2']}") + ("" if run["lr"] == 2e-3 else f", lr {run['lr']:g}")


def main():
    groups = {}
    for path in sys.argv[2:]:
        for line in open(path):
            found = json.loads(line)
            if found["run"].get("model", "gpt") == "gpt":
                groups.setdefault(label(found["run"]), []).append((found["compression"], found["loss"]))
    runs = [run for group in groups.values() for run in group]
    most = max(x for x, _ in runs)
    low, high = min(y for _, y in runs), min(max(y for _, y in runs), 1.2 * min(y for _, y in runs))
    pad = 0.05 * (high - low)

    def place(x, y):
        return (LEFT + math.log(x) / math.log(1.1 * most) * (WIDTH - LEFT - RIGHT),
                TOP + (high + pad - min(y, high)) / (high - low + 2 * pad) * (HEIGHT - TOP - BOTTOM))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    dense = [y for name, group in groups.items() if name.startswith("dense") and "β2" not in name and "lr" not in name for _, y in group]
    if dense:
        top, bottom = place(1, max(dense))[1], place(1, min(dense))[1]
        out.append(f'<rect x="{LEFT}" y="{top:.1f}" width="{WIDTH - LEFT - RIGHT}" height="{max(bottom - top, 1):.1f}" fill="#ddd"/>')
    for x in (1, 2, 5, 10, 20, 50, 100):
        if x <= 1.1 * most:
            at = place(x, low)[0]
            out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>'
                       f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x}×</text>')
    for i in range(5):
        y = low + i * (high - low) / 4
        out.append(f'<text x="{LEFT - 8}" y="{place(1, y)[1] + 4:.1f}" text-anchor="end">{y:.3f}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">compression of a worker\'s payload, whole run</text>'
               f'<text x="{LEFT - 50}" y="{TOP - 10}">test loss</text>')
    for i, (name, group) in enumerate(sorted(groups.items(), key=lambda item: sum(y for _, y in item[1]) / len(item[1]))):
        colour = COLOURS[i % len(COLOURS)]
        for run in group:
            x, y = place(*run)
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}" fill-opacity="0.75"/>')
        y = TOP + 10 + 18 * i
        out.append(f'<circle cx="{WIDTH - RIGHT + 18}" cy="{y - 4}" r="5" fill="{colour}"/><text x="{WIDTH - RIGHT + 30}" y="{y}" font-size="11">{name}</text>')
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    main()
