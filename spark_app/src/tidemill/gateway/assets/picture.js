// A picture that the gateway draws, with what is known of its boxes and arrows now.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { picture, useAsked } from "./api.js";
import { Notice, number } from "./parts.js";

const SVG = "http://www.w3.org/2000/svg";

function written(x, y, anchor, text) {
  const made = document.createElementNS(SVG, "text");
  for (const [name, value] of Object.entries({ class: "live", x, y, "text-anchor": anchor, "font-size": 10 })) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// `boxes`: texts by the name of a box; `counts`: numbers by what is counted along arrows.
function annotate(svg, { boxes = {}, counts = {} }) {
  for (const old of svg.querySelectorAll("text.live")) old.remove();
  for (const path of svg.querySelectorAll("path[data-counts]")) {
    const found = path.dataset.counts.split(" ").map((name) => counts[name]).filter((count) => count !== undefined);
    if (found.length === 0) continue;
    const hasLabel = path.nextElementSibling?.tagName === "text"; // which stands in the middle
    const at = path.getPointAtLength(path.getTotalLength() * (hasLabel ? 0.8 : 0.5));
    path.after(written(at.x, at.y + 3, "middle", number(found.reduce((sum, count) => sum + count, 0))));
  }
  for (const box of svg.querySelectorAll("g[data-box]")) {
    const text = boxes[box.dataset.box], place = box.querySelector("rect");
    const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(place.getAttribute(name)));
    if (text !== undefined) box.append(written(x + width - 5, y + height - 3, "end", text));
  }
}

// The picture at `path`; null asks for none. `notes` are what `annotate` takes; `made` is told of the picture. `instead`
// may give what is shown in place of an error.
export function Picture({ path, again = "", label, notes, hint, made, instead }) {
  const [share, setShare] = useState(100), place = useRef(null);
  const found = useAsked(path && `${path} ${again}`, () => picture(path)), svg = found.value;
  useEffect(() => { if (svg && place.current) { place.current.replaceChildren(svg); made?.(svg); } }, [svg]);
  useEffect(() => { svg?.setAttribute("width", `${svg.viewBox.baseVal.width * share / 100}`); svg?.removeAttribute("height"); }, [svg, share]);
  useEffect(() => { if (svg && notes) annotate(svg, notes); }, [svg, notes]);
  return html`${found.error && (instead?.(found.error) ?? html`<${Notice} error=${found.error} />`)}
    ${svg && html`<p class="soft">${hint}
      <label class="inline">Size <input type="range" min="30" max="200" value=${share} aria-label="Size of the picture" onInput=${(event) => setShare(Number(event.target.value))} /></label></p>`}
    <div class="scroll" tabindex="0" role="region" aria-label=${label} ref=${place}></div>`;
}
