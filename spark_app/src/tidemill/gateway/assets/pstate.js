// One PState: its schema, its keys in pages, what a path selects, now or as of a microbatch, and what microbatches changed.
import { html, useState } from "./vendor/preact-htm.js";
import { ask, bare, segment, useAsked, written } from "./api.js";
import { Tasks } from "./tasks.js";
import { Facts, Notice, Schema, Table, Values, number } from "./parts.js";

// What is shown of a value that is too large to be taken whole: how many elements it has.
const SIZE = [["view", "#__fOps.SIZE"]];

export function PState({ module, name, query }) {
  const path = `/modules/${segment(module)}/pstates/${segment(name)}`;
  const info = useAsked(path, () => ask(path));
  const known = useAsked(`/modules/${segment(module)}`, () => ask(`/modules/${segment(module)}`));
  if (info.error) return html`<${Notice} error=${info.error} />`;
  if (!info.value || !known.value) return html`<p class="soft">Looking …</p>`;
  const found = known.value.topologies.flatMap((topology) => topology.pstates.map((one) => ({ ...one, topology: topology.name })))
    .find((one) => bare(one.name) === name);
  const below = found?.schema?.map?.[1]?.subindexed ? SIZE : null;
  const partitions = info.value.partitions ?? info.value.num_partitions;
  return html`<div class="head"><h1>$$${name} <span class="soft">of ${module}</span></h1></div>
    <section class="card"><${Facts} facts=${{ "Written by": found?.topology ?? "–", Partitions: number(partitions), "Newest entry": number(info.value.entry) }} />
      <h2>Schema</h2><ul class="tree"><${Schema} schema=${found?.schema ?? "value"} /></ul></section>
    <${Select} path=${path} query=${query} schema=${found?.schema} address="#/m/${segment(module)}/p/${segment(name)}" />
    <${Tasks} path=${path} />
    ${found?.schema?.map && !found.global && html`<${Keys} path=${path} below=${below} /><${Changes} path=${path} below=${below} />`}`;
}

// Paths to begin with, by the schema.
function examples(schema) {
  if (!schema?.map) return [["The value", "[]"]];
  const key = schema.map[0] === "int" ? "1" : '"key"', below = schema.map[1];
  const made = [["One key", `[${key}]`]];
  if (below?.map) made.push(["First ten below it", `[${key}, ["sortedMapRangeFrom", null, {"max-amt": 10}], ["all"]]`.replace("null", below.map[0] === "int" ? "0" : '""')],
    ["All below it", `[${key}, ["all"]]`], ["How many below it", `[${key}, ["view", "#__fOps.SIZE"]]`]);
  if (below?.fixed_keys) made.push(["One field", `[${key}, ${JSON.stringify(below.fixed_keys[0][0])}]`]);
  return made;
}

function Select({ path, query, schema, address }) {
  const [text, setText] = useState(query.get("path") ?? ""), [microbatch, setMicrobatch] = useState(query.get("microbatch") ?? "");
  const asked = query.get("path"), at = query.get("microbatch");
  const found = useAsked(asked === null ? null : `${path} ${asked} ${at}`, () => select(path, asked, at));
  const go = (event) => {
    event.preventDefault();
    const next = new URLSearchParams({ path: text, ...(microbatch ? { microbatch } : {}) });
    if (`${address}?${next}` === window.location.hash) found.again(); else window.location.hash = `${address}?${next}`;
  };
  return html`<section class="card"><h2>Select</h2>
    <form class="row" onSubmit=${go}><label class="grow">Path, as a JSON list<input class="wide mono" required list="paths" value=${text} placeholder='["key", ["all"]]'
        onInput=${(event) => setText(event.target.value)} /></label>
      <datalist id="paths">${examples(schema).map(([name, example]) => html`<option value=${example}>${name}</option>`)}</datalist>
      <label>As of microbatch<input type="number" min="0" placeholder="newest" value=${microbatch} onInput=${(event) => setMicrobatch(event.target.value)} /></label>
      <button class="main">Select</button></form>
    <p class="soft">For example ${examples(schema).map(([name, example]) => html`<button class="link" type="button" onClick=${() => setText(example)}>${name}</button> `)}</p>
    ${found.error && html`<${Notice} error=${found.error} />`}
    ${found.value && html`<p class="soft">${number(found.value.length)} ${found.value.length === 1 ? "value" : "values"}</p>
      ${found.value.map((value) => html`<${Values} value=${value} />`)}`}</section>`;
}

