// Datasets of the store: what graphs left, with columns, size and rows.
import { html } from "./vendor/preact-htm.js";
import { ask, segment, useAsked } from "./api.js";
import { Absent, Facts, Notice, StoreTabs, Table, Values, bytes, count, moment, number } from "./parts.js";

const PAGE = 50;
const COLUMNS = [
  ["Dataset", (row) => html`<a href="#/datasets/${segment(row.dataset)}">${row.dataset}</a>`],
  ["Rows", (row) => number(row.rows), true], ["Size", (row) => bytes(row.bytes), true], ["Objects", (row) => number(row.objects), true],
  ["Key", (row) => html`<code>${row.columns.join(", ")}</code>`],
  ["Made by", (row) => html`<a href="#/graphs/${segment(row.graph)}">${row.graph}</a>, node ${row.node}`],
  ["When", (row) => moment(row.created_ms)],
];

export function Datasets() {
  const found = useAsked("datasets", () => ask("/datasets"));
  return html`<div class="head"><h1>Datasets</h1><span class="soft">${found.value && count(found.value.datasets.length + found.value.left_out, "Dataset")}</span>
      <button onClick=${found.again}>Look again</button></div><${StoreTabs} at="datasets" />
    ${found.error && html`<${Notice} error=${found.error} />`}
    <section class="card"><${Table} label="Datasets" columns=${COLUMNS} rows=${(found.value?.datasets ?? []).map((row) => ({ ...row, columns: row.key, key: row.dataset }))}
      empty=${found.value ? "No graph left a Dataset in this store yet." : "Looking …"} />
      ${found.value?.left_out > 0 && html`<p class="soft">${number(found.value.left_out)} more are not shown.</p>`}</section>`;
}

export function Dataset({ name, query }) {
  const path = `/datasets/${segment(name)}`, start = Math.max(0, Number(query.get("start")) || 0);
  const info = useAsked(path, () => ask(path)), page = useAsked(`${path} ${start}`, () => ask(`${path}/rows?start=${start}&limit=${PAGE}`));
  if (info.error) return html`<${Absent} name=${name} error=${info.error} />`;
  if (!info.value) return html`<p class="soft">Looking …</p>`;
  const known = info.value, link = (at) => `#/datasets/${segment(name)}?start=${at}`;
  const columns = (page.value?.columns ?? []).map((column, at) => [column, ({ row }) => html`<${Values} value=${row[at]} />`]);
  return html`<div class="head"><h1>${name}</h1></div>
    <section class="card"><${Facts} facts=${{ Rows: number(known.rows), Size: bytes(known.bytes), Objects: number(known.objects), Kind: known.kind,
      Key: known.key.join(", ") || "none", Made: moment(known.created_ms), By: html`<a href="#/graphs/${segment(known.graph)}">${known.graph}</a>, node ${known.node}` }} />
      <h2>Columns</h2><${Table} label="Columns" rows=${Object.entries(known.columns).map(([column, type]) => ({ key: column, column, type }))}
        empty="None: its node never sent a batch." columns=${[["Column", (row) => html`<code>${row.column}</code>`], ["Type", (row) => html`<code>${row.type}</code>`]]} /></section>
    <section class="card"><h2>Rows</h2>${page.error && html`<${Notice} error=${page.error} />`}
      <${Table} label="Rows" columns=${[["Row", (one) => number(one.key), true], ...columns]} empty=${page.isLoading ? "Looking …" : "No row here."}
        rows=${(page.value?.rows ?? []).map((row, at) => ({ key: start + at, row }))} />
      <p>${start > 0 && html`<a href=${link(Math.max(0, start - PAGE))}>Earlier</a> `}${start + PAGE < known.rows && html`<a href=${link(start + PAGE)}>Later</a>`}</p></section>
    <section class="card"><h2>Objects</h2>${known.parts.length < known.objects && html`<p class="soft">The first ${number(known.parts.length)}.</p>`}
      <${Table} label="Objects" rows=${known.parts.map((part, at) => ({ ...part, key: at }))} columns=${[
        ["Channel", (row) => row.channel, true], ["Partition", (row) => row.partition, true], ["Rows", (row) => number(row.rows), true], ["Size", (row) => bytes(row.bytes), true]]} /></section>`;
}
