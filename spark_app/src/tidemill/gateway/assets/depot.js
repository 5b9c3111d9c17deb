// One depot: its partitions, what is stored of it and what keeps it, who reads it, its records by offset, and an append by hand.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { ask, segment, useAsked, useLive, written } from "./api.js";
import { Live, Trouble } from "./module.js";
import { Absent, Facts, Notice, State, Table, Values, ago, bytes, count, moment, number, offsets } from "./parts.js";

const PAGE = 50;
const PARTITIONS_MAX = 64;
const REFRESH_MS = 10_000; // rates change by themselves

export function Depot({ module, name, query, may }) {
  const path = `/modules/${segment(module)}/depots/${segment(name)}`, base = `#/m/${segment(module)}`;
  const info = useAsked(path, () => ask(`${path}/facts`)), after = query.get("after"), [states, setStates] = useState({});
  const since = useAsked(after === null ? null : `${path} after ${after}`, () => ask(`${path}/offsets?after=${segment(after)}`));
  const { isOpen, trouble } = useLive(module, (found) => { setStates((known) => ({ ...known, ...found.topologies })); info.refresh(); });
  useEffect(() => { const timer = setInterval(info.refresh, REFRESH_MS); return () => clearInterval(timer); }, [path]);
  if (info.error && !info.value) return html`<${Absent} name="*${name}" module=${module} error=${info.error} />`;
  if (!info.value) return html`<p class="soft">Looking …</p>`;
  const found = info.value;
  if (!found.offsets) return html`<h1>*${name} <span class="soft">of ${module}</span></h1><${Notice}>Its records are not in the store: there is nothing to read here.<//>`;
  const partition = Number(query.get("partition") ?? -1), more = found.offsets.length - PARTITIONS_MAX;
  const all = found.offsets.map(([start, end], index) => ({ partition: index, key: index, start, end })), rows = all.slice(0, PARTITIONS_MAX);
  const link = (row, at) => `${base}/d/${segment(name)}?partition=${row.partition}&offset=${at}${after === null ? "" : `&after=${after}`}`;
  return html`<div class="head"><h1>*${name} <span class="soft">of ${module}</span></h1><${Live} isOpen=${isOpen} /></div><${Trouble} trouble=${trouble} error=${info.error} />
    <section class="card"><${Stored} found=${found} />
      ${more > 0 && html`<p class="soft">The first ${PARTITIONS_MAX} of ${number(found.offsets.length)} partitions; an address with <code>partition=${PARTITIONS_MAX}</code> shows the records of another one.</p>`}
      <${Table} label="Partitions" rows=${rows} columns=${[
        ["Partition", (row) => html`<a href=${link(row, Math.max(row.start, row.end - PAGE))}>${row.partition}</a>`],
        ["First offset kept", (row) => number(row.start), true], ["Next offset", (row) => number(row.end), true],
        ["Records", (row) => number(row.end - row.start), true],
        ...(since.value ? [["Since the time", (row) => html`<a href=${link(row, since.value[row.partition])}>${number(row.end - since.value[row.partition])}</a>`, true]] : [])]} />
      ${since.error && html`<${Notice} error=${since.error} />`}
      <${Since} after=${after} address="${base}/d/${segment(name)}" /></section>
    <${Readers} found=${found} states=${states} base=${base} />
    ${all[partition] && html`<${Records} path=${path} row=${all[partition]} at=${Number(query.get("offset") ?? all[partition].start)} link=${link} />`}
    ${may("append") && html`<${Append} path=${path} done=${info.refresh} />`}`;
}

const sum = (found, of) => found.offsets.reduce((all, pair) => all + of(pair), 0);
const rate = (value) => `${value < 10 && value > 0 ? value.toFixed(2) : number(value)} records/s`;

const Stored = ({ found }) => html`<${Facts} facts=${{
  Partitions: number(found.num_partitions),
  "Records kept": number(sum(found, ([start, end]) => end - start)),
  "Ever appended": number(sum(found, ([, end]) => end)),
  "In the last minute": rate(found.rates["60"]),
  "In the last 10 minutes": rate(found.rates["600"]),
  Segments: html`${number(found.segments)} <span class="soft">in ${count(found.objects, "object")}</span>`,
  Bytes: found.bytes === null ? "not known yet" : bytes(found.bytes),
  "First segment": found.first_ms === null ? "–" : moment(found.first_ms),
  "Newest segment": found.newest_ms === null ? "none yet" : html`${moment(found.newest_ms)} <span class="soft">${ago(found.newest_ms)}</span>`,
  Retention: kept(found.retention),
}} />`;

