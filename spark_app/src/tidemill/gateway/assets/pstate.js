// One PState: its schema, its keys in pages, what a path selects, now or as of a microbatch, and what microbatches changed.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { ask, bare, segment, useAsked, useLive, useNews, written } from "./api.js";
import { Levels } from "./levels.js";
import { Live, Trouble } from "./module.js";
import { PathBox, inPath, isLiteral } from "./paths.js";
import { amended, goTo, keep } from "./place.js";
import { Results } from "./results.js";
import { Tasks } from "./tasks.js";
import { Absent, Facts, Notice, Schema, Table, Values, number } from "./parts.js";

// What is shown of a value that is too large to be taken whole: how many elements it has.
const SIZE = [["view", "#__fOps.SIZE"]];
const SIZE_BELOW = (below) => below ? JSON.stringify(below) : "";
const ALL = '[["all"]]';
const NOTHING = [["subselect", [["stop"]]]]; // of keys alone, whatever is below them
const KEYS_FIRST = 5;
const LINKED_MAX = 1000; // an address has its bounds

export function PState({ module, name, query }) {
  const path = `/modules/${segment(module)}/pstates/${segment(name)}`;
  const info = useAsked(path, () => ask(path));
  const known = useAsked(`/modules/${segment(module)}`, () => ask(`/modules/${segment(module)}`));
  const found = known.value?.topologies.flatMap((topology) => topology.pstates.map((one) => ({ ...one, topology: topology.name })))
    .find((one) => bare(one.name) === name);
  const schema = found?.schema, below = isIndexed(schema?.map?.[1]) ? SIZE : null, hasKeys = Boolean(schema?.map) && !found.global;
  const first = useAsked(info.value && hasKeys ? `${path} first` : null, () => ask(`${path}/page`, { method: "POST", body: { limit: KEYS_FIRST, path: NOTHING } }));
  const [news, tell] = useState(0), missed = useRef(false);
  const renew = () => { missed.current = document.hidden; if (!document.hidden) { info.refresh(); tell((count) => count + 1); } };
  const { isOpen, trouble } = useLive(module, (told) => {
    if (told.definition !== known.value?.number) known.refresh(); // with another schema, or it is gone
    if (told.definition === undefined || found?.topology in told.topologies) renew();
  });
  useEffect(() => { // what came while nobody saw the tab
    const seen = () => { if (missed.current) renew(); };
    document.addEventListener("visibilitychange", seen);
    return () => document.removeEventListener("visibilitychange", seen);
  });
  const error = info.error ?? known.error;
  if (error && !(info.value && known.value)) return html`<${Absent} name="$$${name}" module=${module} error=${error} />`;
  if (!info.value || !known.value) return html`<p class="soft">Looking …</p>`;
  const partitions = info.value.partitions ?? info.value.num_partitions, keys = (first.value?.items ?? []).map(([key]) => key);
  return html`<div class="head"><h1>$$${name} <span class="soft">of ${module}</span></h1><${Live} isOpen=${isOpen} /></div><${Trouble} trouble=${trouble} error=${error} />
    <section class="card"><${Facts} facts=${{ "Written by": found?.topology ?? "–", Partitions: number(partitions), "Newest entry": number(info.value.entry) }} />
      <h2>Schema</h2><ul class="tree"><${Schema} schema=${schema ?? "value"} /></ul></section>
    <${Select} path=${path} query=${query} schema=${schema} keys=${isLiteral(schema) ? keys : []} news=${news} />
    <${Levels} path=${path} news=${news} /><${Tasks} path=${path} />
    ${hasKeys && html`<${Keys} path=${path} below=${below} schema=${schema} query=${query} news=${news} /><${Changes} path=${path} below=${schema.map[1].subindexed ? ALL : SIZE_BELOW(below)} query=${query} />`}`;
}

// Whether a select of it whole is refused: something in it is stored element by element.
const isIndexed = (schema) => Boolean(schema?.subindexed) || (schema?.fixed_keys ?? []).some(([, field]) => isIndexed(field)) || isInner(schema?.map?.[1]) || isInner(schema?.list);
const isInner = (schema) => Boolean(schema) && isIndexed(schema);

// Paths to begin with, by the schema, with a key that is there.
function examples(schema, keys) {
  const value = schema?.map?.[1];
  if (!schema?.map) return isIndexed(schema) ? [["All of it", '[["all"]]']] : [["The value", "[]"]];
  if (keys.length === 0) return [];
  const key = inPath(keys[0]), made = isIndexed(value) ? [] : [["One key", `[${key}]`]];
  if (value?.map) made.push(["First ten below it", `[${key}, ["sortedMapRangeFromStart", 10], ["all"]]`]);
  if ((value?.map && !isInner(value.map[1])) || value?.set || (value?.list && !isInner(value.list))) made.push(["All below it", `[${key}, ["all"]]`]);
  if (value?.map || value?.set || value?.list) made.push(["How many below it", `[${key}, ["view", "#__fOps.SIZE"]]`]);
  for (const [field, inner] of value?.fixed_keys ?? []) if (typeof field === "string")
    made.push([`The field ${field}`, isIndexed(inner) ? `[${key}, ${inPath(field)}, ["view", "#__fOps.SIZE"]]` : `[${key}, ${inPath(field)}]`]);
  return made;
}

