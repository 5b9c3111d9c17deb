// The frame around all views: signing in, where one is, light or dark. Each view is an address behind the #.
import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { ask, useAsked } from "./api.js";
import { usePlace } from "./place.js";
import { Help } from "./help.js";
import { Notice } from "./parts.js";
import { Overview } from "./overview.js";
import { ModuleView, TABS } from "./module.js";
import { Topology } from "./topology.js";
import { Depot } from "./depot.js";
import { PState } from "./pstate.js";
import { Query } from "./query.js";
import { Graph, Graphs } from "./graphs.js";
import { Dataset, Datasets } from "./datasets.js";

const OF_STORE = { graphs: ["Graphs", Graphs, Graph], datasets: ["Datasets", Datasets, Dataset] };
const VIEWS = { t: [Topology, "topologies"], d: [Depot, "depots"], p: [PState, "pstates"], q: [Query, "queries"] };
const isOfStore = (kind) => Object.hasOwn(OF_STORE, kind);

// Whether an address is one of a view; null parts are no address at all.
function isView({ parts }) {
  if (parts === null) return false;
  const [kind, module, sort, name] = parts;
  if (kind === undefined) return true;
  if (isOfStore(kind)) return parts.length <= 2;
  if (kind !== "m" || !module || parts.length > 4) return false;
  return name ? Object.hasOwn(VIEWS, sort) : sort === undefined || TABS.includes(sort);
}

const Nowhere = () => html`<div class="head"><h1>There is no such view</h1></div>
  <div class="notice" role="alert">The address <code>${window.location.hash}</code> leads to no view of this page. Go to the <a href="#/">overview</a>.</div>`;

function View({ at, session }) {
  if (!isView(at)) return html`<${Nowhere} />`;
  const [kind, module, sort, name] = at.parts;
  if (isOfStore(kind)) {
    const [, All, One] = OF_STORE[kind];
    return module ? html`<${One} key=${at.parts.join("/")} name=${module} query=${at.query} />` : html`<${All} query=${at.query} />`;
  }
  if (kind === undefined) return html`<${Overview} query=${at.query} hasGraphs=${session.has_graphs} />`;
  const may = (role) => session.roles.includes(role);
  if (name) return html`<${VIEWS[sort][0]} key=${at.parts.join("/")} module=${module} name=${name} query=${at.query} may=${may} />`;
  return html`<${ModuleView} key=${module} module=${module} tab=${sort ?? "topologies"} may=${may} />`;
}

function Crumbs({ at }) {
  const [kind, module, sort, name] = isView(at) ? at.parts : [];
  const steps = [["Overview", "#/"]];
  if (isOfStore(kind)) steps.push([OF_STORE[kind][0], `#/${kind}`]);
  if (isOfStore(kind) && module) steps.push([module, window.location.hash]);
  if (kind === "m" && module) steps.push([module, `#/m/${encodeURIComponent(module)}`]);
  if (kind === "m" && name) steps.push([name, window.location.hash]);
  const titles = isView(at) ? steps.slice(1).map(([text]) => text).reverse() : ["There is no such view"];
  useEffect(() => { document.title = [...titles, "Tidemill"].join(" · "); });
  return html`<nav class="crumbs" aria-label="Where you are">${steps.map(([text, link], index) => html`${index > 0 && html`<span aria-hidden="true">›</span>`}
    <a href=${link} aria-current=${index === steps.length - 1 ? "page" : undefined}>${text}</a>`)}</nav>`;
}

function Theme() {
  const [theme, set] = useState(localStorage.getItem("theme") ?? "auto");
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  return html`<label><span class="skip">Colours</span><select aria-label="Colours" value=${theme} onChange=${(event) => set(event.target.value)}>
    ${[["auto", "System"], ["light", "Light"], ["dark", "Dark"]].map(([one, name]) => html`<option value=${one} selected=${one === theme}>${name}</option>`)}</select></label>`;
}

function SignIn({ done }) {
  const [token, setToken] = useState(""), [error, setError] = useState(null);
  const send = async (event) => {
    event.preventDefault();
    try { await ask("/session", { method: "POST", body: { token } }); done(); } catch (refused) { setError(refused); }
  };
  return html`<main class="signin card"><h1>Sign in</h1><p class="soft">This gateway needs a token. Whoever runs it has one for you.</p>
    ${error && html`<${Notice} error=${error} />`}
    <form onSubmit=${send}><label>Token<input type="password" autocomplete="current-password" required value=${token}
      onInput=${(event) => setToken(event.target.value)} /></label><p><button class="main">Sign in</button></p></form></main>`;
}

function App() {
  const session = useAsked("session", () => ask("/session")), at = usePlace();
  useEffect(() => {
    const out = () => session.again();
    window.addEventListener("signed-out", out);
    return () => window.removeEventListener("signed-out", out);
  }, []);
  if (session.isLoading) return html`<main class="soft">Loading …</main>`;
  if (session.error?.status === 401) return html`<${SignIn} done=${session.again} />`;
  if (session.error) return html`<main><${Notice} error=${session.error} /><button onClick=${session.again}>Try again</button></main>`;
  const leave = async () => { await ask("/session", { method: "DELETE" }); session.again(); };
  return html`<a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); document.getElementById("content").focus(); }}>To the content</a>
    <header class="top"><a class="brand" href="#/"><img src="page/icon.svg" alt="" />Tidemill</a><${Crumbs} at=${at} /><span class="space"></span>
      <${Theme} /><span class="soft hide-small">${session.value.version}</span>
      ${session.value.needs_token && html`<button onClick=${leave}>Sign out</button>`}</header>
    <main id="content" tabindex="-1"><${Help} at=${at} /><${View} at=${at} session=${session.value} /></main>`;
}

render(html`<${App} />`, document.getElementById("app"));