const kept = ({ records_max: most, excess }) => most === null ? "all records are kept"
  : html`the newest ${number(most)} of each partition; older ones go past ${number(Math.floor(most * (1 + excess)))}, once no reader needs them`;

// Which topologies read it, how far each is, and what is kept for it alone.
const Readers = ({ found, states, base }) => html`<section class="card"><h2>Read by</h2>
  <${Table} label="Read by" rows=${found.readers.map((one, at) => ({ ...one, key: at }))} empty="Nobody reads it." columns=${[
    ["Topology", (row) => row.topology ? html`<a href="${base}/t/${segment(row.topology)}">${row.topology}</a>` : row.module ? html`module <a href="#/m/${segment(row.module)}">${row.module}</a>` : "another module"],
    ["State", (row) => row.topology && states[row.topology] && html`<${State} status=${states[row.topology]} />`],
    ["Records waiting", (row) => number(row.waiting), true],
    ["Kept for it", (row) => row.offsets === null ? "all: it has not begun" : row.held_back ? html`<span class="bad">${number(row.held_back)}</span>` : "0", true],
    ["Next offset of each partition", (row) => html`<code>${offsets(row.offsets ?? [])}</code>`]]} />
  <p class="soft">Kept for it: records that retention would delete, and that it has not read. The options <code>depot.max.entries.per.partition</code> and <code>depot.excess.proportion</code> say what retention keeps.</p></section>`;

// Where to begin by time; the browser's own time zone counts.
function Since({ after, address }) {
  const at = Number(after), shown = new Date(at - new Date(at).getTimezoneOffset() * 60_000);
  const local = after === null || Number.isNaN(shown.getTime()) ? "" : shown.toISOString().slice(0, 19); // an address may have any text
  const [text, setText] = useState(local);
  const go = (event) => { event.preventDefault(); window.location.hash = `${address}?after=${new Date(text).getTime()}`; };
  return html`<form class="row" onSubmit=${go}><label>Appended after<input type="datetime-local" step="1" required value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <button>Find</button></form>`;
}

function Records({ path, row, at, link }) {
  const start = Math.min(Math.max(row.start, at), row.end), end = Math.min(row.end, start + PAGE);
  const found = useAsked(`${path} ${row.partition} ${start} ${end}`, () => ask(`${path}/partitions/${row.partition}/records?start=${start}&end=${end}`));
  const rows = (found.value ?? []).map((record, index) => ({ key: start + index, offset: start + index, record }));
  return html`<section class="card"><h2>Partition ${row.partition}, offsets ${number(start)} to ${number(end)}</h2>
    ${found.error && html`<${Notice} error=${found.error} />`}
    <p>${start > row.start && html`<a href=${link(row, Math.max(row.start, start - PAGE))}>Earlier</a> `}
      ${end < row.end && html`<a href=${link(row, end)}>Later</a>`}</p>
    <${Table} label="Records" rows=${rows} empty=${found.isLoading ? "Looking …" : "No records here."} columns=${[["Offset", (one) => number(one.offset), true], ["Record", (one) => html`<${Values} value=${one.record} />`]]} /></section>`;
}

function Append({ path, done }) {
  const [text, setText] = useState(""), [answer, setAnswer] = useState(null), [error, setError] = useState(null);
  const send = async (event) => {
    event.preventDefault();
    setAnswer(null); setError(null);
    let record;
    try { record = written(text); } catch (problem) { setError({ code: "JSON", message: String(problem.message) }); return; }
    try { setAnswer(await ask(`${path}/append`, { method: "POST", body: { record } })); done(); } catch (refused) { setError(refused); }
  };
  return html`<section class="card"><h2>Append a record</h2>${error && html`<${Notice} error=${error} />`}
    ${answer && html`<${Notice}>Appended: partition ${answer.partitions[0][0]}, offset ${number(answer.partitions[0][1])}.<//>`}
    <form onSubmit=${send}><label>The record as JSON<textarea required value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
      <p><button class="main">Append</button></p></form></section>`;
}
