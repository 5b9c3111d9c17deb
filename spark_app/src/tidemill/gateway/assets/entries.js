// The log of a topology: what is held of it, older entries page by page, and a filter by what happened.
import { html, useMemo, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { isSameAttempt, isSameFailure } from "./failure.js";
import { keep } from "./place.js";
import { Notice, Table, milliseconds, number, total, when } from "./parts.js";

const LINES_MAX = 1000; // that are held as they come
const HELD_MAX = 10_000; // where somebody goes back
const ROWS_FIRST = 60, ROWS_MORE = 200;
const PAGE = 500, PAGES_MAX = 4; // that one press of a button asks for, where few lines fit the filter

// { lines, isEnd, take, restart, older }: lines by entry, oldest first, without gaps; isEnd: the store has none before them.
export function useLog(path) {
  const [held, setHeld] = useState({ lines: [], max: LINES_MAX, isEnd: false });
  const take = (found) => setHeld((now) => ({ ...now, lines: (follows(now.lines, found) ? merged(now.lines, found) : found).slice(-now.max) }));
  const restart = () => setHeld({ lines: [], max: LINES_MAX, isEnd: false });
  const older = async (fits, wanted) => {
    let { lines } = held;
    for (let page = 0, count = 0; page < PAGES_MAX && count < wanted && lines.length < HELD_MAX; page += 1) {
      const found = lines[0].entry > 1 ? await ask(`${path}/log?limit=${PAGE}&before=${lines[0].entry}`) : [];
      if (found.length === 0) { setHeld((now) => ({ ...now, isEnd: true })); return; }
      lines = merged(lines, found);
      count += found.filter(fits).length;
      setHeld((now) => { const all = merged(now.lines, found); return { ...now, lines: all, max: Math.max(now.max, all.length) }; });
    }
  };
  return { ...held, isEnd: held.isEnd || held.lines[0]?.entry === 1, take, restart, older };
}

// After a long time without a connection the lines that come leave some out: then those held before it are forgotten.
const follows = (known, found) => known.length === 0 || found.length === 0 || found[0].entry <= known[known.length - 1].entry + 1;

const merged = (known, found) => [...new Map([...known, ...found].map((line) => [line.entry, line])).values()].sort((one, other) => one.entry - other.entry);

// --- the table ------------------------------------------------------------------------------------------------------

const KINDS = { claim: "A leader claimed it", begin: "Begun", commit: "Committed", compact: "Compacted", note: "Noted" };

// Entries repeat the last failure until a commit; the first one that tells of it is where it happened.
const tellsFailure = (line, before) => Boolean(line.failure) && !isSameAttempt(line.failure, before?.failure);

// By what stands in the address: a name for people, and which lines it is about.
const FILTERS = {
  "": ["all", () => true],
  commits: ["commits", (line) => line.kind === "commit"],
  failures: ["failures", (line) => line.isFailing || line.isEnding],
  claims: ["claims", (line) => line.kind === "claim"],
  others: ["others", (line) => line.kind !== "commit" && line.kind !== "claim" && !line.isFailing],
};

const placed = (lines) => lines.map((line, at) => ({ ...line, key: line.entry, before: lines[at - 1], after: lines[at + 1],
  isFailing: tellsFailure(line, lines[at - 1]), isEnding: line.kind === "claim" && Boolean(line.begun) }));

// What a claim says only together with the entry before it: who led until then, how long nobody wrote, and what was under way.
const claimed = ({ kind, owner, written_ms, begun, before }) => kind !== "claim" ? "" : html`${before && before.owner !== owner && html` <span class="soft">${
  milliseconds(written_ms - before.written_ms)} after the last entry of ${before.owner}</span>`}${
  begun && html` <span class="bad">microbatch ${begun.microbatch_id}/${begun.version} ended with its leader</span>`}`;

// The newest of equal failures has the text; what is tried again and again would fill the log with it.
const failed = ({ failure, after }) => isSameFailure(after?.failure, failure) && !isSameAttempt(after.failure, failure) ? "after the same failure" : `after a failure: ${failure.message.split("\n")[0]}`;

const columns = (lines, chosen, choose) => [
  ["Entry", (line) => html`<button class="link" aria-pressed=${line.entry === chosen} onClick=${() => choose(line.entry)}>${line.entry}</button>`, true],
  ["Time", (line) => html`<span class="nowrap">${when(line.written_ms)}</span>`],
  ["Event", (line) => html`${KINDS[line.kind] ?? line.kind}${claimed(line)}${line.isFailing && html` <span class="bad">${failed(line)}</span>`}`],
  ["Microbatch", (line) => line.microbatch_id ? `${line.microbatch_id}/${line.version}` : line.begun ? `${line.begun.microbatch_id}/${line.begun.version}` : "–"],
  ["Records", (line) => number(line.records ?? line.begun?.records), true],
  ["Time taken", (line) => line.kind === "commit" ? milliseconds(total(line.metrics)) : "–", true],
  ...(lines.some((line) => line.placement) ? [["Ran", (line) => line.placement]] : []),
  ["Leader", (line) => html`<span class="soft nowrap">${line.owner}</span>`]];

export function Log({ log, query, chosen, choose }) {
  const [rows, setRows] = useState(ROWS_FIRST), [isAsking, setAsking] = useState(false), [error, setError] = useState(null);
  const asked = query.get("log") ?? "", name = Object.hasOwn(FILTERS, asked) ? asked : "", fits = FILTERS[name][1], { lines } = log;
  const found = useMemo(() => placed(lines).filter(fits), [lines, name]);
  const table = useMemo(() => html`<${Table} label="Log" empty="None of the entries that were looked at." rows=${found.slice(-rows).reverse()} columns=${columns(lines, chosen, choose)} />`, [found, rows, chosen]);
  const isFull = lines.length >= HELD_MAX, hasMore = found.length > rows || !(log.isEnd || isFull);
  const older = async () => {
    setRows(rows + ROWS_MORE); setAsking(true); setError(null);
    try { await log.older(fits, rows + ROWS_MORE - found.length); } catch (refused) { setError(refused); }
    setAsking(false);
  };
  return html`<form class="row"><label>Show<select aria-label="Show entries" value=${name} onChange=${(event) => keep({ log: event.target.value })}>
      ${Object.entries(FILTERS).map(([one, [title]]) => html`<option value=${one} selected=${one === name}>${title}</option>`)}</select></label></form>
    ${table}${error && html`<${Notice} error=${error} />`}
    ${lines.length > 0 && html`<p>${hasMore && html`<button disabled=${isAsking} onClick=${older}>Older entries</button> `}<span class="soft" role="status">${
      number(Math.min(rows, found.length))} of the entries ${number(lines[0].entry)} to ${number(lines[lines.length - 1].entry)}${told(log, isFull)}.</span></p>`}`;
}

// Why there is nothing before what is held.
function told(log, isFull) {
  if (log.isEnd) return log.lines[0].entry === 1 ? ", which are all" : "; older ones are not kept any more, the log was trimmed";
  return isFull ? `; one view holds no more, but an address with entry=${log.lines[0].entry - 1} shows an older one` : "";
}
