// One module: its topologies, depots, PStates, queries, options, and what happened to it.
import { html, useState } from "./vendor/preact-htm.js";
import { ask, bare, segment, useAsked, useLive } from "./api.js";
import { Facts, Notice, Schema, State, Table, number } from "./parts.js";
import { History } from "./history.js";
import { Options } from "./options.js";

export const TABS = ["topologies", "depots", "pstates", "queries", "options", "log"];
const TITLES = { pstates: "PStates" };
const title = (tab) => TITLES[tab] ?? tab[0].toUpperCase() + tab.slice(1);

export function ModuleView({ module, tab, may }) {
  const path = `/modules/${segment(module)}`;
  const known = useAsked(path, () => ask(path)), [live, setLive] = useState({ topologies: {} });
  const { isOpen, trouble } = useLive(module, (found) => {
    if (found.definition !== known.value?.number) known.refresh(); // also where there was none: it may be launched again
    setLive((before) => ({ ...before, ...found, topologies: { ...before.topologies, ...found.topologies } }));
  });
  if (known.error && !known.value) return html`<div class="head"><h1>${module}</h1></div><${Notice} error=${known.error} />`;
  if (!known.value) return html`<p class="soft">Looking …</p>`;
  const found = known.value, base = `#/m/${segment(module)}`;
  return html`<div class="head"><h1>${module}</h1><${Live} isOpen=${isOpen} /></div><${Trouble} trouble=${trouble} error=${known.error} />
    <section class="card"><${Facts} facts=${{ Definition: number(found.number), Tasks: number(found.tasks), Threads: number(found.threads),
      Topologies: found.topologies.length, Depots: found.depots.length, PStates: pstates(found).length, Queries: found.queries.length }} /></section>
    <nav class="tabs" aria-label="Parts of the module">${TABS.map((one) => html`<a href="${base}/${one}" aria-current=${one === tab ? "page" : undefined}>${title(one)}</a>`)}</nav>
    <section class="card"><${Tab} tab=${tab} module=${module} found=${found} live=${live} base=${base} may=${may} /></section>`;
}

export const Live = ({ isOpen }) => isOpen ? html`<span class="tag plain live">live</span>` : html`<span class="tag warn">not connected</span>`;

// Why a view that goes on by itself does not: what it shows is older.
export const Trouble = ({ trouble, error }) => trouble ? html`<${Notice} error=${{ code: "No news", message: trouble }} />` : error ? html`<${Notice} error=${error} />` : null;

const pstates = (found) => found.topologies.flatMap((topology) => topology.pstates.map((one) => ({ ...one, topology: topology.name, key: one.name })));

function Tab({ tab, module, found, live, base, may }) {
  if (tab === "depots") return html`<${Depots} found=${found} base=${base} />`;
  if (tab === "pstates") return html`<${PStates} found=${found} base=${base} />`;
  if (tab === "queries") return html`<${Queries} found=${found} base=${base} />`;
  if (tab === "options") return html`<${Options} module=${module} found=${found} may=${may} changed=${live.options} />`;
  if (tab === "log") return html`<${History} module=${module} found=${found} live=${live} base=${base} />`;
  return html`<${Topologies} found=${found} live=${live} base=${base} />`;
}

const Topologies = ({ found, live, base }) => html`<${Table} label="Topologies" empty="Looking …"
  rows=${found.topologies.filter(({ name }) => live.topologies[name]).map(({ name }) => ({ ...live.topologies[name], topology: name, key: name }))} columns=${[
  ["Topology", (row) => html`<a href="${base}/t/${segment(row.topology)}">${row.topology}</a>`],
  ["State", (row) => html`<${State} status=${row} />`],
  ["Waiting", (row) => number(row.waiting), true],
  ["Processed", (row) => number(row.processed), true],
  ["Microbatch", (row) => row.microbatch_id ? `${row.microbatch_id}/${row.version}` : "–", true],
  ["Trouble", (row) => row.trouble && html`<span class="bad">${row.trouble}</span>`]]} />`;

const Depots = ({ found, base }) => html`<${OwnDepots} found=${found} base=${base} />
  ${found.mirrors.length > 0 && html`<h2>Of other modules</h2><${Table} label="Of other modules" rows=${found.mirrors.map((one) => ({ ...one, key: one.name }))} columns=${[
    ["Name here", (row) => html`<code>${row.name}</code>`],
    ["What it is", (row) => html`${KIND_NAMES[row.kind]} ${row.module ? html`<a href=${mirrorLink(row)}>${row.object}</a>` : row.object}`],
    ["Module", (row) => row.module ? html`<a href="#/m/${segment(row.module)}">${row.module}</a>` : html`<span class="soft">another one, which is not shown here</span>`],
    ["Read by", (row) => readers(found, row.name)]]} />`}`;

const KIND_NAMES = { depot: "the depot", pstate: "the PState", query: "the query" };
const VIEWS = { depot: "d", pstate: "p", query: "q" };
export const mirrorLink = ({ module, kind, object }) => `#/m/${segment(module)}/${VIEWS[kind]}/${segment(bare(object))}`;
const readers = (found, depot) => found.topologies.filter((one) => one.sources.some((source) => source.depot === depot)).map((one) => one.name).join(", ");

const OwnDepots = ({ found, base }) => html`<${Table} empty="It has no depots of its own." label="Depots" rows=${found.depots.map((one) => ({ ...one, key: one.name }))} columns=${[
  ["Depot", (row) => row.tick_millis === null ? html`<a href="${base}/d/${segment(bare(row.name))}">${row.name}</a>` : row.name],
  ["Partitioner", (row) => row.tick_millis === null ? row.partitioner : `a tick every ${number(row.tick_millis)} ms`],
  ["Partitions", (row) => number(row.partitions), true],
  ["Read by", (row) => readers(found, row.name) || "nobody"]]} />`;

const PStates = ({ found, base }) => html`<${Table} label="PStates" rows=${pstates(found)} columns=${[
  ["PState", (row) => row.private ? row.name : html`<a href="${base}/p/${segment(bare(row.name))}">${row.name}</a>`],
  ["Written by", (row) => row.topology],
  ["Where", (row) => row.global ? "one value on task 0" : row.private ? "private" : "all tasks"],
  ["Schema", (row) => html`<ul class="tree"><${Schema} schema=${row.schema} /></ul>`]]} />`;

const Queries = ({ found, base }) => html`<${Table} label="Queries" empty="It has no query topologies." rows=${found.queries.map((one) => ({ ...one, key: one.name }))} columns=${[
  ["Query", (row) => html`<a href="${base}/q/${segment(row.name)}">${row.name}</a>`],
  ["Inputs", (row) => html`<code>${row.inputs.join(", ")}</code>`], ["Result", (row) => html`<code>${row.result}</code>`]]} />`;
