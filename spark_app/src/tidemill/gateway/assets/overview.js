// All modules and their topologies at a glance.
import { html, useState } from "./vendor/preact-htm.js";
import { segment, useEvents } from "./api.js";
import { keep } from "./place.js";
import { Notice, State, StoreTabs, Table, ago, count, number, rate, useTick } from "./parts.js";

const rank = (status) => status.trouble || status.state === "failing" || status.lost ? 0 : status.is_running ? 1 : 2;

// The speed of a microbatch of long ago says nothing of now.
const NEW_MS = 10_000;
const isNew = (status) => Date.now() - status.written_ms < NEW_MS;

const trouble = (row) => row.trouble || row.failure?.message?.split("\n")[0] || (row.lost && `its leader, ${row.lost}, went without a word`) || null;

const COLUMNS = [
  ["Module", (row) => html`<a href="#/m/${segment(row.module)}">${row.module}</a>`],
  ["Topology", (row) => html`<a href="#/m/${segment(row.module)}/t/${segment(row.topology)}">${row.topology}</a>`],
  ["State", (row) => html`<${State} status=${row} />`],
  ["Waiting", (row) => number(row.waiting), true],
  ["Records/s", (row) => rate(isNew(row) ? row.rows_per_second : 0), true],
  ["Processed", (row) => number(row.processed), true],
  ["Microbatch", (row) => row.microbatch_id ? `${row.microbatch_id}/${row.version}` : "–", true],
  ["Last entry", (row) => ago(row.written_ms)],
  ["Trouble", (row) => { const told = trouble(row); return told && html`<span class="bad">${told}</span>`; }],
];

export function Overview({ query, hasGraphs }) {
  const [modules, setModules] = useState(null), [trouble, setTrouble] = useState("");
  const search = query.get("q") ?? "";
  useTick(1);
  const isOpen = useEvents("/overview/subscribe", {
    modules: (changed) => setModules((known) => Object.fromEntries(
      Object.entries({ ...known, ...changed }).filter(([, module]) => module !== null))),
    trouble: ({ message }) => setTrouble(message),
  });
  const rows = Object.values(modules ?? {}).flatMap((module) => module.topologies.length
    ? module.topologies.map((one) => ({ ...one, module: module.module, key: `${module.module}/${one.topology}` }))
    : [{ module: module.module, topology: "", state: undefined, trouble: module.trouble, key: module.module }]);
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => words.every((word) => `${row.module} ${row.topology} ${row.state}`.toLowerCase().includes(word)))
    .sort((one, other) => rank(one) - rank(other) || one.key.localeCompare(other.key));
  const failing = rows.filter((row) => rank(row) === 0).length;
  return html`<div class="head"><h1>Modules</h1>
      <span class="soft">${count(rows.length, "topology", "topologies")}${failing ? html`, <strong class="bad">${failing} in trouble</strong>` : ""}</span>
      ${!isOpen && modules && html`<span class="tag warn">not connected</span>`}</div>
    ${hasGraphs && html`<${StoreTabs} at="modules" />`}
    ${trouble && html`<${Notice} error=${{ code: "Store", message: trouble }} />`}
    <form class="row" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label class="grow">Search<input type="search" value=${search} placeholder="name or state" onInput=${(event) => keep({ q: event.target.value })} /></label></form>
    <section class="card">${modules === null ? html`<p class="soft">Looking …</p>`
      : html`<${Table} columns=${COLUMNS} rows=${found} label="Topologies" empty=${rows.length ? "None fits." : html`This store has no modules yet. Start one with <code>tidemill run MODULE:CLASS --store STORE</code>; it appears here by itself.`} />`}</section>`;
}
