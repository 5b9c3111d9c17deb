// One depot: its partitions, its records by offset, and an append by hand.
import { html, useState } from "./vendor/preact-htm.js";
import { ask, bare, segment, useAsked, written } from "./api.js";
import { Facts, Notice, State, Table, Values, number, offsets } from "./parts.js";

const PAGE = 50;
const PARTITIONS_MAX = 64;
const READERS_MAX = 20;

export function Depot({ module, name, query, may }) {
  const path = `/modules/${segment(module)}/depots/${segment(name)}`;
  const info = useAsked(path, () => ask(path));
  const count = info.value?.partitions ?? info.value?.num_partitions;
  const ends = useAsked(count === undefined ? null : `${path}/partitions`, () =>
    Promise.all(Array.from({ length: Math.min(count, PARTITIONS_MAX) }, (_, one) => ask(`${path}/partitions/${one}`))));
  const after = query.get("after");
  const since = useAsked(after === null ? null : `${path} after ${after}`, () => ask(`${path}/offsets?after=${segment(after)}`));
  if (info.error) return html`<${Notice} error=${info.error} />`;
  if (!info.value) return html`<p class="soft">Looking …</p>`;
  const partition = Number(query.get("partition") ?? -1);
  const rows = (ends.value ?? []).map((one, index) => ({ partition: index, key: index, start: one.start_offset, end: one.end_offset }));
  const link = (row, at) => `#/m/${segment(module)}/d/${segment(name)}?partition=${row.partition}&offset=${at}${after === null ? "" : `&after=${after}`}`;
  return html`<div class="head"><h1>*${name} <span class="soft">of ${module}</span></h1><button onClick=${() => { ends.again(); since.again(); }}>Look again</button></div>
    <section class="card"><${Facts} facts=${{ Partitions: number(count), "Records kept": number(rows.reduce((sum, row) => sum + row.end - row.start, 0)),
      "Ever appended": number(rows.reduce((sum, row) => sum + row.end, 0)) }} />
      ${count > PARTITIONS_MAX && html`<p class="soft">The first ${PARTITIONS_MAX} of ${number(count)} partitions.</p>`}
      <${Table} label="Partitions" rows=${rows} empty="Looking …" columns=${[
        ["Partition", (row) => html`<a href=${link(row, Math.max(row.start, row.end - PAGE))}>${row.partition}</a>`],
        ["First offset kept", (row) => number(row.start), true], ["Next offset", (row) => number(row.end), true],
        ["Records", (row) => number(row.end - row.start), true],
        ...(since.value ? [["Since the time", (row) => html`<a href=${link(row, since.value[row.partition])}>${number(row.end - since.value[row.partition])}</a>`, true]] : [])]} />
      ${since.error && html`<${Notice} error=${since.error} />`}
      <${Since} after=${after} address="#/m/${segment(module)}/d/${segment(name)}" /></section>
    <${Readers} module=${module} name=${name} />
    ${rows[partition] && html`<${Records} path=${path} row=${rows[partition]} at=${Number(query.get("offset") ?? rows[partition].start)} link=${link} />`}
    ${may("append") && html`<${Append} path=${path} done=${ends.again} />`}`;
}

// Which topologies of the module read it, and how far each is.
function Readers({ module, name }) {
  const path = `/modules/${segment(module)}`, isIt = (source) => bare(source.depot) === name;
  const found = useAsked(`${path} readers of ${name}`, async () => {
    const all = (await ask(path)).topologies.filter((one) => one.sources.some(isIt)), shown = all.slice(0, READERS_MAX);
    const states = await Promise.all(shown.map((one) => ask(`${path}/topologies/${segment(one.name)}`)));
    return { more: all.length - shown.length, rows: shown.flatMap((one, at) => one.sources.filter(isIt).map(({ source_id: source }) => ({ key: `${one.name} ${source}`, source, ...states[at] }))) };
  });
  return html`<section class="card"><h2>Read by</h2>${found.error && html`<${Notice} error=${found.error} />`}
    <${Table} label="Read by" rows=${found.value?.rows ?? []} empty=${found.value ? "No topology of this module reads it." : "Looking …"} columns=${[
      ["Topology", (row) => html`<a href="#/m/${segment(module)}/t/${segment(row.topology)}">${row.topology}</a>`],
      ["State", (row) => html`<${State} status=${row} />`],
      ["Records waiting", (row) => number(row.lag?.[row.source]), true],
      ["Next offset of each partition", (row) => html`<code>${offsets(row.progress[row.source] ?? [])}</code>`]]} />
    ${found.value?.more > 0 && html`<p class="soft">${number(found.value.more)} more are not shown.</p>`}
    <p><button onClick=${found.again}>Look again</button></p></section>`;
}

// Where to begin by time; the browser's own time zone counts.
function Since({ after, address }) {
  const local = after === null ? "" : new Date(Number(after) - new Date(Number(after)).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
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
