// One topology as it goes on: its newest microbatches, what waits, where time goes, and why it failed.
import { html, useEffect, useMemo, useState } from "./vendor/preact-htm.js";
import { ask, segment, useAsked, useEvents } from "./api.js";
import { Plan } from "./plan.js";
import { Quarantine } from "./quarantine.js";
import { Chart, Facts, Notice, State, Table, Timeline, ago, bytes, clock, count, milliseconds, moment, number, offsets, total, useTick } from "./parts.js";

const LINES_MAX = 1000;
const SAMPLES_MAX = 600;
const SAMPLE_MS = 5000;

export function Topology({ module, name, query, may }) {
  const path = `/modules/${segment(module)}/topologies/${segment(name)}`;
  const [status, setStatus] = useState(null), [lines, setLines] = useState([]), [samples, setSamples] = useState([]);
  const [trouble, setTrouble] = useState("");
  const isOpen = useEvents(`${path}/subscribe`, {
    status: (found) => { setStatus(found); setSamples((known) => [...known, [Date.now() / 1000, found.waiting]].slice(-SAMPLES_MAX)); },
    restart: () => { setLines([]); setSamples([]); },
    log: (found) => setLines((known) => merged(known, found)),
    trouble: ({ message }) => setTrouble(message),
  });
  const known = useAsked(path, () => ask(path)); // events that are refused come without a reason: this has it
  const chosen = Number(query.get("entry")) || null;
  const choose = (entry) => { window.location.hash = `/m/${segment(module)}/t/${segment(name)}?entry=${entry}`; };
  useTick(1);
  useEffect(() => { // what waits goes on to be what it was while nothing changes
    const timer = setInterval(() => setSamples((all) => all.length ? [...all, [Date.now() / 1000, all[all.length - 1][1]]].slice(-SAMPLES_MAX) : all), SAMPLE_MS);
    return () => clearInterval(timer);
  }, []);
  if (known.error) return html`<${Notice} error=${known.error} />`;
  if (!status) return html`<p class="soft">Looking …</p>`;
  const older = async () => {
    const found = await ask(`${path}/log?limit=200&before=${lines[0].entry}`);
    setLines((now) => merged(now, found, true));
  };
  return html`<${Head} module=${module} name=${name} status=${status} path=${path} may=${may} isOpen=${isOpen} />
    ${trouble && html`<${Notice} error=${{ code: "Store", message: trouble }} />`}
    ${status.background_trouble && html`<${Notice} error=${{ code: "Background work", message: status.background_trouble }} />`}
    ${!status.is_running && status.entry > 0 && html`<${Stopped} status=${status} />`}
    ${status.failure && html`<${Failure} failure=${status.failure} />`}
    <section class="card"><h2>Now</h2><${Now} status=${status} /></section>
    <section class="card"><h2>Microbatches</h2><${Microbatches} lines=${lines} chosen=${chosen} choose=${choose} /></section>
    <${Charts} lines=${lines} samples=${samples} />
    ${status.quarantined > 0 && html`<${Quarantine} path=${path} status=${status} may=${may} />`}
    <${Plan} path=${path} lines=${lines} chosen=${chosen} />
    <section class="card"><h2>Sources</h2><${Sources} module=${module} status=${status} /></section>
    <section class="card"><h2>Log</h2><${Log} lines=${lines} chosen=${chosen} choose=${choose} />
      ${lines.length > 0 && lines[0].entry > 1 && html`<p><button onClick=${older}>Older entries</button></p>`}</section>`;
}

