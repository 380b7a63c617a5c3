// Charts of what was chosen while training: levels, and the plans of auto. It stands before report_page.js, in one function
// with it, and holds functions only.

// ---- layers over steps ----

// "dither:bits=3,bucket=512,…" as "3 bits", "topk:density=0.01,…" as "1 %", "lowrank:rank=4,…" as "rank 4".
function levelWords(spec) {
  if (spec === "not recorded") return spec; // before gradwire.run/3
  const [, codec, name, value] = /^([a-z]+)(?::(bits|density|rank)=([^,]*))?/.exec(spec) || [, spec];
  return name === "bits" ? `${value} bits` : name === "density" ? `${number(100 * value)} %` : name === "rank" ? `rank ${value}` : codec;
}
function longWords(spec) { // with the codec's name
  const short = levelWords(spec), codec = /^[a-z]+/.exec(spec)?.[0] ?? "";
  return short.startsWith(codec) ? short : `${codec} ${short}`;
}

// How dark a ratio is, in percent, over all maps on one scale.
function inks(maps) {
  const ratios = maps.flatMap((map) => map.rows.flatMap((r) => r.parts.map((p) => p[2]))).filter((v) => v > 0);
  const low = Math.log(Math.min(...ratios)), high = Math.log(Math.max(...ratios));
  const depth = (v) => v > 0 ? 12 + 80 * (high > low ? (Math.log(v) - low) / (high - low) : .5) : 0;
  return { depth, ink: (v) => `color-mix(in srgb, var(--w1) ${depth(v).toFixed(1)}%, var(--page))`,
    keys: ratios.length ? [...new Set([0, .5, 1].map((t) => Math.exp(low + t * (high - low))))] : [] };
}

// Lines where the plan changed; with `words`, reasons over them in as many rows as they need. Returns the height of the rows.
function eventRows(events, x, left, right) {
  const ends = [];
  for (const e of events) {
    const wide = 6.6 * e.words.length + 12;
    e.from = Math.max(left, Math.min(x(e.at) - 4, right - wide));
    e.row = ends.findIndex((end) => end <= e.from);
    if (e.row < 0) e.row = ends.push(0) - 1;
    ends[e.row] = e.from + wide;
  }
  return ends.length * 16;
}
function eventLines(svg, events, x, top, bottom, words) {
  for (const e of events) {
    const line = add(svg, "line", { class: "event", x1: x(e.at), x2: x(e.at), y1: top - (words ? 3 : 0), y2: bottom });
    add(line, "title", {}, `from step ${e.at}: ${e.words}`);
    if (words) add(svg, "text", { class: "label", x: e.from, y: top - 7 - 16 * e.row }, e.words);
    else add(svg, "path", { class: "event", d: "M-4 -6h8l-4 6z", transform: `translate(${x(e.at)} ${top})` });
  }
}

// rows of {name, parts: [step, spec, ratio, route]} over `steps`; events of {at, words}.
function levelMap(figure, title, subtitle, label, { rows, steps }, { depth, ink, keys }, events, text) {
  chart(figure, title, subtitle, (box, width) => {
    if (rows.length === 0) return empty(box, "No layer was compressed.");
    const swatches = add(box, "div", { class: "legend" });
    for (const v of keys) swatch(swatches, v < 1.005 ? "uncompressed" : `${number(v)}×`, ink(v));
    const wide = width >= 620, left = wide ? Math.min(230, 20 + 7 * Math.max(...rows.map((r) => r.name.length))) : 4, right = width - 14, x = scale(1, steps + 1, left + 10, right);
    const tall = 22, each = wide ? 27 : 44, top = 4 + eventRows(events, x, left + 10, width), bottom = top + rows.length * each;
    const svg = canvas(box, width, bottom + 32, `Levels over steps, ${label}. ` + rows.map((r) => `${r.name}: ${r.parts.map((p) => `${text(p[1])} from step ${p[0]}`).join(", ")}`).join("; ") +
      events.map((e) => `; from step ${e.at}: ${e.words}`).join(""));
    let count = 0;
    rows.forEach((row, i) => {
      const y = top + i * each + (wide ? 2 : each - tall - 2);
      row.parts.forEach(([from, spec, ratio, route], k) => {
        const to = k + 1 < row.parts.length ? row.parts[k + 1][0] : steps + 1, room = x(to) - x(from), words = [text(spec), levelWords(spec)].find((t) => room > 6.6 * t.length + 8);
        const rect = add(svg, "rect", { x: x(from), y, width: Math.max(.5, room), height: tall, fill: ink(ratio), stroke: "var(--line)", "stroke-width": .7 });
        add(rect, "title", {}, `${row.name}, steps ${from} to ${to - 1}: ${spec}${ratio > 1.005 ? `, compression ${number(ratio)}×` : ""}\nroute: ${route}`);
        if (words) add(svg, "text", { style: `fill:var(${depth(ratio) > 50 ? "--page" : "--text"});pointer-events:none`, x: x(from) + 5, y: y + 15 }, words);
        count++;
      });
    });
    for (const t of ticks(1, steps, Math.max(3, Math.floor((right - left) / 90)))) {
      if (t >= 1) add(svg, "text", { x: x(t), y: bottom + 16, "text-anchor": "middle" }, number(t));
    }
    add(svg, "text", { x: right, y: bottom + 30, "text-anchor": "end" }, "steps");
    eventLines(svg, events, x, top, bottom, true);
    rows.forEach((row, i) => { // over the lines: on a phone they cross
      const y = top + i * each + (wide ? 17 : each - tall - 7);
      add(svg, "text", { class: "strong label", style: "font-weight:400", x: wide ? left : left + 2, y, "text-anchor": wide ? "end" : "start" }, wide && row.name.length > 31 ? `${row.name.slice(0, 30)}…` : row.name);
    });
    svg.dataset.points = count;
  });
}

