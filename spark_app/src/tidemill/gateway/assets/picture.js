// A picture that the gateway draws, with what is known of its boxes and arrows now.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { picture, useAsked } from "./api.js";
import { Notice } from "./parts.js";

const SVG = "http://www.w3.org/2000/svg";

function written(x, y, anchor, text) {
  const made = document.createElementNS(SVG, "text");
  for (const [name, value] of Object.entries({ class: "live", x, y, "text-anchor": anchor, "font-size": 10 })) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// `boxes`: texts by the name of a box; `arrows`: texts by the names of the two boxes, as "1 2".
function annotate(svg, { boxes = {}, arrows = {} }) {
  for (const old of svg.querySelectorAll("text.live")) old.remove();
  for (const path of svg.querySelectorAll("path[data-from]")) {
    const text = arrows[`${path.dataset.from} ${path.dataset.to}`];
    if (text === undefined) continue;
    const middle = path.getPointAtLength(path.getTotalLength() / 2);
    path.after(written(middle.x, middle.y + 3, "middle", text));
  }
  for (const box of svg.querySelectorAll("g[data-box]")) {
    const text = boxes[box.dataset.box], place = box.querySelector("rect");
    if (text !== undefined) box.append(written(Number(place.getAttribute("x")) + Number(place.getAttribute("width")) - 5, Number(place.getAttribute("y")) + 11, "end", text));
  }
}

// The picture at `path`; null asks for none. `notes` are what `annotate` takes; `made` is told of the picture.
export function Picture({ path, again = "", label, notes, hint, made }) {
  const [share, setShare] = useState(100), place = useRef(null);
  const found = useAsked(path && `${path} ${again}`, () => picture(path)), svg = found.value;
  useEffect(() => { if (svg && place.current) { place.current.replaceChildren(svg); made?.(svg); } }, [svg]);
  useEffect(() => { svg?.setAttribute("width", `${svg.viewBox.baseVal.width * share / 100}`); svg?.removeAttribute("height"); }, [svg, share]);
  useEffect(() => { if (svg && notes) annotate(svg, notes); }, [svg, notes]);
  return html`${found.error && html`<${Notice} error=${found.error} />`}
    ${svg && html`<p class="soft">${hint}
      <label class="inline">Size <input type="range" min="30" max="200" value=${share} aria-label="Size of the picture" onInput=${(event) => setShare(Number(event.target.value))} /></label></p>`}
    <div class="scroll" tabindex="0" role="region" aria-label=${label} ref=${place}></div>`;
}
