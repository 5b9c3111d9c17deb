// What happened to a module, newest first: entries of its topologies, decisions on their quarantines, its definitions, and changes of its options.
import { html, useEffect } from "./vendor/preact-htm.js";
import { ask, segment, useAsked } from "./api.js";
import { isSameFailure } from "./failure.js";
import { Changed } from "./options.js";
import { Notice, Table, count, moment, number } from "./parts.js";

const PAGE = 50, LOGS_MAX = 64; // of which the gateway merges the entries
const KINDS = { "": "all", failure: "failures", claim: "claims", begin: "begun", commit: "commits", compact: "compactions", note: "notes", decision: "decisions on quarantines", option: "options", definition: "definitions" };
const ENTRIES = { claim: "A leader claimed it", begin: "Begun", commit: "Committed", compact: "Compacted", note: "Noted" };

// `live` changes with each event of the module; a page of older lines stays as it is.
export function History({ module, found, live, base }) {
  const query = new URLSearchParams(window.location.hash.split("?")[1] ?? ""), [kind, topology, before] = ["kind", "topology", "before"].map((name) => query.get(name) ?? "");
  const path = `/modules/${segment(module)}/log?${search({ limit: PAGE, kind, topology, before })}`;
  const log = useAsked(path, () => ask(path));
  useEffect(() => { if (!before && live.definition !== undefined) log.refresh(); }, [live]);
  const go = (changed) => { window.location.hash = address(base, { kind, topology, ...changed }); };
  const lines = (log.value?.lines ?? []).map((line) => ({ ...line, key: `${line.entry ? "" : line.kind} ${line.topology ?? ""} ${line.entry ?? line.number}` }));
  const newer = {}; // of each topology the failure of the line above, whose text need not be told again
  for (const line of lines) { if (line.failure) { line.isTold = isSameFailure(newer[line.topology], line.failure); newer[line.topology] = line.failure; } }
  return html`<form class="row" onSubmit=${(event) => event.preventDefault()}>
      <${Choice} label="What" value=${kind} options=${Object.entries(KINDS)} change=${(value) => go({ kind: value })} />
      <${Choice} label="Topology" value=${topology} options=${[["", "all"], ...found.topologies.map(({ name }) => [name, name])]} change=${(value) => go({ topology: value })} /></form>
    ${!topology && found.topologies.length > LOGS_MAX && html`<p class="soft">Entries of the first ${LOGS_MAX} of ${number(found.topologies.length)} topologies by name; choose one of the others to see its own.</p>`}
    ${log.error && html`<${Notice} error=${log.error} />`}
    <${Table} label="Log of the module" rows=${lines} empty=${log.value ? (log.value.before ? "Nothing that fits among the newest; look at older ones." : "Nothing that fits.") : "Looking …"} columns=${[
      ["Time", (line) => html`<span class="nowrap">${moment(line.written_ms)}</span>`],
      ["Where", (line) => html`<a href=${link(base, line)}>${place(line)}</a>`],
      ["Event", (line) => html`<${Event} line=${line} />`],
      ["By", (line) => html`<span class="soft">${line.kind === "option" || line.kind === "decision" ? line.by || "not told" : line.by || (line.owner ?? (line.revision ? `revision ${line.revision} of a Module` : "–"))}</span>`]]} />
    <p>${before && html`<a href=${address(base, { kind, topology })}>Newest</a> `}${log.value?.before && html`<a href=${address(base, { kind, topology, before: log.value.before })}>Older</a>`}</p>`;
}

const search = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value));
function address(base, values) {
  const asked = String(search(values));
  return `${base}/log${asked && `?${asked}`}`;
}

const Choice = ({ label, value, options, change }) => html`<label>${label}<select value=${value} onChange=${(event) => change(event.target.value)}>
  ${options.map(([one, text]) => html`<option value=${one} selected=${one === value}>${text}</option>`)}</select></label>`;

const place = (line) => line.kind === "decision" ? `${line.topology}, decision ${number(line.number)}` : line.kind === "option" ? `options, change ${number(line.number)}` : line.kind === "definition" ? `definition ${number(line.number)}` : `${line.topology}, entry ${number(line.entry)}`;
const link = (base, line) => line.kind === "decision" ? `${base}/t/${segment(line.topology)}` : line.kind === "option" ? `${base}/options` : line.kind === "definition" ? base : `${base}/t/${segment(line.topology)}?entry=${line.entry}`;

function Event({ line }) {
  if (line.kind === "option") return html`<${Changed} one=${line} />`;
  if (line.kind === "definition") return line.is_destroyed ? "The module was destroyed"
    : `${line.number === 1 ? "Launched" : "Defined anew"}: ${count(line.topologies, "topology", "topologies")}, ${count(line.depots, "depot")}, ${count(line.queries, "query", "queries")}`;
  if (line.kind === "decision") return `${line.action === "retry" ? "Retried" : "Dropped"} ${count(line.records, "record")} in quarantine`;
  return html`${ENTRIES[line.kind] ?? line.kind}${line.microbatch_id ? ` microbatch ${line.microbatch_id}/${line.version}, ${count(line.records, "record")}` : ""}
    ${line.failure && html` <span class="bad">after ${line.failure.microbatch_id}/${line.failure.version} failed in ${line.failure.phase}${line.isTold ? ", as above" : `: ${line.failure.message.split("\n")[0]}`}</span>`}`;
}