function levelCharts() {
  const known = ways.filter((way) => way.adapt);
  document.getElementById("adapt").hidden = known.length === 0;
  const colours = inks(known.map((way) => way.adapt));
  for (const way of known) levelMap(add(document.getElementById("levels"), "figure", { class: "levels" }), way.label, "", way.label, way.adapt, colours, [], levelWords);
}

// ---- auto ----

function lookOf(i) { // the way that has look i
  return i - (data.dense ? 0 : 1);
}

// Lines over steps: {label, look, points: [step, value], held}. From 0 up, or on a log scale where they lie far apart.
function stepsChart(figure, title, subtitle, lines, steps, events, show) {
  const drawn = lines.map((l) => ({ label: l.label, w: lookOf(l.look), held: l.held, line: l.points.filter(([, y]) => y !== null).map(([x, y]) => ({ x, y })) })).filter((l) => l.line.length);
  const values = drawn.flatMap((l) => l.line.map((p) => p.y)), least = Math.min(...values.filter((v) => v > 0)), most = Math.max(...values);
  const log = values.every((v) => v > 0) && most > 6 * least;
  chart(figure, title, log ? `${subtitle} Log scale.` : subtitle, (box, width) => {
    if (!(most > 0)) return empty(box, "Nothing is known yet.");
    legend(box, drawn);
    const height = Math.round(Math.min(300, Math.max(210, width * .5))), left = 62, right = width - 14, top = 18, bottom = height - 38;
    const low = log ? least * .85 : 0, high = most * (log ? 1.12 : 1.06), x = scale(0, steps, left, right), y = scale(low, high, bottom, top, log);
    const svg = canvas(box, width, height, `${title}. ` + drawn.map((l) => `${l.label} ends at ${show(l.line.at(-1).y)}`).join("; "));
    for (const t of log ? logTicks(low, high, 6) : ticks(low, high, 4)) {
      add(svg, "line", { class: "grid", x1: left, x2: right, y1: y(t), y2: y(t) });
      add(svg, "text", { x: left - 7, y: y(t) + 4, "text-anchor": "end" }, show(t));
    }
    for (const t of ticks(0, steps, Math.max(3, Math.round((right - left) / 70)))) add(svg, "text", { x: x(t), y: bottom + 17, "text-anchor": "middle" }, number(t));
    add(svg, "line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
    add(svg, "text", { x: right, y: bottom + 33, "text-anchor": "end" }, "steps");
    eventLines(svg, events, x, top, bottom, false);
    for (const { line, w, held } of drawn) {
      const d = line.map((p, i) => `${i ? held ? `H${x(p.x).toFixed(1)}V` : `L${x(p.x).toFixed(1)} ` : `M${x(p.x).toFixed(1)} `}${y(p.y).toFixed(1)}`).join("") + (held ? `H${x(steps).toFixed(1)}` : "");
      add(svg, "path", { d, fill: "none", stroke: colour(w), "stroke-width": 2, "stroke-linejoin": "round", "stroke-dasharray": dashes(w), "data-points": line.length });
      mark(svg, w, held ? x(steps) : x(line.at(-1).x), y(line.at(-1).y), 3.2);
    }
    svg.dataset.points = values.length;
    hover(box, svg, width, { left, right, top, bottom, last: steps, x, lines: drawn.map((l) => l.line), by: "step", show, names: drawn, whole: true });
  });
}

const bandwidth = (bytesPerSecond) => bytesPerSecond >= 125e6 ? `${number(bytesPerSecond * 8e-9)} Gbit/s` : `${number(bytesPerSecond * 8e-6)} Mbit/s`;

// The best plan's step where the link were slower or faster.
function rateTable(parent, rates) {
  if (rates.half === null && rates.double === null) return;
  const title = "The best plan’s step, by bandwidth", table = add(add(parent, "div", { class: "box", tabindex: "0", role: "region", "aria-label": title }), "table", { class: "rates" });
  add(table, "caption", {}, title);
  const head = add(add(table, "thead"), "tr"), body = add(table, "tbody");
  for (const column of ["bandwidth", "link", "ms/step", "factor"]) add(head, "th", { scope: "col" }, column);
  for (const [which, factor, seconds] of [["half", .5, rates.half], ["as measured", 1, rates.same], ["double", 2, rates.double]]) {
    const row = add(body, "tr");
    add(row, "th", { scope: "row" }, which);
    add(row, "td", {}, rates.link === null ? "–" : bandwidth(rates.link * factor));
    add(row, "td", {}, seconds === null ? "–" : number(seconds * 1e3));
    add(row, "td", {}, seconds === null || rates.same === null ? "–" : `${number(seconds / rates.same)}×`);
  }
  add(parent, "p", { class: "note" }, "Predicted, by the last decision that looked at other rates." +
    (rates.dense === null ? "" : ` Dense, at the rate as measured: ${ms(rates.dense)}.`) + (rates.bound === null ? "" : ` Lower bound, at that rate: ${ms(rates.bound)}.`));
}

// What a decision did to the plan. A change of buckets alone is none of codec or route.
const did = (d) => d.changed ? `new plan from step ${number(d.bound)}` : d.outcome === "switched" ? `other buckets from step ${number(d.bound)}` : "plan kept";

function logList(parent, decisions) {
  const list = add(parent, "ol", { class: "log" });
  for (const d of decisions) {
    const item = add(list, "li", d.changed ? { class: "changed" } : {}), head = add(item, "span", { class: "when" });
    add(head, "b", {}, `step ${number(d.step)}`);
    add(head, "span", {}, `, ${d.reason.replaceAll("_", " ")}: ${did(d)}`);
    add(item, "span", { class: "said" }, d.words);
  }
}

function autoWay(parent, way, several) {
  const a = way.auto, { steps, decisions, watch } = a, MOST = 12;
  const changes = decisions.filter((d) => d.changed), events = () => changes.map((d) => ({ at: d.bound, words: d.reason.replaceAll("_", " ") }));
  if (several) add(parent, "h3", {}, way.label);
  if (a.taken === 0) return empty(parent, "Nothing was decided yet.");
  add(parent, "p", {}, `${a.taken} decision${a.taken === 1 ? "" : "s"}${way.runs > 1 ? ` in ${way.runs} runs` : ""}, ${a.switches} change${a.switches === 1 ? "" : "s"} of plan.` +
    (a.off === null ? "" : ` The median window was ${number(100 * a.off)} % off what the planner had predicted.`));
  levelMap(add(parent, "figure", { class: "levels" }), "The plan over time", "The darker, the higher the compression against fp32, log scale. Lines say why the plan changed. Point at a bar for its codec and route.",
    way.label, a, inks([a]), events(), longWords);
  const pair = add(parent, "div", { class: "pair" }), at = (part) => watch.map((w) => [w[0], w[part]]), of = (part, by) => decisions.map((d) => [d[by], d[part]]);
  const next = () => add(pair, "figure");
  stepsChart(next(), "A step, predicted and measured", "Measured: the median of a window, mean over ranks. Predicted: by the planner, when it made the plan. Expected: by what was measured since.",
    [{ label: "measured", look: 1, points: at(1) }, { label: "predicted", look: 2, points: at(2) }, { label: "expected", look: 3, points: at(3) }, { label: "dense, predicted", look: 0, points: of("dense", "step"), held: true }], steps, events(), ms);
  stepsChart(next(), "Bytes/step", "Sent by rank 0.", [{ label: "sent", look: 1, points: a.bytes.map((b) => [b[0], b[1]]) },
    { label: "predicted", look: 2, points: of("bytes", "bound"), held: true }, { label: "dense", look: 0, points: a.bytes.map((b) => [b[0], b[2]]) }], steps, events(), bytes);
  stepsChart(next(), "Error and its budget", "In the metric of the plan.", [{ label: "error", look: 1, points: at(4) }, { label: "budget", look: 0, points: at(5) }], steps, events(), number);
  stepsChart(next(), "Error against noise", "Variance of the compression error over that of the gradients’ own noise.", [{ label: "noise ratio", look: 4, points: at(6) }], steps, events(), number);
  rateTable(parent, a.rates);
  add(parent, "h4", {}, "Decisions");
  const few = decisions.length <= MOST;
  logList(parent, few ? decisions : changes.slice(-MOST));
  if (!few) {
    const details = add(parent, "details");
    add(details, "summary", {}, way.runs === 1 && a.taken > decisions.length ? `${decisions.length} that changed the plan, of ${a.taken}` : `All ${decisions.length}`);
    logList(details, decisions);
  }
}

function autoCharts() {
  const known = ways.filter((way) => way.auto);
  document.getElementById("auto").hidden = known.length === 0;
  for (const way of known) autoWay(document.getElementById("autos"), way, known.length > 1);
}

