// The levels that a PState lies in: a select merges them, and compaction makes few of many.
import { html } from "./vendor/preact-htm.js";
import { ask, useAsked, useNews } from "./api.js";
import { Facts, Notice, Table, ago, bytes, count, moment, number } from "./parts.js";

const ROWS_MAX = 64;
const sum = (levels, name) => levels.reduce((all, one) => all + one[name], 0);
const KINDS = { delta: "changes", run: "compacted" };

export function Levels({ path, news }) {
  const found = useAsked(`${path} levels`, () => ask(`${path}/levels`));
  useNews(news, found);
  if (found.error && !found.value) return html`<${Notice} error=${found.error} />`;
  if (!found.value) return html`<p class="soft">Looking …</p>`;
  const { levels, compacted, compacted_ms: at, compacting } = found.value;
  return html`<section class="card"><h2>Size</h2><${Facts} facts=${{ "Stored rows": number(sum(levels, "rows")), "In the store, about": bytes(sum(levels, "bytes")), "Levels with rows": number(levels.length),
      "Last compaction": !compacted ? "none yet" : html`entry ${number(compacted)}${at ? html`, <span title=${moment(at)}>${ago(at)}</span>` : ", long ago"}`, ...(compacting ? { "Under way": count(compacting, "compaction") } : {}) }} />
    <details><summary><h3 class="inline">Levels</h3></summary><${Table} label="Levels" empty="It is empty." rows=${levels.slice(-ROWS_MAX).reverse().map((one) => ({ ...one, key: one.last }))} columns=${[
      ["Microbatches", (row) => row.first === row.last ? number(row.first) : `${number(row.first)} to ${number(row.last)}`], ["What", (row) => row.is_base ? "compacted, the oldest" : KINDS[row.kind]],
      ["Rows", (row) => number(row.rows), true], ["Bytes, about", (row) => bytes(row.bytes), true]]} />
    ${levels.length > ROWS_MAX && html`<p class="soft">The newest ${ROWS_MAX} of ${number(levels.length)}.</p>`}</details>
    <p><button onClick=${found.again}>Look again</button></p></section>`;
}
