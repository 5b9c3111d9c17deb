// Dynamic options: what each does, what holds, and a change of it.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { ask, segment, useAsked } from "./api.js";
import { keep, usePlace } from "./place.js";
import { Notice, Table, moment, number, spaced } from "./parts.js";

const shown = (value) => value === null || value === undefined ? "not set" : String(value);

// `changed` is the number of the newest change, as far as the module's events told.
export function Options({ module, found, may, changed }) {
  const path = `/modules/${segment(module)}/options`;
  const registry = useAsked("options", () => ask("/options")), now = useAsked(path, () => ask(path));
  const [error, setError] = useState(null), [effect, setEffect] = useState("");
  const place = usePlace().query.get("at") ?? "module:", setPlace = (at) => keep({ at: at === "module:" ? null : at });
  // Also for another definition: the module may have been away when they were asked for, and be launched again.
  useEffect(() => { if (changed !== undefined) now.refresh(); }, [changed, found.number]);
  const absent = registry.error ?? now.error;
  if (absent && !(registry.value && now.value)) return html`<${Notice} error=${absent} />`;
  if (!registry.value || !now.value) return html`<p class="soft">Looking …</p>`;
  const [scope, target] = [place.slice(0, place.indexOf(":")), place.slice(place.indexOf(":") + 1)];
  const change = async (body) => {
    setError(null); setEffect("");
    try {
      await ask(path, { method: "PATCH", body: { ...body, ...(scope === "module" ? {} : { [scope]: target }) } });
      now.again();
      const names = found.topologies.map((one) => one.name).filter((name) => scope !== "topology" || name === target).slice(0, EFFECTS_MAX);
      const states = await Promise.all(names.map((name) => ask(`/modules/${segment(module)}/topologies/${segment(name)}`)));
      setEffect(states.map((one) => `${one.topology}: from microbatch ${number(Math.max(one.microbatch_id, one.under_way?.[0] ?? 0) + 1)}`).join(", "));
    } catch (refused) { setError(refused); }
  };
  // With depots of other modules: how they are read is decided here.
  const depots = new Set([...found.depots.map((one) => one.name), ...found.topologies.flatMap((one) => one.sources.map((source) => source.depot))]);
  const isMirror = scope === "depot" && !found.depots.some((one) => one.name === target);
  const places = ["module:", ...found.topologies.map((one) => `topology:${one.name}`), ...[...depots].map((name) => `depot:${name}`)];
  const rows = registry.value.filter((option) => scope === "module" || (option.scope === scope && !(isMirror && option.is_of_owner))).map((option) => ({
    ...option, key: `${place} ${option.name}`,
    set: now.value.set.find((one) => one.name === option.name && one.scope === scope && one.object === target),
    signed: now.value.set_by.find((one) => one.name === option.name && one.scope === scope && one.object === target),
    managed: now.value.managed.find((one) => one.name === option.name && one.scope === scope && one.object === target),
  }));
  return html`<form class="row"><label>Set at<select value=${place} onChange=${(event) => setPlace(event.target.value)}>
      ${places.map((one) => html`<option value=${one} selected=${one === place}>${one === "module:" ? `module ${module}` : one.replace(":", " ")}</option>`)}</select></label></form>
    <p class="soft">A change holds from the next microbatch on. What is not set here is taken from the module, then from the default.</p>
    ${error && html`<${Notice} error=${error} />`}${effect && html`<${Notice}>It holds, at the latest, for ${effect}.<//>`}
    <${Table} label="Options" rows=${rows} columns=${[
      ["Option", (row) => html`<code>${row.name}</code><br /><span class="soft">${row.help}</span>`],
      ["Default", (row) => html`${spaced(shown(row.default))} <span class="soft">${row.default === null ? "" : row.unit}</span>`],
      ["Allowed", (row) => html`<span class="soft">${spaced(row.bounds)}</span>`],
      ["Value here", (row) => html`<${Edit} row=${row} may=${may} change=${change} />`],
      ["Set by", (row) => row.set && html`<span class="soft">${row.signed ? who(row.signed) : "an older change"}</span>`]]} />
    <h2>Changes</h2><${Table} label="Changes of options" empty="Nobody changed anything yet." rows=${now.value.changes.map((one) => ({ ...one, key: one.number }))} columns=${[
      ["Number", (one) => number(one.number), true],
      ["Change", (one) => html`<${Changed} one=${one} />`],
      ["Who and when", (one) => html`<span class="soft">${who(one)}</span>`]]} />`;
}

const EFFECTS_MAX = 10;
const VERBS = { set: "Set", unset: "Unset", pause: "Paused", resume: "Resumed", manage: "Decided", clear: "Cleared" };
export const Changed = ({ one }) => html`${VERBS[one.action] ?? one.action} <code>${one.action === "manage" ? "" : one.name}</code>${one.action === "set" && html` to <code>${shown(one.value)}</code>`}${
  " "}<span class="soft">${one.target ? `${one.action === "manage" ? "by" : `at ${one.scope}`} ${one.target}` : ""}</span>`;
const who = (one) => `${one.by || "not told"}, ${one.at_ms ? moment(one.at_ms) : "at a time not told"}`;

function Edit({ row, may, change }) {
  const held = row.set ? String(row.set.value) : "", [text, setText] = useState(held);
  useEffect(() => { setText(held); }, [held]); // somebody else set it
  if (row.managed) return html`${shown(row.set?.value)} <span class="soft">decided by ${row.managed.by}</span>`;
  if (!may("operate")) return shown(row.set?.value);
  const value = () => row.type === "str" ? text : row.type === "bool" ? text === "true" : Number(text);
  const save = (event) => { event.preventDefault(); change(text === "" ? { unset: [row.name] } : { set: { [row.name]: value() } }); };
  return html`<form class="row" onSubmit=${save}><label><span class="skip">${row.name}</span><input aria-label=${row.name} value=${text} size="10" placeholder="not set"
    onInput=${(event) => setText(event.target.value)} /></label><button>${text === "" && row.set ? "Unset" : "Set"}</button></form>`;
}
