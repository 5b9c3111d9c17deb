// How a PState lies on its tasks, and the keys that weigh most: to see skew.
import { html, useState } from "./vendor/preact-htm.js";
import { ask, useAsked } from "./api.js";
import { Notice, Table, bytes, count, number } from "./parts.js";

const ROWS_MAX = 64;

export function Tasks({ path }) {
  const [isOpen, setOpen] = useState(false);
  const found = useAsked(isOpen ? `${path}/tasks` : null, () => ask(`${path}/tasks`));
  return html`<section class="card"><details open=${isOpen} onToggle=${(event) => setOpen(event.target.open)}><summary><h2 class="inline">By task</h2></summary>
    ${found.error && html`<${Notice} error=${found.error} />`}${found.isLoading && html`<p class="soft">Looking …</p>`}
    ${found.value && html`<${Sizes} found=${found.value} />`}
    ${found.value && html`<p><button onClick=${found.again}>Look again</button></p>`}</details></section>`;
}

function Sizes({ found }) {
  const all = found.tasks.reduce((sum, one) => sum + one.rows, 0), most = Math.max(1, ...found.tasks.map((one) => one.rows));
  const rows = [...found.tasks].sort((one, other) => other.rows - one.rows || one.task - other.task).slice(0, ROWS_MAX).map((one) => ({ ...one, key: one.task }));
  return html`<p>${summary(found.tasks, all)} ${found.left_out > 0 && html`<strong>${number(found.left_out)} tasks are left out: to look at them would take too long, or too many bytes.</strong>`}</p>
    <${Table} label="By task" rows=${rows} empty="It is empty." columns=${[
      ["Task", (row) => row.task, true], ["Stored rows", (row) => number(row.rows), true],
      ["Share", (row) => html`<meter min="0" max=${most} value=${row.rows} aria-label=${`Rows of task ${row.task}`}></meter> ${(100 * row.rows / (all || 1)).toFixed(1)} %`, true], ["In the store, about", (row) => bytes(row.bytes), true],
      ...(found.unit ? [[HEADINGS[found.unit], (row) => html`${row.keys.map(([key, weight]) => html`<div><code>${JSON.stringify(key)}</code> <span class="soft">${weighed(found.unit, weight, row.rows)}</span></div>`)}`]] : [])]} />
    ${found.tasks.length > ROWS_MAX && html`<p class="soft">The ${ROWS_MAX} largest of ${number(found.tasks.length)} tasks.</p>`}
    <p class="soft">Stored rows of all levels, so also those that newer ones replace until they are compacted. ${HINTS[found.unit]}</p>`;
}

function summary(tasks, all) {
  const largest = tasks.reduce((one, other) => (other.rows > one.rows ? other : one), { rows: 0 });
  const empty = tasks.filter((one) => one.rows === 0).length;
  if (tasks.length < 2 || all === 0) return `${number(all)} stored rows.`;
  return `${number(all)} stored rows. The largest task holds ${(largest.rows * tasks.length / all).toFixed(1)} times the average${empty ? `, and ${number(empty)} of ${number(tasks.length)} hold none` : ""}.`;
}

const HEADINGS = { rows: "Heaviest keys, by rows below them", bytes: "Heaviest keys, by bytes of their values" };
const HINTS = {
  rows: "Keys are found at 256 places of a task, evenly spaced: one with more than a 256th of its rows in one level is always among them.",
  bytes: "Values of up to a million rows, evenly spaced, were compared.", "": "",
};
const weighed = (unit, weight, rows) => unit === "bytes" ? bytes(weight) : `${count(weight, "row")}, ${(100 * weight / (rows || 1)).toFixed(1)} %`;