// Lines by entry, once each; the newest LINES_MAX, or the oldest where somebody went back.
function merged(known, found, isBack = false) {
  const all = [...new Map([...known, ...found].map((line) => [line.entry, line])).values()].sort((one, other) => one.entry - other.entry);
  return isBack ? all.slice(0, LINES_MAX) : all.slice(-LINES_MAX);
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
  "Speed of the last one": `${number(status.rows_per_second)} records/s`,
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

const Failure = ({ failure }) => html`<section class="notice bad" aria-label="The last failure">
  <h2>Microbatch ${failure.microbatch_id}, version ${failure.version} failed in ${failure.phase}</h2>
  <p>At ${moment(failure.at_ms)}${failure.step && html` in the step <code>${failure.step}</code>`}. It is tried again until it succeeds${
    failure.code === "UserCodeFailed" ? html`: mend the code and start it again, or let records like this one be left out with the option <code>topology.on.record.error</code>` : ""}.</p>
  <p>${failure.message}</p>
  ${failure.sample && html`<h3>What the function was given</h3><pre tabindex="0">${failure.sample}</pre>`}
  ${failure.trace && html`<h3>Traceback</h3><pre tabindex="0">${failure.trace}</pre>`}</section>`;

// --- microbatches ---------------------------------------------------------------------------------------------------

const PHASES = [["prime", "prime_ms"], ["process", "process_ms"], ["commit", "commit_ms"]];

function bars(lines) {
  return lines.filter((line) => line.kind === "commit" || line.failure).slice(-120).flatMap((line) => {
    const made = [];
    if (line.failure) made.push({ key: -line.entry, isFailed: true, total: 0, phases: [],
      label: `Microbatch ${line.failure.microbatch_id}, version ${line.failure.version} failed in ${line.failure.phase}` });
    if (line.kind === "commit") made.push({ key: line.entry, total: total(line.metrics),
      phases: PHASES.map(([name, metric]) => [name, line.metrics?.[metric] ?? 0]).filter(([, millis]) => millis > 0),
      label: `Microbatch ${line.microbatch_id}, version ${line.version}: ${number(line.records)} records in ${milliseconds(total(line.metrics))}` });
    return made;
  });
}

function Microbatches({ lines, chosen, choose }) {
  const shown = useMemo(() => bars(lines), [lines]);
  const line = lines.find((one) => one.entry === chosen);
  if (shown.length === 0) return html`<p class="soft">None is committed yet.</p>`;
  return html`<${Timeline} bars=${shown} chosen=${chosen} choose=${(key) => choose(Math.abs(key))} />
    <p class="legend"><span><i class="prime"></i>prime</span><span><i class="process"></i>process</span><span><i class="commit"></i>commit</span>
      <span><i class="failed"></i>failed, tried again</span><span>${percentiles(lines)}</span><span>${placements(lines)}</span></p>
    ${line && html`<${Chosen} line=${line} />`}`;
}

function percentiles(lines) {
  const times = lines.filter((line) => line.kind === "commit").map((line) => total(line.metrics)).sort((one, other) => one - other);
  const at = (share) => milliseconds(times[Math.min(times.length - 1, Math.floor(times.length * share))]);
  return times.length ? `of ${times.length}: median ${at(0.5)}, 90 % within ${at(0.9)}, longest ${at(1)}` : "";
}

function placements(lines) {
  const counts = {};
  for (const { placement } of lines) if (placement) counts[placement] = (counts[placement] ?? 0) + 1;
  const told = Object.entries(counts).map(([name, times]) => `${name} ${number(times)}`).join(", ");
  return told && `ran ${told}`;
}

function Chosen({ line }) {
  const metrics = Object.entries(line.metrics ?? {}).map(([name, value]) => [name.replace(/_/g, " "), name.endsWith("_ms") ? milliseconds(value) : number(value)]);
  return html`<h3>Entry ${line.entry}: ${line.kind} at ${moment(line.written_ms)}</h3>
    <${Facts} facts=${{ ...(line.microbatch_id ? { Microbatch: `${line.microbatch_id}, version ${line.version}`, Records: number(line.records), ...(line.placement ? { Placement: line.placement } : {}) } : {}),
      Owner: line.owner, Epoch: line.epoch, Definition: line.definition, ...Object.fromEntries(metrics) }} />
    ${line.begun && html`<h3>Begun: microbatch ${line.begun.microbatch_id}, version ${line.begun.version}, ${number(line.begun.records)} records</h3>
      <${Ranges} ranges=${line.begun.ranges} />`}
    ${line.failure && html`<${Failure} failure=${line.failure} />`}`;
}

const Ranges = ({ ranges }) => html`<${Table} label="Ranges" empty="No records: a tick, or nothing." rows=${Object.entries(ranges ?? {}).flatMap(
  ([source, parts]) => parts.map(([partition, start, end]) => ({ source, partition, start, end })))}
  columns=${[["Source", (row) => row.source], ["Partition", (row) => row.partition, true], ["From offset", (row) => number(row.start), true],
    ["To", (row) => number(row.end), true], ["Records", (row) => number(row.end - row.start), true]]} />`;

function Charts({ lines, samples }) {
  const commits = lines.filter((line) => line.kind === "commit");
  const rates = useMemo(() => [commits.map((line) => line.written_ms / 1000), commits.map((line) => line.rows_per_second)], [lines]);
  const waiting = useMemo(() => [samples.map(([at]) => at), samples.map(([, count]) => count)], [samples]);
  return html`<div class="grid">
    <section class="card"><h2>Records a second</h2><${Chart} label="Records a second of each microbatch" series=${[["records/s", "--process"]]} data=${rates} /></section>
    <section class="card"><h2>Records that wait</h2><${Chart} label="Records that wait, since this view was opened" series=${[["waiting", "--commit"]]} data=${waiting} /></section></div>`;
}

// --- sources and log ------------------------------------------------------------------------------------------------

function Sources({ module, status }) {
  const path = `/modules/${segment(module)}`;
  const known = useAsked(path, () => ask(path));
  const sources = known.value?.topologies.find((one) => one.name === status.topology)?.sources ?? [];
  return html`<${Table} label="Sources" empty="It has no sources." rows=${sources.map((one) => ({ ...one, key: one.source_id }))} columns=${[
    ["Source", (row) => row.source_id],
    ["Depot", (row) => html`<a href="#/m/${segment(module)}/d/${segment(row.depot.replace("*", ""))}">${row.depot}</a>`],
    ["Waiting", (row) => number(status.lag?.[row.source_id]), true],
    ["Next offsets by partition", (row) => html`<code>${offsets(status.progress[row.source_id] ?? [])}</code>`]]} />`;
}

const KINDS = { claim: "A leader claimed it", begin: "Begun", commit: "Committed", compact: "Compacted", note: "Noted" };

// What a claim says only together with the entry before it: who led until then, and how long nobody wrote.
const claimed = (line, before) => line.kind !== "claim" || !before ? "" : html` <span class="soft">${
  before.owner === line.owner ? "" : `${milliseconds(line.written_ms - before.written_ms)} after the last entry of ${before.owner}`}</span>`;

// The newest of equal failures has the text; what is tried again and again would fill the log with it.
const failed = (line, after) => after?.failure?.message === line.failure.message ? "after the same failure" : `after a failure: ${line.failure.message.split("\n")[0]}`;

const Log = ({ lines, chosen, choose }) => html`<${Table} label="Log" rows=${lines.map((line, at) => ({ ...line, key: line.entry, before: lines[at - 1], after: lines[at + 1] })).slice(-60).reverse()} columns=${[
  ["Entry", (line) => html`<button class="link" aria-pressed=${line.entry === chosen} onClick=${() => choose(line.entry)}>${line.entry}</button>`, true],
  ["Time", (line) => clock(line.written_ms)],
  ["Event", (line) => html`${KINDS[line.kind] ?? line.kind}${claimed(line, line.before)}${line.failure && html` <span class="bad">${failed(line, line.after)}</span>`}`],
  ["Microbatch", (line) => line.microbatch_id ? `${line.microbatch_id}/${line.version}` : line.begun ? `${line.begun.microbatch_id}/${line.begun.version}` : "–"],
  ["Records", (line) => number(line.records ?? line.begun?.records), true],
  ["Time taken", (line) => line.kind === "commit" ? milliseconds(total(line.metrics)) : "–", true],
  ...(lines.some((line) => line.placement) ? [["Ran", (line) => line.placement]] : []),
  ["Leader", (line) => html`<span class="soft nowrap">${line.owner}</span>`]]} />`;