async function select(path, text, microbatch) {
  let navigators;
  try { navigators = written(text); } catch (problem) { throw Object.assign(new Error(`The path is no JSON: ${problem.message}`), { code: "JSON" }); }
  const at = microbatch ? (await ask(`${path}?microbatch=${segment(microbatch)}`)).entry : null;
  return ask(`${path}/select`, { method: "POST", body: { path: navigators, ...(at === null ? {} : { at }) } });
}

function Keys({ path, below }) {
  const [after, setAfter] = useState(null), [trail, setTrail] = useState([]);
  const page = useAsked(`${path} page ${after}`, () => ask(`${path}/page`, { method: "POST", body: { limit: 50, ...(below && { path: below }), ...(after && { after }) } }));
  const rows = (page.value?.items ?? []).map((item, at) => ({ key: at, item }));
  const forward = () => { setTrail([...trail, after]); setAfter(page.value.after); };
  const back = () => { setAfter(trail[trail.length - 1]); setTrail(trail.slice(0, -1)); };
  return html`<section class="card"><h2>Keys</h2>${page.error && html`<${Notice} error=${page.error} />`}
    <${Table} label="Keys" rows=${rows} empty=${page.isLoading ? "Looking …" : "It is empty."} columns=${[
      ["Key", ({ item }) => html`<code>${JSON.stringify(Array.isArray(item) ? item[0] : item)}</code>`],
      [below ? "Elements" : "Value", ({ item }) => html`<${Values} value=${below ? item[1][0] : item[1]} />`]]} />
    <p>${trail.length > 0 && html`<button onClick=${back}>Back</button> `}${page.value?.after && html`<button onClick=${forward}>More</button>`}
      ${" "}<button onClick=${page.again}>Look again</button></p></section>`;
}

function Changes({ path, below }) {
  const [asked, setAsked] = useState(null), [before, setBefore] = useState(""), [later, setLater] = useState("");
  const [text, setText] = useState(below ? '[["all"]]' : "");
  const found = useAsked(asked && `${path} diff ${JSON.stringify(asked)}`, () => ask(`${path}/diff`, { method: "POST", body: asked }));
  const go = (event) => {
    event.preventDefault();
    setAsked({ before: Number(before), after: Number(later), limit: 50, ...(text && { path: parsed(text) }) });
    if (found.error) found.again();
  };
  const shown = (values) => values.length ? html`<${Values} value=${text ? values : values[0]} />` : html`<span class="soft">not there</span>`;
  return html`<section class="card"><h2>What microbatches changed</h2>
    <form class="row" onSubmit=${go}><label>From microbatch<input type="number" min="0" required value=${before} onInput=${(event) => setBefore(event.target.value)} /></label>
      <label>to<input type="number" min="0" required value=${later} onInput=${(event) => setLater(event.target.value)} /></label>
      <label class="grow">Path below each key<input class="wide mono" placeholder="the whole value" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <button class="main">Compare</button></form>
    ${found.error && html`<${Notice} error=${found.error} />`}
    ${found.value && html`<${Table} label="Changes" empty="Nothing changed." rows=${found.value.items.map((one, at) => ({ key: at, one }))} columns=${[
      ["Key", ({ one }) => html`<code>${JSON.stringify(one[0])}</code>`], ["Before", ({ one }) => shown(one[1])], ["After", ({ one }) => shown(one[2])]]} />`}</section>`;
}

// A path that is no JSON goes as it is: then the gateway says what is wrong with it.
function parsed(text) {
  try { return written(text); } catch { return text; }
}
