// What several views share: numbers and times for people, states, tables, values, charts.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import uPlot from "./vendor/uplot.js";

export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;
export const number = (value) => value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US");
const fraction = (value, digits) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
// Records a second: of a slow topology with a digit more.
export const rate = (value) => value === null || value === undefined ? "–" : value < 9.95 && !Number.isInteger(value) ? fraction(value, 1) : number(value);
export const milliseconds = (value) => value === undefined || value === null ? "–"
  : value >= 10_000 ? `${(value / 1000).toFixed(1)} s` : value >= 100 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`;
export const seconds = (value) => milliseconds(value === undefined || value === null ? value : value * 1000);
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}
// Numbers in a text get their thousands apart: "1..100000000" is "1 to 100,000,000".
export const spaced = (text) => String(text).replace("..", " to ").replace(/\d{4,}/g, (digits) => Number(digits).toLocaleString("en-US"));
export const clock = (millis) => millis ? new Date(millis).toLocaleTimeString("en-GB") : "–";
export const moment = (millis) => millis ? new Date(millis).toLocaleString("en-GB") : "–";
// The time of a moment of today, and with its day of any other.
export const when = (millis) => new Date(millis).toDateString() === new Date().toDateString() ? clock(millis) : moment(millis);
export function ago(millis) {
  if (!millis) return "never";
  const seconds = Math.max(0, Math.round((Date.now() - millis) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 86400 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86400)} days ago`;
}
export const offsets = (all) => all.length > 32 ? `${all.slice(0, 32).map(number).join(" · ")} … ${all.length} partitions` : all.map(number).join(" · ");
export const total = (metrics = {}) => (metrics.prime_ms ?? 0) + (metrics.process_ms ?? 0) + (metrics.commit_ms ?? 0);

// Each state has a sign beside its colour, so that it is told without colours, too.
const LOOKS = {
  running: ["good", "▶"], failing: ["bad", "✖"], paused: ["warn", "❚❚"], pausing: ["warn", "❚❚"], starting: ["plain", "…"],
  finished: ["good", "✔"], failed: ["bad", "✖"], "running or killed": ["plain", "▷"],
  stopped: ["plain", "■"], collected: ["plain", "○"], "stopped, paused": ["plain", "■"], unreadable: ["bad", "?"],
};
export function State({ status }) {
  const name = status.state ?? "unreadable";
  const [kind, sign] = LOOKS[name] ?? ["plain", "?"];
  return html`<span class="tag ${kind}" data-state=${name}><span aria-hidden="true">${sign}</span>${name}</span>`;
}

export const Notice = ({ error, children }) => html`<div class="notice ${error ? "bad" : ""}" role=${error ? "alert" : "status"}>
  ${error ? html`<strong>${error.code ?? "Error"}</strong>: ${error.message}` : children}</div>`;

// A view of what cannot be shown: it says what was looked for all the same.
export const Absent = ({ name, module, error }) => html`<div class="head"><h1>${name}${module && html` <span class="soft">of ${module}</span>`}</h1></div><${Notice} error=${error} />`;

// The parts of a store that have a list of their own.
const LISTS = [["modules", "Modules", "#/"], ["graphs", "Graphs", "#/graphs"], ["datasets", "Datasets", "#/datasets"]];
export const StoreTabs = ({ at }) => html`<nav class="tabs" aria-label="Parts of the store">${LISTS.map(([name, title, link]) =>
  html`<a href=${link} aria-current=${name === at ? "page" : undefined}>${title}</a>`)}</nav>`;

export const Facts = ({ facts }) => html`<dl class="facts">${Object.entries(facts).map(([name, value]) =>
  html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

// Columns: [heading, cell of a row, is it a number]. In a narrow window each row becomes a card, whose cells have their
// headings above them; the roles say that it is a table all the same.
export const Table = ({ columns, rows, label, empty = "Nothing yet." }) => rows.length === 0 ? html`<p class="soft">${empty}</p>`
  : html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table role="table"><thead role="rowgroup"><tr role="row">
    ${columns.map(([name, , isNumber]) => html`<th scope="col" role="columnheader" class=${isNumber ? "num" : ""}>${name}</th>`)}</tr></thead>
    <tbody role="rowgroup">${rows.map((row, at) => html`<tr key=${row.key ?? at} role="row">${columns.map(([name, cell, isNumber]) =>
      html`<td role="cell" data-heading=${name} class=${isNumber ? "num" : ""}>${cell(row)}</td>`)}</tr>`)}</tbody></table></div>`;

// --- values ---------------------------------------------------------------------------------------------------------

const isTree = (value) => value !== null && typeof value === "object";
const LINE = 90;
const short = (text) => text.length > LINE ? `${text.slice(0, LINE)} …` : text;
const SHOWN_MAX = 200;

// One value: as a line where it fits, else as a tree that opens.
export function Value({ value, name }) {
  const head = name === undefined ? "" : html`<span class="soft mono">${name}: </span>`, text = JSON.stringify(value) ?? "null";
  if (!isTree(value) || text.length <= LINE) return html`<li>${head}<code>${text}</code></li>`;
  const items = Object.entries(value);
  return html`<li><details><summary>${head}<code>${short(text)}</code></summary>
    <ul class="tree">${items.slice(0, SHOWN_MAX).map(([key, one]) => html`<${Value} key=${key} name=${key} value=${one} />`)}
    ${items.length > SHOWN_MAX && html`<li class="soft">and ${number(items.length - SHOWN_MAX)} more</li>`}</ul></details></li>`;
}

