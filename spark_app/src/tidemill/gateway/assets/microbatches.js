// The microbatches of a topology as bars of their phases, and all that is told of the entry that is chosen.
import { html, useEffect, useMemo, useRef } from "./vendor/preact-htm.js";
import { ask, useAsked } from "./api.js";
import { Failure, isSameAttempt } from "./failure.js";
import { Facts, Notice, Table, Timeline, milliseconds, moment, number, total } from "./parts.js";

const BARS_MAX = 120;
const PHASES = [["prime", "prime_ms"], ["process", "process_ms"], ["commit", "commit_ms"]];
const named = (one) => `Microbatch ${one.microbatch_id}, version ${one.version}`;

// Attempts in the order of the log. A claim that finds one under way says that its leader ended before it did; when, nobody noted.
function bars(lines) {
  const made = [], begun = new Map(), told = new Set();
  const lost = (attempt, bar) => { // later entries repeat the last failure until a commit
    const name = named(attempt);
    if (!told.has(name)) made.push({ isFailed: true, total: 0, phases: [], ...bar, label: `${name} ${bar.label}` });
    told.add(name);
  };
  for (const line of lines) {
    const { entry, failure } = line;
    if (failure) lost(failure, { key: `failed ${entry}`, entry, ...lasted(begun.get(named(failure)), failure.at_ms, `failed in ${failure.phase}`) });
    if (line.kind === "claim" && line.begun && !isSameAttempt(line.begun, failure)) lost(line.begun, { key: `ended ${entry}`, entry, label: "ended with its leader" });
    if (line.kind === "commit") made.push({ key: `done ${entry}`, entry, total: total(line.metrics),
      phases: PHASES.map(([name, metric]) => [name, line.metrics?.[metric] ?? 0]).filter(([, millis]) => millis > 0),
      label: `${named(line)}: ${number(line.records)} records in ${milliseconds(total(line.metrics))}` });
    if (line.begun && !begun.has(named(line.begun))) begun.set(named(line.begun), line.failure ? undefined : line.written_ms); // after a failure an attempt is begun, and waits
  }
  return made;
}

function lasted(began, ended, label) {
  const millis = began === undefined ? 0 : Math.max(0, ended - began);
  return { total: millis, label: millis ? `${label} after ${milliseconds(millis)}` : label };
}

// The newest ones, or those around the one that is chosen.
function near(all, chosen) {
  const at = all.findIndex((bar) => bar.entry === chosen), newest = Math.max(0, all.length - BARS_MAX);
  const first = at < 0 ? newest : Math.max(0, Math.min(newest, at - BARS_MAX / 2));
  return all.slice(first, first + BARS_MAX);
}

export function Microbatches({ lines, chosen, choose, line, trouble }) {
  const all = useMemo(() => bars(lines), [lines]), shown = useMemo(() => near(all, chosen), [all, chosen]);
  return html`${shown.length === 0 ? html`<p class="soft">None is committed yet.</p>`
    : html`<${Timeline} bars=${shown} chosen=${chosen} choose=${choose} />
    <p class="legend"><span><i class="prime"></i>prime</span><span><i class="process"></i>process</span><span><i class="commit"></i>commit</span>
      <span><i class="failed"></i>failed, or ended with its leader: tried again</span><span>${percentiles(lines)}</span><span>${placements(lines)}</span></p>`}
    ${trouble}${line && html`<${Chosen} line=${line} key=${line.entry} />`}`;
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

// --- the entry that is chosen ---------------------------------------------------------------------------------------

// { line, trouble } of an entry; one that the view does not hold is asked for, with the one behind it, which says how long it took.
export function useEntry(path, lines, chosen) {
  const held = lines.find((line) => line.entry === chosen), newest = lines[lines.length - 1]?.entry ?? 0;
  const isAsked = Boolean(chosen) && !held && chosen <= newest;
  const found = useAsked(isAsked ? `${path} entry ${chosen}` : null, () => ask(`${path}/log?limit=3&before=${Math.min(chosen + 2, newest + 1)}`));
  const line = held ?? found.value?.find((one) => one.entry === chosen);
  if (!chosen || line) return { line, trouble: null };
  if (found.error) return { trouble: html`<${Notice} error=${found.error} />` };
  const text = chosen > newest ? `There is no entry ${number(chosen)}: the newest one is ${number(newest)}.`
    : found.value ? `Entry ${number(chosen)} is not kept any more: the log was trimmed.` : `Looking for entry ${number(chosen)} …`;
  return { trouble: html`<${Notice}>${text}<//>` };
}

function Chosen({ line }) {
  const place = useRef(null);
  useEffect(() => place.current.scrollIntoView({ block: "nearest" }), []); // it may be chosen far below, in the log
  const metrics = Object.entries(line.metrics ?? {}).map(([name, value]) => [name.replace(/_/g, " "), name.endsWith("_ms") ? milliseconds(value) : number(value)]);
  return html`<h3 ref=${place}>Entry ${line.entry}: ${line.kind} at ${moment(line.written_ms)}</h3>
    <${Facts} facts=${{ ...(line.microbatch_id ? { Microbatch: `${line.microbatch_id}, version ${line.version}`, Records: number(line.records), ...(line.placement ? { Placement: line.placement } : {}) } : {}),
      Owner: line.owner, Epoch: line.epoch, Definition: line.definition, ...Object.fromEntries(metrics) }} />
    ${line.begun && html`<h3>${line.kind === "claim" ? "Ended with its leader" : "Begun"}: microbatch ${line.begun.microbatch_id}, version ${line.begun.version}, ${number(line.begun.records)} records</h3>
      <${Ranges} ranges=${line.begun.ranges} />`}
    ${line.failure && html`<${Failure} failure=${line.failure} />`}`;
}

const Ranges = ({ ranges }) => html`<${Table} label="Ranges" empty="No records: a tick, or nothing." rows=${Object.entries(ranges ?? {}).flatMap(
  ([source, parts]) => parts.map(([partition, start, end]) => ({ source, partition, start, end })))}
  columns=${[["Source", (row) => row.source], ["Partition", (row) => row.partition, true], ["From offset", (row) => number(row.start), true],
    ["To", (row) => number(row.end), true], ["Records", (row) => number(row.end - row.start), true]]} />`;
