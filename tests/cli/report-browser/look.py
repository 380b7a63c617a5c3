"""Looks at runs.html, text.html, many.html, nothing.html, auto.html and quiet.html of the folder it runs in."""

import json
import pathlib
import re
import subprocess
import urllib.parse

CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--enable-logging=stderr", "--v=0", f"--user-data-dir={pathlib.Path.cwd()}/profile"]
# Runs after the page's own script and leaves what it saw in the document.
PROBE = """<script>
const seen = {name: location.pathname.match(/probe-([a-z]+)/)[1], width: innerWidth, over: document.documentElement.scrollWidth - innerWidth, loaded: performance.getEntriesByType("resource").map((e) => e.name)};
seen.page = getComputedStyle(document.documentElement).backgroundColor;
seen.charts = [...document.querySelectorAll("figure")].map((figure) => ({
  title: figure.querySelector("figcaption").textContent, points: Number(figure.querySelector("svg.plot")?.dataset.points || 0),
  words: figure.querySelector("svg.plot")?.getAttribute("aria-label") || "",
  lines: [...figure.querySelectorAll("path[data-points]")].map((path) => Number(path.dataset.points)),
  bad: [...figure.querySelectorAll("svg *")].filter((e) => [...e.attributes].some((a) => /NaN|undefined|Infinity/.test(a.value))).length}));
// every cell of a wide table, with the name of its column; on a phone it lies on the screen
seen.cells = [...document.querySelectorAll("table.cards tbody td")].map((cell) => { const at = cell.getBoundingClientRect();
  return { label: cell.dataset.label, before: getComputedStyle(cell, "::before").content, left: at.left, right: at.right, inside: cell.scrollWidth <= cell.clientWidth + 1 }; });
seen.heads = [...document.querySelectorAll("table.cards thead th + th")].map((head) => head.firstChild.textContent);
// what is said of the target lies under the axis, on nothing
seen.targets = [...document.querySelectorAll("text.target")].map((text) => { const at = text.getBoundingClientRect(), svg = text.closest("svg");
  const axis = svg.querySelector("line.axis").getBoundingClientRect().bottom; // curves are cut off there
  const hit = (e) => { const o = e.getBoundingClientRect(); return !(e.closest("g[clip-path]") && at.top >= axis) && o.left < at.right && at.left < o.right && o.top < at.bottom && at.top < o.bottom; };
  return { words: text.textContent, hits: [...svg.querySelectorAll("text, path, line.grid, line.axis")].filter((e) => e !== text && hit(e)).map((e) => e.outerHTML.slice(0, 200)) }; });
seen.page_words = document.body.innerText;
seen.auto = document.getElementById("auto").hidden ? "" : document.getElementById("auto").innerText;
seen.log = document.querySelectorAll("ol.log li").length;
seen.rates = document.querySelectorAll("table.rates tbody tr").length;
const svg = document.querySelector("#test-seconds svg.plot");
if (svg) {
  const frame = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent("pointermove", {clientX: frame.left + frame.width / 2, clientY: frame.top + 40}));
  seen.tip = document.querySelector(".tip").innerText;
  seen.tipOver = document.querySelector(".tip").getBoundingClientRect().right - innerWidth;
  svg.dispatchEvent(new PointerEvent("pointerleave"));
  seen.tipGone = !document.querySelector(".tip");
}
parent.postMessage(encodeURIComponent(JSON.stringify(seen)), "*");
</script></body>"""

# A window has a smallest width, a frame has none.
FRAMES = """<!DOCTYPE html><meta name="color-scheme" content="light dark"><title></title><script>
const all = [];
addEventListener("message", (e) => { all.push(e.data); document.title = "seen " + all.join(" "); });
</script>"""
FRAME = '<iframe src="probe-%s.html" style="border:0;display:block" width="%d" height="900"></iframe>'


def browse(*options, page):
    path = pathlib.Path(page).resolve()
    done = subprocess.run([*CHROMIUM, *options, path.as_uri()], capture_output=True, text=True, timeout=100)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert done.returncode == 0 and not console, (page, options, done.returncode, console, done.stderr[-2000:])
    return done.stdout


