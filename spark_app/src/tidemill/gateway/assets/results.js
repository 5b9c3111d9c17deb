// What a path selected, page by page: pairs of keys and values as a table, all else as trees.
import { html, useState } from "./vendor/preact-htm.js";
import { Table, Values, number } from "./parts.js";

const PAGE = 100;

const isPair = (value) => Array.isArray(value) && value.length === 2;

export function Results({ values, isOfPairs }) {
  const [rows, setRows] = useState(PAGE), shown = values.slice(0, rows), left = values.length - shown.length;
  const arePairs = isOfPairs && values.length > 0 && values.every(isPair);
  return html`<p class="soft" role="status">${number(values.length)} ${values.length === 1 ? "value" : "values"}${left > 0 && `, the first ${number(shown.length)} are shown`}</p>
    ${arePairs ? html`<${Table} label="Selected" rows=${shown.map(([key, value], at) => ({ key: at, name: key, value }))} columns=${[
      ["Key", (row) => html`<code>${JSON.stringify(row.name)}</code>`], ["Value", (row) => html`<${Values} value=${row.value} />`]]} />`
      : shown.map((value, at) => html`<${Values} key=${at} value=${value} />`)}
    ${left > 0 && html`<p><button type="button" onClick=${() => setRows(rows + PAGE)}>More</button></p>`}`;
}
