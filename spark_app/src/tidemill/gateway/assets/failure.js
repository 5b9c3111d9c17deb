// Why an attempt failed: all that is told of it.
import { html } from "./vendor/preact-htm.js";
import { amended } from "./place.js";
import { moment } from "./parts.js";

// The same failure of another attempt: only a later one of its microbatch has all that is known of the record, as a rule.
export const isSameFailure = (one, other) => Boolean(one && other) && one.code === other.code && one.step === other.step
  && (one.message === other.message || (one.microbatch_id === other.microbatch_id && reason(one) === reason(other)));
const reason = ({ message }) => message.split(" (record: ")[0].split(" The record is at ")[0].replace(/\.?\s*$/, "");

export const isSameAttempt = (one, other) => Boolean(one && other) && one.microbatch_id === other.microbatch_id && one.version === other.version;

export const Failure = ({ failure }) => html`<section class="notice bad" aria-label="The last failure">
  <h2>Microbatch ${failure.microbatch_id}, version ${failure.version} failed in ${failure.phase}</h2>
  <p>At ${moment(failure.at_ms)}${failure.step && html` in the step <a href=${amended({ step: failure.step })} title="Show it in the plan"><code>${failure.step}</code></a>`}. It is tried again until it succeeds${
    failure.code === "UserCodeFailed" ? html`: mend the code and start it again, or let records like this one be left out with the option <code>topology.on.record.error</code>` : ""}.</p>
  <p>${failure.message}</p>
  ${failure.sample && html`<h3>What the function was given</h3><pre tabindex="0">${failure.sample}</pre>`}
  ${failure.trace && html`<h3>Traceback</h3><pre tabindex="0">${failure.trace}</pre>`}</section>`;
