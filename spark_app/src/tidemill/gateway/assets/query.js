// One query topology: call it with arguments.
import { html, useState } from "./vendor/preact-htm.js";
import { ask, segment, useAsked, written } from "./api.js";
import { keep } from "./place.js";
import { Absent, Facts, Notice, Values, milliseconds } from "./parts.js";

export function Query({ module, name, query }) {
  const path = `/modules/${segment(module)}/queries/${segment(name)}`;
  const info = useAsked(path, () => ask(path));
  const [text, setText] = useState(query.get("arguments") ?? ""), [answer, setAnswer] = useState(null), [error, setError] = useState(null);
  const call = async (event) => {
    event.preventDefault();
    setAnswer(null); setError(null);
    const began = performance.now();
    try {
      const given = written(text || "[]");
      const value = await ask(`${path}/invoke`, { method: "POST", body: given });
      setAnswer({ value, millis: performance.now() - began });
    } catch (problem) { setError(problem.code ? problem : { code: "JSON", message: problem.message }); }
  };
  if (info.error) return html`<${Absent} name=${name} module=${module} error=${info.error} />`;
  if (!info.value) return html`<p class="soft">Looking …</p>`;
  return html`<div class="head"><h1>${name} <span class="soft">of ${module}</span></h1></div>
    <section class="card"><${Facts} facts=${{ Inputs: html`<code>${info.value.inputs.join(", ") || "none"}</code>`, Result: html`<code>${info.value.result}</code>` }} />
      <h2>Call it</h2><form class="row" onSubmit=${call}><label class="grow">Arguments, as a JSON list<input class="wide mono" value=${text}
        placeholder=${JSON.stringify(info.value.inputs)} onInput=${(event) => { setText(event.target.value); keep({ arguments: event.target.value }); }} /></label><button class="main">Call</button></form>
      ${error && html`<${Notice} error=${error} />`}
      ${answer && html`<p class="soft">Answered in ${milliseconds(answer.millis)}</p><${Values} value=${answer.value} />`}</section>`;
}
