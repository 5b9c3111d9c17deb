// Records at which a topology's code raised: what they are, why, and what becomes of them.
import { html, useState } from "./vendor/preact-htm.js";
import { ask, useAsked } from "./api.js";
import { Notice, Table, Values, count, moment, number } from "./parts.js";

const PAGE = 50;

export function Quarantine({ path, status, may }) {
  const [after, setAfter] = useState(-1), [error, setError] = useState(null), [done, setDone] = useState("");
  const found = useAsked(`${path} quarantine ${after} ${status.quarantined} ${status.in_quarantine}`,
    () => ask(`${path}/quarantine/page`, { method: "POST", body: { after, limit: PAGE } }));
  const decide = async (verb, numbers) => {
    setError(null);
    try {
      const answer = await ask(`${path}/quarantine/${verb}`, { method: "POST", body: { numbers } });
      setDone(answer.retried === undefined ? `Dropped ${count(answer.dropped, "record")}.` : `Appended ${count(answer.retried, "record")} again.`);
      found.again();
    } catch (refused) { setError(refused); }
  };
  const rows = (found.value ?? []).map((row) => ({ ...row, key: row.number }));
  const decision = (row) => html`<button onClick=${() => decide("retry", [row.number])}>Retry</button> <button onClick=${() => decide("drop", [row.number])}>Drop</button>`;
  return html`<section class="card"><h2>Quarantine</h2>
    <p class="soft">The module's code raised at these records, and they were left out. Retry appends one again, where it comes last; drop forgets it.</p>
    ${error && html`<${Notice} error=${error} />`}${done && html`<${Notice}>${done}<//>`}
    ${found.error && html`<${Notice} error=${found.error} />`}
    <${Table} label="Quarantine" rows=${rows} empty=${found.isLoading ? "Looking …" : "Nothing waits for a decision."} columns=${[
      ["Number", (row) => number(row.number), true],
      ["Record", (row) => html`<${Values} value=${row.record} />`],
      ["Where", (row) => html`${row.depot}, partition ${row.partition}, offset ${number(row.offset)}<br /><span class="soft">microbatch ${row.microbatch_id}, ${moment(row.at_ms)}</span>`],
      ["Why", (row) => html`${row.message}${row.trace && html`<details><summary>Traceback</summary><pre tabindex="0">${row.trace}</pre></details>`}`],
      ...(may("operate") ? [["Decision", decision]] : [])]} />
    <p>${after >= 0 && html`<button onClick=${() => setAfter(-1)}>First ones</button> `}
      ${rows.length === PAGE && html`<button onClick=${() => setAfter(rows[rows.length - 1].number)}>More</button>`}</p></section>`;
}