export const Values = ({ value }) => html`<div class="values"><ul class="tree"><${Value} value=${value} /></ul></div>`;

// A schema as a tree: maps with their keys, records with their fields.
export function Schema({ schema, name }) {
  const head = name === undefined ? "" : html`<span class="mono">${name}</span><span class="soft">: </span>`;
  if (!isTree(schema)) return html`<li>${head}<code>${String(schema)}</code></li>`;
  const below = schema.map ? [[`each ${typeof schema.map[0] === "string" ? schema.map[0] : "key"}`, schema.map[1]]]
    : schema.fixed_keys ?? (schema.list ? [["each", schema.list]] : schema.set ? [["each", schema.set]] : []);
  const kind = Object.keys(schema)[0] ?? "value";
  const marks = [schema.subindexed && "subindexed", schema.nullable && "nullable"].filter(Boolean).join(", ");
  return html`<li>${head}<code>${kind.replace("_", " ")}</code> <span class="soft">${marks}</span>
    ${below.length > 0 && html`<ul class="tree">${below.map(([key, one]) => html`<${Schema} name=${key} schema=${one} />`)}</ul>`}</li>`;
}

// --- charts ---------------------------------------------------------------------------------------------------------

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The time that a chart shows: a minute at least, so that its hours differ where it has one value or none.
const SPAN_SECONDS = 60;
function span({ data: [times] }) { // of what is there: where that is one value, uPlot would take a whole day
  const last = times[times.length - 1] ?? Date.now() / 1000;
  return [Math.min(times[0] ?? last, last - SPAN_SECONDS), last];
}

// The digits that tell the marks of an axis apart, which are `step` from each other.
const digits = (step) => step >= 1 ? 0 : Math.min(6, Math.ceil(-Math.log10(step) - 1e-9));

// Lines over time. `series`: [label, CSS variable of its colour]; `data`: [seconds, values…].
export function Chart({ label, series, data, format = number }) {
  const place = useRef(null), plot = useRef(null);
  useEffect(() => {
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    plot.current = new uPlot({
      width: place.current.clientWidth, height: 170, legend: { live: true }, scales: { x: { range: span } },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map((tick) => clock(tick * 1000)) }, { ...axis, size: 70, values: (_, ticks, axis, space, step) => ticks.map((tick) => fraction(tick, digits(step))) }],
      series: [{ label: "at", value: (_, at) => at ? clock(at * 1000) : "–" }, ...series.map(([name, variable]) => ({ label: name, stroke: colour(variable), width: 2,
        value: (_, value) => value === null || value === undefined ? "–" : format(value) }))],
    }, data, place.current);
    const watch = new ResizeObserver(() => plot.current?.setSize({ width: place.current.clientWidth, height: 170 }));
    watch.observe(place.current);
    return () => { watch.disconnect(); plot.current.destroy(); plot.current = null; };
  }, []);
  useEffect(() => { plot.current?.setData(data); }, [data]);
  return html`<div ref=${place} role="img" aria-label=${label}></div>`;
}

// Microbatches as bars, each divided by its phases; attempts of which nothing counts are outlined and crossed.
export function Timeline({ bars, chosen, choose }) {
  const width = 1200, height = 150, foot = 14;
  const step = width / Math.max(60, bars.length), most = Math.max(1, ...bars.map((bar) => bar.total));
  const scale = (height - foot - 6) / most;
  return html`<svg class="timeline" viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="group"
      aria-label="The newest microbatches, oldest first; the height is the time each took">
    ${bars.map((bar, at) => html`<${Bar} key=${bar.key} bar=${bar} x=${at * step} width=${step * 0.8} base=${height - foot}
      scale=${scale} isChosen=${bar.entry === chosen} choose=${() => choose(bar.entry)} height=${height} />`)}</svg>`;
}

const LOST_HEIGHT_MIN = 24; // of an attempt of which nobody knows how long it took, too

function Bar({ bar, x, width, base, scale, isChosen, choose, height }) {
  let y = base;
  const lost = Math.max(LOST_HEIGHT_MIN, bar.total * scale);
  const phases = bar.isFailed ? [] : bar.phases.map(([name, millis]) => {
    const size = Math.max(0.5, millis * scale);
    y -= size;
    return html`<rect class=${name} x=${x} y=${y} width=${width} height=${size} />`;
  });
  const pressed = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } };
  return html`<g role="button" tabindex="0" aria-label=${bar.label} aria-pressed=${isChosen} onClick=${choose} onKeyDown=${pressed}>
    <title>${bar.label}</title>
    ${isChosen && html`<rect class="chosen" x=${x - 1} y="0" width=${width + 2} height=${height} />`}${phases}
    ${bar.isFailed && html`<rect class="failed" x=${x} y=${base - lost} width=${width} height=${lost} />
      <line class="cross" x1=${x} x2=${x + width} y1=${base - lost} y2=${base} /><line class="cross" x1=${x + width} x2=${x} y1=${base - lost} y2=${base} />`}
    <rect class="hit" x=${x} y="0" width=${width} height=${height} /></g>`;
}

export function useTick(seconds) {
  const [, set] = useState(0);
  useEffect(() => { const timer = setInterval(() => set((n) => n + 1), seconds * 1000); return () => clearInterval(timer); }, [seconds]);
}
