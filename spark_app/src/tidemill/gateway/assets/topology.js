// One topology as it goes on: its newest microbatches, what waits, where time goes, and why it failed.
import { html, useEffect, useMemo, useState } from "./vendor/preact-htm.js";
import { ask, bare, segment, useAsked, useEvents } from "./api.js";
import { Log, useLog } from "./entries.js";
import { Failure } from "./failure.js";
import { Microbatches, useEntry } from "./microbatches.js";
import { goTo } from "./place.js";
import { mirrorLink } from "./module.js";
import { Plan } from "./plan.js";
import { Quarantine } from "./quarantine.js";
import { Absent, Chart, Facts, Notice, State, Table, ago, bytes, count, moment, number, rate, useTick } from "./parts.js";

const SAMPLES_MAX = 600;
const SAMPLE_MS = 5000;
const choose = (entry) => goTo({ entry });

export function Topology({ module, name, query, may }) {
  const path = `/modules/${segment(module)}/topologies/${segment(name)}`;
  const [status, setStatus] = useState(null), [samples, setSamples] = useState([]), log = useLog(path), { lines } = log;
  const [trouble, setTrouble] = useState("");
  const isOpen = useEvents(`${path}/subscribe`, {
    status: (found) => { setStatus(found); setSamples((known) => [...known, [Date.now() / 1000, found.waiting]].slice(-SAMPLES_MAX)); },
    restart: () => { log.restart(); setSamples([]); },
    log: log.take,
    trouble: ({ message }) => setTrouble(message),
  });
  const known = useAsked(path, () => ask(path)); // events that are refused come without a reason: this has it
  const chosen = Number(query.get("entry")) || null;
  const { line, trouble: absence } = useEntry(path, lines, chosen);
  const measured = useMemo(() => line && line.entry < lines[0]?.entry ? [line, ...lines] : lines, [lines, line]);
  useTick(1);
  useEffect(() => { // what waits goes on to be what it was while nothing changes
    const timer = setInterval(() => setSamples((all) => all.length ? [...all, [Date.now() / 1000, all[all.length - 1][1]]].slice(-SAMPLES_MAX) : all), SAMPLE_MS);
    return () => clearInterval(timer);
  }, []);
  if (known.error && !status) return html`<${Absent} name=${name} module=${module} error=${known.error} />`;
  if (!status) return trouble ? html`<${Absent} name=${name} module=${module} error=${{ code: "Store", message: trouble }} />` : html`<p class="soft">Looking …</p>`;
  return html`<${Head} module=${module} name=${name} status=${status} path=${path} may=${may} isOpen=${isOpen} />
    ${trouble && html`<${Notice} error=${{ code: "Store", message: trouble }} />`}
    ${status.trouble && html`<${Notice} error=${{ code: "Mirror", message: status.trouble }} />`}
    ${status.background_trouble && html`<${Notice} error=${{ code: "Background work", message: status.background_trouble }} />`}
    ${!status.is_running && status.entry > 0 && html`<${Stopped} status=${status} />`}
    ${status.failure && html`<${Failure} failure=${status.failure} />`}
    <section class="card"><h2>Now</h2><${Now} status=${status} /></section>
    <section class="card"><h2>Microbatches</h2><${Microbatches} lines=${lines} chosen=${chosen} choose=${choose} line=${line} trouble=${absence} /></section>
    <${Charts} lines=${lines} samples=${samples} />
    ${status.quarantined > 0 && html`<${Quarantine} path=${path} status=${status} may=${may} />`}
    <${Plan} path=${path} lines=${measured} chosen=${chosen} asked=${query.get("step")} failing=${status.failure?.step} />
    <section class="card"><h2>Sources</h2><${Sources} module=${module} status=${status} /></section>
    <section class="card"><h2>Log</h2><${Log} log=${log} query=${query} chosen=${chosen} choose=${choose} /></section>`;
}

function Head({ module, name, status, path, may, isOpen }) {
  const [error, setError] = useState(null);
  const change = async (verb) => { try { setError(null); await ask(`${path}/${verb}`, { method: "POST" }); } catch (refused) { setError(refused); } };
  return html`<div class="head"><h1>${name} <span class="soft">of ${module}</span></h1><${State} status=${status} />
      ${isOpen ? html`<span class="tag plain live">live</span>` : html`<span class="tag warn">not connected</span>`}
      ${may("operate") && html`<button onClick=${() => change(status.is_paused ? "resume" : "pause")}>${status.is_paused ? "Resume" : "Pause"}</button>`}</div>
    ${error && html`<${Notice} error=${error} />`}`;
}

// Why nobody leads, and what to do.
const Stopped = ({ status }) => html`<section class="notice ${status.lost ? "bad" : ""}" aria-label="Nobody leads">
  <h2>${status.lost ? `${status.lost} led it and went without a word` : "Nobody leads it: it was stopped"}</h2>
  <p>${status.lost && "It was killed, or its machine stopped. "}The last entry of its log is of ${moment(status.written_ms)}, ${ago(status.written_ms)}. Nothing that was committed is lost, and each record still counts once${
    status.under_way ? html`: microbatch ${status.under_way[0]}, which was under way, is tried again with the same records` : ""}.</p>
  <p>It goes on as soon as somebody leads it: start <code>tidemill run</code> with its module and this store, on Kubernetes look at its driver's pod.</p></section>`;

const link = (address) => /^https?:\/\//.test(address) ? html`<a href=${address} target="_blank" rel="noopener noreferrer">${address}</a>` : address;

