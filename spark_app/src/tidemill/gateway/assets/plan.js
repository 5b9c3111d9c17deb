// A topology's plan as a picture, with the rows of microbatches along its arrows, and where their time goes by step.
import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { Picture } from "./picture.js";
import { Notice, Table, milliseconds, number } from "./parts.js";

const NEWEST = 50;
const HINT = html`Thick arrows move rows to other tasks, dashed ones go to and from the store; <em>rows</em> marks the steps that go row by row, all others go by columns. Point at a step for its line.`;

// What is told of steps: of the chosen microbatch, else of the newest ones of the same plan together.
function measured(lines, chosen) {
  const told = lines.filter((line) => line.steps?.plan !== undefined);
  const one = told.find((line) => line.entry === chosen);
  const newest = told[told.length - 1];
  const of = one ? [one] : told.filter((line) => line.steps.plan === newest.steps.plan).slice(-NEWEST);
  const sum = { plan: (one ?? newest)?.steps.plan, ms: {}, rows: {}, of };
  for (const { steps } of of) for (const kind of ["ms", "rows"])
    for (const [name, value] of Object.entries(steps[kind])) sum[kind][name] = (sum[kind][name] ?? 0) + value;
  return sum;
}

// Each step of the picture: what stands in its box, and the text that it shows to who points at it.
const steps = (svg) => Object.fromEntries([...svg.querySelectorAll("g[data-box]")].map((box) =>
  [box.dataset.box, { title: [...box.querySelectorAll('text:not(.live):not([font-size="9"])')].slice(0, 2).map((text) => text.textContent).join(" "), hint: box.querySelector("title").textContent }]));

// Marks the step that is told as it is in a failure, "each(f) at shop.py:7", or by its number in the picture; whether there is one.
function mark(svg, step) {
  const boxes = [...svg.querySelectorAll("g[data-box]")], told = (box) => box.querySelector("title").textContent.split("\n")[0];
  const found = boxes.filter((box) => step && [box.dataset.box, told(box)].includes(step));
  for (const box of boxes) box.classList.toggle("failing", found.includes(box));
  return found.length > 0;
}

// A topology that nobody has led yet has no plan, and nothing is wrong with it: how to see it all the same.
const needsCode = (module) => (error) => error.code === "NeedsCode" ? html`<${Notice}>The first leader of this topology keeps its plan, and none has led it yet: start ${module} with <code>tidemill run</code>.
    Before, in the folder of its code, <code>tidemill describe FILE.py:${module} --svg TOPOLOGY</code> draws it, and <code>tidemill ui --store STORE --entry FILE.py:${module}</code> shows it here.<//>` : null;

// `asked` is a step to be shown, `failing` that of the last failure.
export function Plan({ path, lines, chosen, asked, failing }) {
  const [isOpen, setOpen] = useState(false), [drawn, setDrawn] = useState(null), [svg, setSvg] = useState(null), [isFound, setFound] = useState(true), place = useRef(null);
  const step = asked ?? failing ?? null;
  useEffect(() => { if (asked) { setOpen(true); place.current.scrollIntoView({ block: "start" }); } }, [asked]);
  useEffect(() => { if (svg) setFound(mark(svg, step)); }, [svg, step]);
  const sum = useMemo(() => measured(lines, chosen), [lines, chosen]);
  const isSame = drawn === null || sum.plan === undefined || drawn.plan === String(sum.plan);
  const notes = useMemo(() => isSame ? { counts: sum.rows, boxes: Object.fromEntries(Object.entries(sum.ms).map(([name, value]) => [name, milliseconds(value)])) } : {}, [sum, isSame]);
  return html`<section class="card" ref=${place}><details open=${isOpen} onToggle=${(event) => setOpen(event.target.open)}><summary><h2 class="inline">Plan</h2></summary>
    <${Picture} path=${isOpen ? `${path}/plan` : null} label="Picture of the plan" hint=${HINT} notes=${notes} instead=${needsCode(decodeURIComponent(path.split("/")[2]))}
      made=${(svg) => { setSvg(svg); setDrawn({ plan: svg.dataset.plan, steps: steps(svg) }); }} />
    ${isOpen && svg && step && html`<p class=${isFound ? "bad" : "soft"}>${isFound ? html`Marked: ${asked ? "" : "the last failure was in "}<code>${step}</code>` : html`<code>${step}</code> is no step of this plan: it is of another version.`}</p>`}
    ${isOpen && sum.of.length > 0 && html`<${Time} sum=${sum} steps=${isSame ? drawn?.steps ?? {} : {}} isSame=${isSame} />`}</details></section>`;
}

function Time({ sum, steps, isSame }) {
  const all = Object.values(sum.ms).reduce((one, other) => one + other, 0);
  const rows = Object.entries(sum.ms).sort(([, one], [, other]) => other - one).map(([key, ms]) => ({ key, ms, ...steps[key] }));
  const first = sum.of[0], last = sum.of[sum.of.length - 1];
  const of = first === last ? `Of microbatch ${number(last.microbatch_id)}` : `Of the ${sum.of.length} microbatches ${number(first.microbatch_id)} to ${number(last.microbatch_id)} together`;
  return html`<h3>Where the time goes</h3><p class="soft">${of}, as the numbers in the picture: rows along its arrows, time in its boxes, of all threads together.
      ${!isSame && " The picture is of another version than these microbatches: steps are told by their numbers."}</p>
    <${Table} label="Where the time goes" rows=${rows} columns=${[
      ["Step", (row) => html`${row.title ?? `step ${row.key}`}${row.hint?.includes("by rows:") && html` <span class="soft">row by row, with the steps behind it</span>`}`],
      ["Where", (row) => html`<span class="soft">${row.hint?.split("\n")[0].split(" at ").slice(1).join(" at ")}</span>`],
      ["Time", (row) => milliseconds(row.ms), true], ["Share", (row) => `${(100 * row.ms / (all || 1)).toFixed(1)} %`, true],
      ["Rows it passed on", (row) => number(passed(sum.rows, row.key)), true]]} />`;
}

// A split is counted by its branches.
const passed = (rows, key) => Object.entries(rows).filter(([name]) => name === key || name.startsWith(`${key}>`)).reduce((sum, [, count]) => sum + count, 0);
