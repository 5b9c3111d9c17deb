// A path while somebody writes it: what may follow is shown below the box, and taken by the mouse or by the keyboard.
import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { ask, segment, useAsked, written } from "./api.js";

const KEYS_MAX = 5; // more would hide the navigators
const OFFERS_MAX = 40;

// '["ann", ["al' -> { done: ['"ann"'], rest: '["al' }: what is written to its end, as texts, and what is still being written.
export function parted(text) {
  const done = [], body = text.trim().replace(/^\[/, "");
  let depth = 0, isText = false, from = 0;
  const take = (to) => { const part = body.slice(from, to).trim(); if (part) done.push(part); from = to + 1; };
  for (let at = 0; at < body.length; at += 1) {
    const sign = body[at];
    if (isText) { if (sign === "\\") at += 1; else if (sign === '"') isText = false; continue; }
    if (sign === '"') isText = true;
    else if (sign === "[" || sign === "{") depth += 1;
    else if (depth === 0 && sign === "]") { take(at); return { done, rest: "", isClosed: true }; }
    else if (sign === "]" || sign === "}") depth -= 1;
    else if (depth === 0 && sign === ",") take(at);
  }
  const rest = body.slice(from).trim();
  return isWhole(rest) ? { done: [...done, rest], rest: "" } : { done, rest };
}

// A number may go on; a text and a list end where they end.
function isWhole(text) {
  try { const found = JSON.parse(text); return typeof found !== "number"; } catch { return false; }
}

const joined = (done) => `[${done.join(", ")}]`;

// A key as it stands in a path: there, texts that begin with "#__" mean something else.
// A float without a fraction that no integer of a key reaches needs its exponent, or it would be read as an integer.
export function inPath(key) {
  if (typeof key === "number" && Math.abs(key) >= 2 ** 63) return key.toExponential();
  return JSON.stringify(typeof key === "string" && key.startsWith("#__") ? `#__S${key}` : key);
}

const LITERAL = ["str", "int", "float", "bool"];
export const isLiteral = (schema) => LITERAL.includes(schema?.map?.[0]); // others have no such form as JSON

// What may follow: keys that are there, then navigators; each as { text, about }.
async function offers(path, done, first) {
  const { schema, navigators } = await ask(`${path}/navigators?path=${segment(joined(done))}`);
  const keys = isLiteral(schema) ? done.length ? await below(path, done) : first : [];
  const isKey = ({ name, example }) => name === "key" && schema?.map && keys.every((key) => key !== example);
  return [...keys.map((key) => ({ text: inPath(key), about: "a key" })),
    ...navigators.filter((one) => !(isKey(one) && keys.length)).map(({ example, about }) => ({ text: JSON.stringify(example), about }))];
}

// The first keys of the map to which a path leads; none where it leads to several, or nobody can look.
async function below(path, done) {
  const asked = [...done.map((part) => written(part)), ["sortedMapRangeFromStart", KEYS_MAX], ["mapKeys"]];
  try { return [...new Set(await ask(`${path}/select`, { method: "POST", body: { path: asked } }))].slice(0, KEYS_MAX); } catch { return []; }
}

export function PathBox({ path, text, setText, first }) {
  const [isOpen, setOpen] = useState(false), [at, setAt] = useState(-1), box = useRef(null), list = useRef(null);
  const { done, rest } = useMemo(() => parted(text), [text]);
  const found = useAsked(isOpen ? `${path} after ${done.join()} ${first.length}` : null, () => offers(path, done, first));
  const shown = (found.value ?? []).filter((one) => one.text.toLowerCase().includes(rest.toLowerCase().replace(/[\]"]+$/, ""))).slice(0, OFFERS_MAX);
  const isShown = isOpen && shown.length > 0;
  useEffect(() => { list.current?.children[at]?.scrollIntoView({ block: "nearest" }); }, [at]);
  const close = () => { setOpen(false); setAt(-1); };
  const take = (one) => {
    setText(joined([...done, one.text])); setAt(-1); setOpen(true);
    box.current.focus();
  };
  const pressed = (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) { event.preventDefault(); if (isShown) setAt((at + move + shown.length + (at < 0 && move < 0 ? 1 : 0)) % shown.length); else setOpen(true); }
    else if (event.key === "Escape" && isOpen) { event.preventDefault(); close(); }
    else if (event.key === "Enter") { if (isShown && shown[at]) { event.preventDefault(); take(shown[at]); } else close(); }
  };
  return html`<div class="grow completed"><label>Path, as a JSON list<input ref=${box} class="wide mono" required autocomplete="off" spellcheck="false" value=${text} placeholder='["key", ["all"]]'
      role="combobox" aria-autocomplete="list" aria-expanded=${isShown ? "true" : "false"} aria-controls="offers" aria-activedescendant=${isShown && shown[at] ? `offer-${at}` : undefined}
      onInput=${(event) => { setText(event.target.value); setAt(-1); setOpen(true); }} onClick=${() => setOpen(true)} onBlur=${close} onKeyDown=${pressed} /></label>
    <ul id="offers" role="listbox" aria-label="What may follow" hidden=${!isShown} ref=${list}>${shown.map((one, index) => html`<li key=${one.text} id=${`offer-${index}`} role="option" aria-selected=${index === at ? "true" : "false"}
      onMouseDown=${(event) => { event.preventDefault(); take(one); }}><code>${one.text}</code> <span class="soft">${one.about}</span></li>`)}</ul></div>`;
}
