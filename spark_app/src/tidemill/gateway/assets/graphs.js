// Task graphs of the store: all runs at a glance, and one with its nodes as they go on.
import { html, useMemo, useState } from "./vendor/preact-htm.js";
import { ask, segment, useAsked, useEvents } from "./api.js";
import { Picture } from "./picture.js";
import { Absent, Facts, Notice, State, StoreTabs, Table, ago, bytes, count, moment, number, seconds, useTick } from "./parts.js";

const COLUMNS = [
  ["Graph", (row) => html`<a href="#/graphs/${segment(row.graph)}">${row.graph}</a>`],
  ["State", (row) => html`<${State} status=${row} />`],
  ["Rows read", (row) => number(row.rows_read), true], ["Lag", (row) => number(row.lag), true],
  ["Dropped", (row) => number(row.dropped_rows), true],
  ["Wave", (row) => number(row.wave), true],
  ["Time taken", (row) => seconds(row.seconds), true],
  ["Engine", (row) => row.engine],
  ["Last entry", (row) => ago(row.written_ms)],
  ["Trouble", (row) => html`<span class="bad">${row.trouble || row.text?.split("\n")[0] || ""}</span>`],
];

export function Graphs({ query }) {
  const [found, setFound] = useState(null), [trouble, setTrouble] = useState(""), [search, setSearch] = useState(query.get("q") ?? "");
  useTick(1);
  const known = useAsked("graphs", () => ask("/graphs")); // events that are refused come without a reason: this has it
  const isOpen = useEvents("/graphs/subscribe", { graphs: setFound, trouble: ({ message }) => setTrouble(message) });
  if (known.error) return html`<div class="head"><h1>Graphs</h1></div><${Notice} error=${known.error} />`;
  const words = search.toLowerCase().split(/\s+/).filter(Boolean), graphs = found?.graphs ?? [];
  const rows = graphs.filter((row) => words.every((word) => `${row.graph} ${row.state}`.toLowerCase().includes(word))).map((row) => ({ ...row, key: row.graph }));
  return html`<div class="head"><h1>Graphs</h1><span class="soft">${found && count(graphs.length + found.left_out, "graph")}</span>
      ${!isOpen && found && html`<span class="tag warn">not connected</span>`}</div><${StoreTabs} at="graphs" />
    ${trouble && html`<${Notice} error=${{ code: "Store", message: trouble }} />`}
    <form class="row" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label class="grow">Search<input type="search" value=${search} placeholder="name or state" onInput=${(event) => setSearch(event.target.value)} /></label></form>
    <section class="card">${found === null ? html`<p class="soft">Looking …</p>`
      : html`<${Table} columns=${COLUMNS} rows=${rows} label="Graphs" empty=${graphs.length ? "None fits." : "No task graph ran in this store yet."} />`}
      ${found?.left_out > 0 && html`<p class="soft">${number(found.left_out)} more are not shown.</p>`}</section>`;
}

export function Graph({ name }) {
  const path = `/graphs/${segment(name)}`;
  const [run, setRun] = useState(null), [trouble, setTrouble] = useState("");
  const known = useAsked(path, () => ask(path));
  const isOpen = useEvents(`${path}/subscribe`, { graph: setRun, trouble: ({ message }) => setTrouble(message) });
  useTick(1);
  const notes = useMemo(() => run && progress(run.nodes), [run]);
  if (known.error) return html`<${Absent} name=${name} error=${known.error} />`;
  if (!run) return html`<p class="soft">Looking …</p>`;
  return html`<div class="head"><h1>${name}</h1><${State} status=${run} />
      ${isOpen ? html`<span class="tag plain live">live</span>` : html`<span class="tag warn">not connected</span>`}</div>
    ${trouble && html`<${Notice} error=${{ code: "Store", message: trouble }} />`}
    ${run.text && html`<section class="notice bad" aria-label="Why it failed"><h2>It failed</h2><pre tabindex="0">${run.text}</pre></section>`}
    <section class="card"><${Facts} facts=${{ "Rows read": number(run.rows_read), "Lag, in records": number(run.lag), "Rows dropped": number(run.dropped_rows), Waiting: bytes(run.nodes.reduce((sum, node) => sum + node.waiting_bytes, 0)),
      Wave: number(run.wave), "Time taken": seconds(run.seconds), Engine: run.engine, Began: moment(run.began_ms), Starts: number(run.starts), Checkpoints: number(run.checkpoints), "Last entry": ago(run.written_ms),
      Datasets: run.datasets.length ? run.datasets.map((one) => html`<a href="#/datasets/${segment(one)}">${one}</a> `) : "none yet" }} />
      <p class="soft">The run tells how far it is at each checkpoint and at its end.</p></section>
    <section class="card"><h2>Nodes</h2>
      <${Picture} path="${path}/plan" label="Picture of the graph" notes=${notes} hint="At each arrow, the rows that were sent along it; in each box, how many of its channels are done." />
      <${Table} label="Nodes" rows=${run.nodes.map((node) => ({ ...node, key: node.node }))} columns=${NODES} /></section>
    <section class="card"><h2>Log</h2><${Table} label="Log" rows=${[...run.log].reverse().map((line) => ({ ...line, key: line.entry }))} columns=${LINES} /></section>`;
}

const done = (node) => node.ended === node.channels ? "done" : `${node.ended}/${node.channels} done`;

const progress = (nodes) => ({
  boxes: Object.fromEntries(nodes.map((node) => [node.node, done(node)])),
  counts: Object.fromEntries(nodes.map((node) => [node.node, node.rows_out])),
});

const NODES = [
  ["Node", (node) => html`${node.node}: ${node.title} <span class="soft">${node.text}</span>`],
  ["Channels done", (node) => `${node.ended} of ${node.channels}`, true],
  ["Rows in", (node) => number(node.rows_in), true], ["Rows out", (node) => number(node.rows_out), true],
  ["Read", (node) => bytes(node.bytes_read), true], ["Waiting", (node) => bytes(node.waiting_bytes), true], ["Lag", (node) => number(node.lag), true],
  ["Dropped", (node) => number(node.dropped_rows), true],
  ["Steps", (node) => number(node.steps), true], ["Time of all channels", (node) => seconds(node.seconds), true],
];

const KINDS = { begin: "Begun", checkpoint: "Checkpoint", stop: "Stopped", finish: "Finished", fail: "Failed" };
const LINES = [
  ["Entry", (line) => number(line.entry), true], ["Time", (line) => moment(line.written_ms)],
  ["Event", (line) => html`${KINDS[line.kind] ?? line.kind} <span class="bad">${line.text.split("\n")[0]}</span>`],
  ["Wave", (line) => number(line.wave), true], ["Time taken", (line) => seconds(line.seconds), true],
  ["Of it, checkpoints", (line) => seconds(line.checkpoint_seconds), true],
];