function Select({ path, query, schema, keys, news }) {
  const asked = query.get("path"), at = query.get("microbatch");
  const [text, setText] = useState(asked ?? ""), [microbatch, setMicrobatch] = useState(at ?? "");
  useEffect(() => { setText(asked ?? ""); setMicrobatch(at ?? ""); }, [asked, at]); // a link of a key, or the browser's way back
  const found = useAsked(asked === null ? null : `${path} ${asked} ${at}`, () => select(path, asked, at));
  useNews(at ? 0 : news, found);
  const go = (event) => {
    event.preventDefault();
    if (text === asked && microbatch === (at ?? "")) found.again(); else goTo({ path: text, microbatch });
  };
  const made = examples(schema, keys);
  return html`<section class="card"><h2>Select</h2>
    <form class="row" onSubmit=${go}><${PathBox} path=${path} text=${text} setText=${setText} first=${keys} />
      <label>As of microbatch<input type="number" min="0" placeholder="newest" value=${microbatch} onInput=${(event) => setMicrobatch(event.target.value)} /></label>
      <button class="main">Select</button></form>
    ${made.length > 0 && html`<p class="soft">For example ${made.map(([name, example]) => html`<button class="link" type="button" onClick=${() => setText(example)}>${name}</button> `)}</p>`}
    ${found.error && html`<${Notice} error=${found.error} />`}
    ${found.value && html`<${Results} key=${`${asked} ${at}`} values=${found.value} isOfPairs=${isOfPairs(asked)} />`}</section>`;
}

// Whether a path goes over the elements of a map, or over those of a list with their indexes: then pairs are rows.
function isOfPairs(text) {
  const navigators = written(text), names = navigators.map((one) => String(Array.isArray(one) ? one[0] : "").replaceAll("_", "").toLowerCase());
  return Array.isArray(navigators.at(-1)) && (names.includes("all") || names.includes("indexedvals"));
}

async function select(path, text, microbatch) {
  let navigators;
  try { navigators = written(text); } catch (problem) { throw Object.assign(new Error(`The path is no JSON: ${problem.message}`), { code: "JSON" }); }
  const at = microbatch ? (await ask(`${path}?microbatch=${segment(microbatch)}`)).entry : null;
  return ask(`${path}/select`, { method: "POST", body: { path: navigators, ...(at === null ? {} : { at }) } });
}

// The key with a link to its select; keys that JSON has no form of have none.
function Key({ value, schema }) {
  const text = JSON.stringify(value), under = schema.map[1];
  if (!isLiteral(schema) || value === null || text.length > LINKED_MAX) return html`<code>${text}</code>`;
  const inner = !isIndexed(under) ? "" : under.fixed_keys || isInner(under.map?.[1]) || isInner(under.list) ? null : ', ["all"]';
  return inner === null ? html`<code>${text}</code>` : html`<a href=${amended({ path: `[${inPath(value)}${inner}]`, microbatch: null })}><code>${text}</code></a>`;
}

function Keys({ path, below, schema, query, news }) {
  const after = query.get("keys"), setAfter = (cursor) => keep({ keys: cursor }), [trail, setTrail] = useState([]);
  const page = useAsked(`${path} page ${after}`, () => ask(`${path}/page`, { method: "POST", body: { limit: 50, ...(below && { path: below }), ...(after && { after }) } }));
  useNews(after ? 0 : news, page);
  const rows = (page.value?.items ?? []).map((item, at) => ({ key: at, item }));
  const forward = () => { setTrail([...trail, after]); setAfter(page.value.after); };
  const back = () => { setAfter(trail[trail.length - 1]); setTrail(trail.slice(0, -1)); };
  return html`<section class="card"><h2>Keys</h2>${page.error && html`<${Notice} error=${page.error} />`}
    <${Table} label="Keys" rows=${rows} empty=${page.isLoading ? "Looking …" : "It is empty."} columns=${[
      ["Key", ({ item }) => html`<${Key} value=${Array.isArray(item) ? item[0] : item} schema=${schema} />`],
      [below ? "Elements" : "Value", ({ item }) => html`<${Values} value=${below ? item[1][0] : item[1]} />`]]} />
    <p>${trail.length > 0 ? html`<button onClick=${back}>Back</button> ` : after && html`<button onClick=${() => setAfter(null)}>First keys</button> `}${page.value?.after && html`<button onClick=${forward}>More</button>`}
      ${" "}<button onClick=${page.again}>Look again</button></p></section>`;
}

function Changes({ path, below, query }) {
  const [from, to, under] = ["from", "to", "below"].map((name) => query.get(name));
  const [before, setBefore] = useState(from ?? ""), [later, setLater] = useState(to ?? ""), [text, setText] = useState(under ?? below);
  const asked = from === null || to === null ? null : { before: Number(from), after: Number(to), limit: 50, ...((under ?? below) && { path: parsed(under ?? below) }) };
  const found = useAsked(asked && `${path} diff ${JSON.stringify(asked)}`, () => ask(`${path}/diff`, { method: "POST", body: asked }));
  const go = (event) => {
    event.preventDefault();
    keep({ from: before, to: later, below: text === below ? null : text });
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