def look(frames, *options):
    """What the probes saw, by (name, width)."""
    for name, _ in frames:
        text = pathlib.Path(f"{name}.html").read_text()
        assert text.count("</body>") == 1
        pathlib.Path(f"probe-{name}.html").write_text(text.replace("</body>", PROBE))
    pathlib.Path("frames.html").write_text(FRAMES + "".join(FRAME % frame for frame in frames))
    dom = browse("--dump-dom", "--virtual-time-budget=10000", "--window-size=1300,900", *options, page="frames.html")
    found = re.search(r"<title>seen ([^<]*)</title>", dom)
    assert found, dom[:500]
    seen = {(s["name"], s["width"]): s for s in (json.loads(urllib.parse.unquote(part)) for part in found[1].split())}
    assert set(seen) == set(frames), seen.keys()
    for name, s in seen.items():
        assert s["over"] <= 0, (name, s["over"])
        assert s["loaded"] == [], (name, s["loaded"])
        assert not any(chart["bad"] for chart in s["charts"]), (name, s["charts"])
    return seen


WAYS = {"runs": 4, "text": 2, "many": 12, "auto": 2, "quiet": 1}
seen = look([("runs", 360), ("runs", 1200), ("text", 360), ("text", 1200), ("many", 360), ("many", 1200), ("nothing", 360),
             ("auto", 360), ("auto", 1200), ("quiet", 360)])
for (name, width), s in seen.items():
    assert s["page"] == "rgb(255, 255, 255)", s["page"]
    labels = [cell["label"] for cell in s["cells"]]
    assert set(labels) == set(s["heads"]) and (name == "nothing" or len(labels) > 6), (name, labels, s["heads"])
    for cell in s["cells"]:
        assert width > 560 or (cell["before"] == f'"{cell["label"]}"' and cell["left"] >= 0 and cell["right"] <= width and cell["inside"]), (name, width, cell)
    for words in ("as it is", "fewer bytes", "ms a step", "No plan can be faster", "travel"):
        assert words not in s["page_words"], (name, words)
    if name == "nothing":
        continue
    assert name == "quiet" or [t["hits"] for t in s["targets"]] == [[]], (name, width, s["targets"])
    # a timeline a way; of auto its plan, step times, bytes, error and noise
    assert len(s["charts"]) == 6 + WAYS[name] + 5 * (name == "auto"), [c["title"] for c in s["charts"]]
    planned = [c for c in s["charts"] if c["title"].startswith("The plan over time")]
    assert len(planned) == (name == "auto"), [c["title"] for c in s["charts"]]
    if planned:
        assert planned[0]["points"] == 11, planned  # three layers by the default and by three plans; fc1 is sent as before by the first
        assert "dither 4 bits from step 1" in planned[0]["words"], planned  # as the first steps were sent
        assert all(f"from step {at}: {why}" in planned[0]["words"] for at, why in ((7, "start"), (45, "slower"), (85, "faster"))), planned
        assert [len(c["lines"]) for c in s["charts"] if c["lines"]][4:] == [4, 3, 2, 1], [(c["title"], c["lines"]) for c in s["charts"]]
        assert s["log"] == 6 and s["rates"] == 3 and "as measured" in s["auto"], s
        assert "step 44, slower: new plan from step 45" in s["auto"] and "periodic: plan kept" in s["auto"], s["auto"]
        assert s["auto"].count(": new plan from step ") == 3, s["auto"]
        assert "6 decisions, 3 changes of plan." in s["auto"] and "off what the planner had predicted" in s["auto"], s["auto"]
        assert "200 Mbit/s" in s["auto"] and not re.search(r"B/s\b", s["page_words"]), s["page_words"]
        assert "Lower bound, at that rate: " in s["auto"] and "expected" in s["auto"], s["auto"]
        assert "Log scale" in s["auto"]  # dense lies far above
    if name == "quiet":
        assert "Nothing was decided yet." in s["auto"], s["auto"]
    for chart in s["charts"]:
        assert chart["points"] > 0 and len(chart["words"]) > 20, (name, width, chart)
    for chart in s["charts"][:4]:
        assert len(chart["lines"]) == WAYS[name] and min(chart["lines"]) > 1, (name, width, chart)
    assert s["tipGone"] and s["tipOver"] <= 0, (name, width, s)
    if name == "quiet":
        continue
    dense = [line for line in s["tip"].splitlines() if "dense" in line]
    assert dense and re.search(r"\d", dense[0]), s["tip"]
dark = look([("runs", 1200)], "--blink-settings=preferredColorScheme=0")["runs", 1200]
assert dark["page"] == "rgb(21, 24, 28)", dark["page"]

browse("--print-to-pdf=page.pdf", "--no-pdf-header-footer", page="runs.html")
paper = subprocess.run(["pdftotext", "-layout", "page.pdf", "-"], capture_output=True, text=True, check=True).stdout
for words in ("4 ways to send its gradients", "time to", "Training loss over steps", "Test accuracy over time", "seconds of training",
              "natural:bits=8, layer by layer", "conv2.weight", "on the wire", "Milliseconds of a step"):
    assert words in paper, (words, paper)
print("the page is whole")