const Now = ({ status }) => html`<${Facts} facts=${{
  "Waiting": status.lag ? count(status.waiting, "record") : "not known",
  "Speed of the last one": `${rate(status.rows_per_second)} records/s`,
  "Microbatch": status.microbatch_id ? `${status.microbatch_id}, version ${status.version}` : "none yet",
  "Under way": status.under_way ? `${status.under_way[0]}, version ${status.under_way[1]}` : "nothing",
  "Processed": count(status.processed, "record"),
  ...(status.skipped ? { "Deleted unread": count(status.skipped, "record") } : {}),
  "Leader": status.leader ?? "nobody",
  "Standbys": status.standbys.length ? status.standbys.map((one) => html`<div key=${one}>${one}</div>`) : status.leader ? "none" : "–",
  "Epoch": number(status.epoch),
  "Runs on": status.engine || "–",
  ...(status.engine.startsWith("Spark") ? { "Spark's page": status.spark_ui ? link(status.spark_ui) : "off" } : {}),
  ...(status.placement ? { "Placement of the last one": status.placement } : {}),
  ...(status.metrics.executors !== undefined ? { "Executors at the last one": number(status.metrics.executors) } : {}),
  "Definition": number(status.definition),
  "Last entry": html`${number(status.entry)}, ${ago(status.written_ms)}`,
  "State": `${bytes(status.state_bytes)}, ${count(status.state_rows, "row")}`,
  "Levels": number(status.levels),
  ...(status.unpublished ? { "Appends not published": number(status.unpublished) } : {}),
  ...(status.quarantined ? { "Left out": html`${number(status.quarantined)}, of which ${number(status.in_quarantine)} wait` } : {}),
  ...Object.fromEntries(status.migrations.map((one) => [`Migration ${one.id}`, migrated(one)])),
}} />`;

const migrated = (one) => one.waiting ? `${number(one.waiting)} of ${number(one.rows)} rows to go` : "done";

// --- charts and sources ---------------------------------------------------------------------------------------------

function Charts({ lines, samples }) {
  const commits = lines.filter((line) => line.kind === "commit");
  const rates = useMemo(() => [commits.map((line) => line.written_ms / 1000), commits.map((line) => line.rows_per_second)], [lines]);
  const waiting = useMemo(() => [samples.map(([at]) => at), samples.map(([, count]) => count)], [samples]);
  return html`<div class="grid">
    <section class="card"><h2>Records a second</h2><${Chart} label="Records a second of each microbatch" series=${[["records/s", "--process"]]} data=${rates} format=${rate} /></section>
    <section class="card"><h2>Records that wait</h2><${Chart} label="Records that wait, since this view was opened" series=${[["waiting", "--commit"]]} data=${waiting} /></section></div>`;
}

// Whether a depot has a view here: ticks have no records, and depots of other modules and systems are looked at there.
const hasLog = (found, depot) => found.depots.some((one) => one.name === depot && one.tick_millis === null && one.partitioner !== "external");

const PARTITIONS_MAX = 64;

function Sources({ module, status }) {
  const path = `/modules/${segment(module)}`;
  const known = useAsked(path, () => ask(path));
  const sources = known.value?.topologies.find((one) => one.name === status.topology)?.sources ?? [];
  return html`<${Table} label="Sources" empty="It has no sources." rows=${sources.map((one) => ({ ...one, key: one.source_id }))} columns=${[
    ["Source", (row) => row.source_id],
    ["Depot", (row) => hasLog(known.value, row.depot) ? html`<a href="#/m/${segment(module)}/d/${segment(bare(row.depot))}">${row.depot}</a>` : html`<${Foreign} found=${known.value} depot=${row.depot} />`],
    ["Partitions", (row) => number(status.progress[row.source_id]?.length), true],
    ["Waiting", (row) => number(status.lag?.[row.source_id]), true]]} />
    <${Partitions} status=${status} sources=${sources} />`;
}

// A depot without records here: one of another module is there, if it is shown at all.
function Foreign({ found, depot }) {
  const mirror = found.mirrors.find((one) => one.name === depot);
  if (!mirror) return depot;
  return mirror.module ? html`<a href=${mirrorLink(mirror)}>${mirror.object}</a> of ${mirror.module}` : html`${mirror.object} <span class="soft">of another module</span>`;
}

// Where each partition of the sources began, how far it is, and what waits in it; of many those in which most waits.
function Partitions({ status, sources }) {
  const all = sources.flatMap(({ source_id: source }) => (status.progress[source] ?? []).map((next, partition) => ({
    key: `${source} ${partition}`, source, partition, next, started: status.start_from[source]?.[partition], waiting: status.lag_by_partition?.[source]?.[partition] })));
  if (all.length === 0) return null;
  const shown = all.length > PARTITIONS_MAX ? [...all].sort((one, other) => (other.waiting ?? 0) - (one.waiting ?? 0)).slice(0, PARTITIONS_MAX) : all;
  return html`<h3>Partitions</h3><${Table} label="Partitions of the sources" rows=${shown} columns=${[
    ["Source", (row) => row.source], ["Partition", (row) => row.partition, true], ["Started from offset", (row) => number(row.started), true],
    ["Next offset", (row) => number(row.next), true], ["Waiting", (row) => number(row.waiting), true]]} />
    ${shown.length < all.length && html`<p class="soft">Those ${number(shown.length)} of ${number(all.length)} in which most waits.</p>`}`;
}
