// Draws the charts of a gradwire report from the data in the page; report_page_auto.js has those of what was chosen while training. An <svg> is as wide as its place, and drawn again when
// that changes. Every chart counts what it drew in data-points.
const data = JSON.parse(document.getElementById("data").textContent);
const ways = data.ways;
const DASHES = ["", "7 3", "2 2.5", "9 3 2 3", "4 2", "12 3", "2 5", "6 2 2 2 2 2"];
const PAPER = { alone: 660, pair: 316 }; // width of a chart in print

// ---- small parts ----

// Eight looks; dense alone has the first. Ways beyond them come again with hollow marks and other dashes.
const place = (w) => w + (data.dense ? 0 : 1);
const look = (w) => place(w) < 8 ? place(w) : 1 + (place(w) - 1) % 7;
const dashes = (w) => DASHES[(look(w) + (place(w) < 8 ? 0 : 3)) % 8];
const colour = (w) => `var(--w${look(w)})`;

function add(parent, name, attributes = {}, text) {
  const svg = name === "svg" || parent.namespaceURI.endsWith("svg");
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

// A mark of the way's own shape.
function mark(parent, w, x, y, size = 4) {
  const s = size, shapes = [
    `M${-s} 0a${s} ${s} 0 1 0 ${2 * s} 0a${s} ${s} 0 1 0 ${-2 * s} 0z`,
    `M${-s * .9} ${-s * .9}h${1.8 * s}v${1.8 * s}h${-1.8 * s}z`,
    `M0 ${-1.2 * s}L${1.15 * s} ${.9 * s}H${-1.15 * s}z`,
    `M0 ${-1.3 * s}L${1.3 * s} 0L0 ${1.3 * s}L${-1.3 * s} 0z`,
    `M0 ${1.2 * s}L${1.15 * s} ${-.9 * s}H${-1.15 * s}z`,
    `M${-s} ${-s}L${s} ${s}M${-s} ${s}L${s} ${-s}`,
    `M${-1.2 * s} 0H${1.2 * s}M0 ${-1.2 * s}V${1.2 * s}`,
    `M${-s} ${-.5 * s}h${2 * s}v${s}h${-2 * s}z`];
  return add(parent, "path", { d: shapes[look(w)], transform: `translate(${x} ${y})`, fill: place(w) > 0 && place(w) < 8 || w === 0 ? colour(w) : "var(--page)", stroke: colour(w), "stroke-width": 1.5 });
}

function key(parent, w) { // a piece of the way's line, with its mark
  const svg = add(parent, "svg", { viewBox: "0 0 28 12", "aria-hidden": "true" });
  add(svg, "line", { x1: 0, x2: 28, y1: 6, y2: 6, stroke: colour(w), "stroke-width": 2.4, "stroke-dasharray": dashes(w) });
  mark(svg, w, 14, 6, 3.5);
}

// Of {label, w}: w is whose look it has.
function legend(parent, names = ways.map((way, w) => ({ label: way.label, w }))) {
  const box = add(parent, "div", { class: "legend" });
  for (const { label, w } of names) {
    const item = add(box, "span");
    key(add(item, "span", { class: "key" }), w);
    add(item, "span", {}, label);
  }
  return box;
}

function number(value) {
  if (value === null || !isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size > 0 && size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}
function bytes(value) {
  if (value === null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
  let unit = 0;
  while (value >= 999.5 && unit < 6) { value /= 1000; unit++; }
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}
const ms = (seconds) => `${number(seconds * 1e3)} ms`;
const times = (dense, sent) => sent > 0 && dense > 0 ? `${number(dense / sent)}×` : "–";
const quality = (value) => value === null ? "–" : data.bits ? value.toFixed(3) : `${value.toFixed(2)} %`;

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * .999) || power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}
function logTicks(low, high, most = 8) {
  for (const digits of [[1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 6, 8], [1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      for (const d of digits) if (d * 10 ** e >= low * .999 && d * 10 ** e <= high * 1.001) found.push(Number((d * 10 ** e).toPrecision(3)));
    }
    if (found.length <= most) return found;
  }
  const decades = [];
  for (let e = Math.ceil(Math.log10(low)); e <= Math.log10(high); e++) decades.push(10 ** e);
  return decades.filter((_, i) => i % Math.ceil(decades.length / most) === 0);
}
function scale(low, high, from, to, log = false) {
  const f = log ? Math.log : (v) => v, a = f(low), span = f(high) - a || 1;
  return (v) => from + (f(v) - a) / span * (to - from);
}

// ---- charts and their size ----

const charts = [];

// draw(box, width) fills the box anew and returns the svg.
function chart(figure, title, subtitle, draw) {
  const caption = add(figure, "figcaption", {}, title);
  if (subtitle) add(caption, "small", {}, subtitle);
  const box = add(figure, "div");
  charts.push({ box, draw, width: 0 });
}
function drawAll(print = false) {
  for (const c of charts) {
    const now = print ? PAPER[c.box.closest(".pair") ? "pair" : "alone"] : c.box.clientWidth;
    if (now > 0 && now !== c.width) {
      c.width = now;
      c.box.replaceChildren();
      c.draw(c.box, now);
    }
  }
}
function canvas(box, width, height, words) {
  return add(box, "svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words });
}
function empty(box, why) {
  add(box, "p", { class: "note" }, why);
}

// ---- lines: loss and test quality ----

// What is finite of a curve: {x, y, low, high}.
function points(curve, by, log) {
  const found = [];
  curve[by].forEach((x, i) => {
    const y = curve.mean[i];
    if (y !== null && (!log || y > 0)) found.push({ x, y, low: log ? Math.max(curve.low[i], y / 10) : curve.low[i], high: curve.high[i] });
  });
  return found;
}

// Where the first tenth of a run is far off, the axis follows the rest, and the lines come in from its edge.
function range(lines, log) {
  const all = lines.flat(), end = Math.max(...all.map((p) => p.x));
  const late = all.filter((p) => p.x > end * .1);
  const some = late.length > 1 && !log ? late : all;
  let low = Math.min(...some.map((p) => p.low)), high = Math.max(...some.map((p) => p.high));
  if (!log && !data.bits) low = Math.max(low, high - 4 * (high - Math.min(...late.map((p) => p.low))));
  if (log) return [low * .93, high * 1.05];
  const room = (high - low || Math.abs(high) || 1) * .06;
  return [low - room, high + room];
}

// Texts beside the ends of lines, moved apart where they would lie on each other.
function endLabels(svg, ends, top, bottom) {
  const placed = [];
  for (const e of ends.sort((a, b) => a.y - b.y)) {
    let y = e.y;
    for (const other of placed) {
      if (e.x < other.x + other.width && other.x < e.x + e.width && y < other.to + 15) y = other.to + 15;
    }
    placed.push(Object.assign(e, { to: y }));
  }
  const over = Math.max(0, ...placed.map((e) => e.to - bottom));
  for (const e of placed) {
    const y = Math.max(top, e.to - (over && e.to > top + over ? over : 0));
    add(svg, "text", { x: e.x + 9, y: y + 4, class: "label", style: `fill:${colour(e.w)}` }, ways[e.w].label);
  }
}

// Where lines end at different times: texts in rows beyond the ends, above rising curves and below falling ones.
// Returns the rows, of {w, x, from}; rows of one do not touch each other.
function endRows(ends, left, right) {
  const rows = [];
  for (const e of ends.sort((a, b) => a.x - b.x)) {
    const from = Math.min(Math.max(left, e.x - e.width / 2), right - e.width);
    let row = rows.find((r) => r.at(-1).from + r.at(-1).width <= from);
    if (!row) rows.push(row = []);
    row.push(Object.assign(e, { from }));
  }
  return rows;
}

function lineChart(id, title, subtitle, options) {
  const { part, by, log, show } = options;
  const figure = document.getElementById(id);
  chart(figure, title, subtitle, (box, width) => {
    const lines = ways.map((way) => points(way[part], by, log));
    const all = lines.flat();
    if (all.length === 0) return empty(box, part === "test" ? "No test was made yet." : "No step was made yet.");
    const wide = width >= 430 && ways.length <= 6, rising = part === "test" && !data.bits, height = Math.round(Math.min(340, Math.max(230, width * .6)));
    if (!wide) legend(box);
    const [low, high] = range(lines, log), last = Math.max(...all.map((p) => p.x));
    const textWidth = (w) => ways[w].label.length * 7.4 + 14;
    const room = !wide || by === "seconds" ? 16 : Math.min(width * .34, Math.max(...lines.map((l, w) => l.length ? textWidth(w) : 0)));
    const left = 44, right = width - room, axis = height - 38, x = scale(0, last, left, right);
    const ends = lines.flatMap((line, w) => line.length ? [{ w, x: x(line.at(-1).x), value: line.at(-1).y, width: textWidth(w) }] : []);
    const rows = wide && by === "seconds" ? endRows(ends, left, width) : [], space = rows.length * 16 + (rows.length ? 8 : 0);
    const top = 14 + (rising ? space : 0), bottom = axis - (rising ? 0 : space), y = scale(low, high, bottom, top, log);
    const svg = canvas(box, width, height, `${title}. ` + ways.map((way, w) =>
      lines[w].length ? `${way.label} ends at ${show(lines[w].at(-1).y)} after ${number(lines[w].at(-1).x)} ${by === "step" ? "steps" : "seconds"}` : `${way.label}: nothing`).join("; "));
    for (const t of log ? logTicks(low, high) : ticks(low, high, 5)) {
      add(svg, "line", { class: "grid", x1: left, x2: right, y1: y(t), y2: y(t) });
      add(svg, "text", { x: left - 7, y: y(t) + 4, "text-anchor": "end" }, `${Number(t.toPrecision(6))}${part === "test" && !data.bits ? " %" : ""}`);
    }
    for (const t of ticks(0, last, Math.max(3, Math.round((right - left) / 60)))) add(svg, "text", { x: x(t), y: axis + 17, "text-anchor": "middle" }, number(t));
    add(svg, "line", { class: "axis", x1: left, x2: right, y1: axis, y2: axis });
    add(svg, "text", { x: right, y: axis + 33, "text-anchor": "end" }, by === "step" ? "steps" : "seconds of training");
    const clip = `clip-${id}`;
    add(add(add(svg, "defs"), "clipPath", { id: clip }), "rect", { x: left, y: top - 8, width: right - left + 8, height: axis - top + 8 });
    if (part === "test" && by === "seconds" && data.target !== null && data.target > low && data.target < high && ways.length > 1) {
      add(svg, "line", { class: "cursor", x1: left, x2: right, y1: y(data.target), y2: y(data.target) });
      add(svg, "text", { class: "target", x: left, y: axis + 33 }, `all reach ${data.bits ? data.target : `${data.target.toFixed(1)} %`}`); // below the axis: no curve is there
      add(svg, "line", { class: "cursor", x1: left - 22, x2: left - 5, y1: axis + 29, y2: axis + 29 });
    }
    const inside = add(svg, "g", { "clip-path": `url(#${clip})` });
    lines.forEach((line, w) => {
      if (ways[w].runs > 1 && line.length > 1) {
        const band = line.map((p) => `${x(p.x).toFixed(1)} ${y(p.high).toFixed(1)}`).concat(line.toReversed().map((p) => `${x(p.x).toFixed(1)} ${y(p.low).toFixed(1)}`));
        add(inside, "path", { d: `M${band.join("L")}z`, fill: colour(w), opacity: .15 });
      }
    });
    lines.forEach((line, w) => {
      const d = line.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`).join("");
      add(inside, "path", { d, fill: "none", stroke: colour(w), "stroke-width": 2, "stroke-linejoin": "round", "stroke-dasharray": dashes(w), "data-points": line.length });
      if (part === "test") line.forEach((p, i) => (line.length <= 24 || i === line.length - 1) && mark(inside, w, x(p.x), y(p.y), 3));
      else if (line.length) mark(svg, w, x(line.at(-1).x), y(line.at(-1).y), 3.2);
    });
    rows.forEach((row, r) => row.forEach((e) => {
      const at = rising ? top - 14 - r * 16 : bottom + 18 + r * 16;
      add(svg, "line", { x1: e.x, x2: e.x, y1: y(e.value) + (rising ? -6 : 6), y2: at + (rising ? 4 : -12), stroke: colour(e.w), opacity: .6 });
      add(svg, "text", { x: e.from + e.width / 2, y: at, class: "label", "text-anchor": "middle", style: `fill:${colour(e.w)}` }, ways[e.w].label);
    }));
    if (wide && by === "step") endLabels(svg, ends.map((e) => ({ ...e, y: y(e.value) })), top, bottom - 4);
    svg.dataset.points = all.length;
    hover(box, svg, width, { left, right, top, bottom: axis, last, x, lines, by, show, names: ways.map((way, w) => ({ label: way.label, w })) });
  });
}

// The values under the pointer, or under the cursor that the arrow keys move. names[i] is of lines[i]; a `held` one keeps its
// value until the next.
function hover(box, svg, width, c) {
  const cursor = add(svg, "line", { class: "cursor", y1: c.top, y2: c.bottom, visibility: "hidden" });
  const dots = add(svg, "g");
  let tip = null, at = c.last;
  const hide = () => { cursor.setAttribute("visibility", "hidden"); dots.replaceChildren(); if (tip) { tip.remove(); tip = null; } };
  const show = (value) => {
    hide();
    at = Math.min(c.last, Math.max(0, value));
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", c.x(at));
    cursor.setAttribute("x2", c.x(at));
    tip = add(box, "div", { class: "tip" });
    add(tip, "b", {}, c.by === "step" ? `step ${number(Math.round(at))}` : `${number(at)} s`);
    const table = add(tip, "table");
    c.lines.forEach((line, i) => {
      const { label, w, held } = c.names[i], near = held ? line.findLast((p) => p.x <= at) : line.length && line.reduce((a, b) => Math.abs(b.x - at) < Math.abs(a.x - at) ? b : a);
      if (!near) return;
      const row = add(table, "tr"), name = add(row, "td");
      key(add(name, "span", { class: "key" }), w);
      add(name, "span", {}, ` ${label}`);
      add(row, "td", {}, !held && at > line.at(-1).x * 1.001 && !c.whole ? `${c.show(line.at(-1).y)} (done)` : c.show(near.y));
    });
    const at_px = c.x(at) * box.clientWidth / width, most = box.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(most, at_px > box.clientWidth / 2 ? at_px - tip.offsetWidth - 12 : at_px + 12))}px`;
    tip.style.top = `${svg.offsetTop + c.top}px`;
  };
  svg.addEventListener("pointermove", (e) => {
    const frame = svg.getBoundingClientRect();
    show((((e.clientX - frame.left) / frame.width * width) - c.left) / (c.right - c.left) * c.last);
  });
  svg.addEventListener("pointerleave", hide);
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("keydown", (e) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (move) { show(at + move * c.last / 50); e.preventDefault(); }
  });
  svg.addEventListener("blur", hide);
}

// ---- bytes a layer ----

// Layers that send together stand for one row, under the name of the first.
function rowsOf(way) {
  const rows = [];
  for (const layer of way.layers) {
    if (layer.fused && layer.bytes === 0 && rows.some((r) => r.fused)) {
      const first = rows.findLast((r) => r.fused);
      first.more++;
      first.elements += layer.elements;
      first.dense += layer.dense;
      first.ring += layer.ring;
    }
    else rows.push({ ...layer, more: 0 });
  }
  return rows.map((r) => ({ ...r, title: r.more ? `${r.name} and ${r.more} small ones` : r.name }));
}

function bytesChart() {
  const MOST = 24;
  const base = rowsOf(ways[0]).filter((r) => r.dense > 0);
  const shown = base.length > MOST ? base.toSorted((a, b) => b.dense - a.dense).slice(0, MOST) : base;
  const rows = shown.map((r) => ({ title: r.title, sent: ways.map((way) => way.layers.find((l) => l.name === r.name)?.bytes || 0) }));
  if (!data.dense) rows.forEach((row, i) => { row.dense = shown[i].dense; }); // a mark of its own, way -1
  const figure = document.getElementById("bytes");
  chart(figure, "Bytes/step of rank 0, by layer", `Each mark is a run: further left is less on the wire. Log scale.${base.length > MOST ? ` The ${MOST} largest of ${base.length}.` : ""}`, (box, width) => {
    const all = rows.flatMap((r) => r.dense ? [...r.sent, r.dense] : r.sent).filter((v) => v > 0);
    if (all.length === 0) return empty(box, "Nothing was sent yet.");
    const keys = legend(box);
    if (!data.dense) {
      const item = add(keys, "span");
      key(add(item, "span", { class: "key" }), -1);
      add(item, "span", {}, "dense, it would be");
    }
    const wide = width >= 620, left = wide ? Math.min(230, 20 + 7 * Math.max(...rows.map((r) => r.title.length))) : 4, right = width - 110;
    const each = wide ? 27 : 42, top = 8, height = top + rows.length * each + 34;
    const low = Math.min(...all) / 1.3, high = Math.max(...all) * 1.1, x = scale(low, high, left + 10, right, true);
    const svg = canvas(box, width, height, "Bytes/step of rank 0, by layer. " + rows.map((r) => `${r.title}: ${ways.map((way, w) => `${way.label} ${bytes(r.sent[w])}`).join(", ")}`).join("; "));
    const bottom = top + rows.length * each;
    for (const t of logTicks(low, high, Math.max(3, Math.floor((right - left) / 75)))) {
      add(svg, "line", { class: "grid", x1: x(t), x2: x(t), y1: top, y2: bottom });
      add(svg, "text", { x: x(t), y: bottom + 16, "text-anchor": "middle" }, bytes(t));
    }
    rows.forEach((row, i) => {
      const y = top + i * each + (wide ? each / 2 : each - 12), sent = [...row.sent, row.dense || 0].filter((v) => v > 0);
      add(svg, "text", { class: "strong label", style: "font-weight:400", x: wide ? left : left + 2, y: wide ? y + 4 : y - 13, "text-anchor": wide ? "end" : "start" }, row.title);
      if (sent.length === 0) return;
      add(svg, "line", { class: "axis", x1: x(Math.min(...sent)), x2: x(Math.max(...sent)), y1: y, y2: y });
      if (row.dense) add(mark(svg, -1, x(row.dense), y, 4.6), "title", {}, `${row.title}, dense: ${bytes(row.dense)}`);
      ways.toReversed().forEach((_, k) => {
        const w = ways.length - 1 - k;
        if (row.sent[w] > 0) add(mark(svg, w, x(row.sent[w]), y, 4.6), "title", {}, `${row.title}, ${ways[w].label}: ${bytes(row.sent[w])}`);
      });
      const most = Math.max(...sent) / Math.min(...sent);
      if (most > 1.2) add(svg, "text", { x: x(Math.max(...sent)) + 10, y: y + 4 }, `${ways.length > 1 ? "up to " : ""}${number(most)}× less`);
    });
    svg.dataset.points = all.length;
  });
}

function layerTables() {
  const parent = document.getElementById("layers");
  ways.forEach((way, w) => {
    if (w === 0 && data.dense && ways.length > 1) return; // nothing is coded there
    const details = add(parent, "details", ways.length <= 5 ? { open: "" } : {});
    const summary = add(details, "summary");
    key(add(summary, "span", { class: "key" }), w);
    add(summary, "span", {}, `${way.label}, layer by layer`);
    const box = add(details, "div", { class: "box", tabindex: "0", role: "region", "aria-label": `${way.label}, layer by layer` });
    const table = add(box, "table", { class: "layers cards" }), head = add(add(table, "thead"), "tr"), body = add(table, "tbody");
    const titles = ["layer", "codec", "route", "elements", "sent/step", "compression", "error"];
    for (const title of titles) add(head, "th", { scope: "col", class: /codec|route/.test(title) ? "words" : "" }, title);
    head.lastChild.title = "‖x−x̂‖²/‖x‖² of coding a gradient once, median of the samples";
    for (const row of rowsOf(way)) {
      const tr = add(body, "tr"), name = add(tr, "th", { scope: "row" }, `${row.title} `);
      if (!row.more) add(name, "small", {}, row.kind);
      const cells = [row.spec.replaceAll(",", ",\u200b"), row.more ? `${row.route}, together` : row.route, row.elements.toLocaleString("en"), // may break there
        bytes(row.bytes), times(row.ring, row.seen), number(row.error)];
      cells.forEach((text, i) => add(add(tr, "td", { class: i < 2 ? "words" : "", "data-label": titles[i + 1] }), "span", {}, text));
    }
    if (way.auto || way.adapt) add(details, "p", { class: "note" }, "Codec and route are those in force at the end. What was sent, compression and error are of all steps.");
  });
  add(parent, "p", { class: "note" }, "Error is ‖x−x̂‖²/‖x‖² of coding one rank’s gradient once, the median of the samples; with feedback what is lost is sent later. " +
    "Small layers are sent together, uncompressed.");
}

// ---- where the time goes ----

function hatch(svg, id, fill) { // stripes: told apart without colour
  const pattern = add(add(svg, "defs"), "pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  add(pattern, "rect", { width: 6, height: 6, fill, opacity: .35 });
  add(pattern, "rect", { width: 2.5, height: 6, fill });
  return `url(#${id})`;
}

function swatch(parent, label, fill, id) {
  const item = add(parent, "span"), svg = add(item, "svg", { class: "swatch", viewBox: "0 0 18 11", "aria-hidden": "true" });
  add(svg, "rect", { width: 18, height: 11, fill: id ? hatch(svg, id, fill) : fill });
  add(item, "span", {}, label);
}

function shareChart() {
  const known = ways.map((way, w) => ({ way, w })).filter(({ way }) => way.compute !== null);
  chart(document.getElementById("shares"), "Milliseconds of a step", "Means over all steps: computing (forward, backward, update), and waiting for gradients after backward has ended.", (box, width) => {
    if (known.length === 0) return empty(box, "No step was made yet.");
    const keys = add(box, "div", { class: "legend" });
    swatch(keys, "computing", "var(--backward)");
    swatch(keys, "waiting for gradients", "var(--wait)", "hatch-key");
    const wide = width >= 620, left = wide ? Math.min(230, 20 + 7.6 * Math.max(...known.map(({ way }) => way.label.length))) : 4, right = width - 76;
    const each = wide ? 34 : 48, height = known.length * each + 8;
    const x = scale(0, Math.max(...known.map(({ way }) => way.compute + way.wait)), left + 10, right);
    const svg = canvas(box, width, height, "Milliseconds of a step. " + known.map(({ way }) => `${way.label}: ${number(way.compute)} computing, ${number(way.wait)} waiting`).join("; "));
    const striped = hatch(svg, "hatch-shares", "var(--wait)");
    known.forEach(({ way, w }, i) => {
      const y = i * each + (wide ? 5 : 20), tall = 22, total = way.compute + way.wait;
      add(svg, "text", { class: "strong", style: `font-weight:600;fill:${colour(w)}`, x: wide ? left : left + 2, y: wide ? y + 15 : y - 5, "text-anchor": wide ? "end" : "start" }, way.label);
      add(svg, "rect", { x: x(0), y, width: x(way.compute) - x(0), height: tall, fill: "var(--backward)" });
      add(svg, "rect", { x: x(way.compute), y, width: x(total) - x(way.compute), height: tall, fill: striped, stroke: "var(--wait)", "stroke-width": .8 });
      if (x(way.compute) - x(0) > 34) add(svg, "text", { style: "fill:var(--page)", x: x(way.compute) - 6, y: y + 15, "text-anchor": "end" }, number(way.compute));
      if (x(total) - x(way.compute) > 44) add(svg, "text", { class: "strong label", style: "font-weight:400", x: x(total) - 6, y: y + 15, "text-anchor": "end" }, number(way.wait));
      add(svg, "text", { class: "strong", x: x(total) + 7, y: y + 15 }, `${number(total)} ms`);
    });
    svg.dataset.points = known.length;
  });
}

// ---- timelines ----

const PHASES = [["forward", "var(--forward)"], ["backward", "var(--backward)"], ["waiting", "var(--wait)", "hatch-wait"], ["update", "var(--update)"],
  ["queued", "var(--queue)"], ["encode", "var(--encode)"], ["wire", "var(--wire)"], ["decode", "var(--decode)"]];
const phase = Object.fromEntries(PHASES);

// Rows of {title, parts: [name, from, to]}, seconds.
function lanes(way) {
  const t = way.timeline, ends = t.layers.map((l) => l[2]), ready = Math.max(t.backward, ...ends);
  const compute = { title: "compute", parts: [["forward", -t.forward, 0], ["backward", 0, t.backward], ["waiting", t.backward, ready], ["update", ready, ready + t.update]] };
  const rows = rowsOf(way).map((row) => {
    const [posted, begun, arrived, encode, decode] = t.layers[way.layers.findIndex((l) => l.name === row.name)];
    const squeeze = Math.min(1, Math.max(0, arrived - begun) / (encode + decode || 1)); // sums of pieces may overlap
    const coded = begun + encode * squeeze, back = arrived - decode * squeeze;
    return { title: row.title, parts: [["queued", posted, begun], ["encode", begun, coded], ["wire", coded, back], ["decode", back, arrived]] };
  });
  return [compute, ...rows];
}

function timelines() {
  const MOST = 24, parent = document.getElementById("timelines"), known = ways.map((way, w) => ({ way, w })).filter(({ way }) => way.timeline);
  const all = known.map(({ way }) => lanes(way));
  const keys = document.getElementById("phases");
  PHASES.forEach(([name, fill, id]) => swatch(keys, name === "waiting" ? "waiting for gradients" : name === "wire" ? "on the wire" : name, fill, id && "hatch-phases"));
  const parts = all.flat().flatMap((r) => r.parts), low = Math.min(0, ...parts.map((p) => p[1])), high = Math.max(1e-6, ...parts.map((p) => p[2]));
  if (known.length === 0) empty(parent, "No step was sampled yet.");
  known.forEach(({ way, w }, k) => {
    const figure = add(parent, "figure", { class: "timeline" });
    const rows = all[k].length > MOST + 1 ? [all[k][0], ...all[k].slice(1).toSorted((a, b) => (b.parts[3][2] - b.parts[1][1]) - (a.parts[3][2] - a.parts[1][1])).slice(0, MOST)] : all[k];
    chart(figure, way.label, `step ${number(way.timeline.step)}, ${ms(way.timeline.seconds)}${rows.length < all[k].length ? `; the ${MOST} longest of ${all[k].length - 1} exchanges` : ""}`, (box, width) => {
      const wide = width >= 620, left = wide ? 200 : 4, right = width - 14, each = wide ? 19 : 30, bar = wide ? 12 : 11, top = 4;
      const bottom = top + rows.length * each, height = bottom + 32, x = scale(low, high, left + 10, right);
      const svg = canvas(box, width, height, `Timeline of step ${way.timeline.step}, ${way.label}. ` + rows.map((r) => `${r.title}: ` +
        r.parts.filter((p) => p[2] > p[1]).map((p) => `${p[0]} ${ms(p[1])} to ${ms(p[2])}`).join(", ")).join("; "));
      const striped = hatch(svg, `hatch-wait-${w}`, "var(--wait)");
      for (const t of ticks(low * 1e3, high * 1e3, Math.max(3, Math.floor((right - left) / 90)))) {
        add(svg, "line", { class: t === 0 ? "axis" : "grid", x1: x(t / 1e3), x2: x(t / 1e3), y1: top, y2: bottom });
        add(svg, "text", { x: x(t / 1e3), y: bottom + 15, "text-anchor": "middle" }, number(t));
      }
      add(svg, "text", { x: right, y: bottom + 29, "text-anchor": "end" }, "ms since the first gradient was posted");
      let count = 0;
      rows.forEach((row, i) => {
        const y = top + i * each + (wide ? (each - bar) / 2 : each - bar - 2);
        add(svg, "text", { class: "strong", style: i ? "" : "font-weight:600", x: wide ? left : left + 2, y: wide ? y + 10 : y - 4, "text-anchor": wide ? "end" : "start" },
          wide && row.title.length > 28 ? `${row.title.slice(0, 27)}…` : row.title);
        for (const [name, from, to] of row.parts) {
          if (!(to > from)) continue;
          const thin = name === "queued";
          const rect = add(svg, "rect", { x: x(from), width: Math.max(.8, x(to) - x(from)), y: thin ? y + bar / 2 - 1.5 : y, height: thin ? 3 : bar,
            fill: name === "waiting" ? striped : phase[name] });
          add(rect, "title", {}, `${row.title}: ${name} ${ms(to - from)}, from ${ms(from)} to ${ms(to)}`);
          count++;
        }
      });
      svg.dataset.points = count;
    });
  });
}

// ---- all of it ----

document.querySelectorAll(".key[data-way]").forEach((node) => key(node, Number(node.dataset.way)));
const window_ = Math.max(...ways.map((way) => way.window)), seeds = ways.some((way) => way.runs > 1);
document.getElementById("n-curves").textContent = (window_ > 1 ? `Each point of a loss curve is the mean of ${window_} steps. ` : "") +
  (seeds ? "Lines are means over seeds, bands reach from the lowest to the highest seed. " : "") + "Point at a chart for values.";
const what = data.bits ? "Test bits per character" : "Test accuracy", which = data.bits ? "lower is better" : "higher is better";
lineChart("loss-step", "Training loss over steps", "log scale", { part: "loss", by: "step", log: true, show: number });
lineChart("loss-seconds", "Training loss over time", "log scale", { part: "loss", by: "seconds", log: true, show: number });
lineChart("test-step", `${what} over steps`, which, { part: "test", by: "step", log: false, show: quality });
lineChart("test-seconds", `${what} over time`, which, { part: "test", by: "seconds", log: false, show: quality });
bytesChart();
layerTables();
levelCharts();
autoCharts();
timelines();
shareChart();
drawAll();
let waiting = 0;
addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(() => drawAll()); });
addEventListener("beforeprint", () => { document.querySelectorAll("details").forEach((d) => { d.open = true; }); drawAll(true); });
addEventListener("afterprint", () => drawAll());
document.documentElement.dataset.drawn = charts.length;
