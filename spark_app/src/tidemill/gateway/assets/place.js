// Where the page is: the address behind the #, and how a view keeps in it what somebody chose.
import { useEffect, useState } from "./vendor/preact-htm.js";

const KEPT = "place-kept"; // an address that is replaced tells nobody by itself

// "#/m/Shop/t/sum?entry=3" -> { parts: ["m", "Shop", "t", "sum"], query: URLSearchParams }; parts are null where it is no address.
function placeOf(hash) {
  const [, path, query] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash);
  return { parts: decoded(path), query: new URLSearchParams(query) };
}

function decoded(path) {
  try { return path.split("/").filter(Boolean).map((part) => decodeURIComponent(part)); } catch { return null; }
}

export function usePlace() {
  const [at, set] = useState(placeOf(window.location.hash));
  useEffect(() => {
    const moved = () => set(placeOf(window.location.hash)), kept = (event) => set(placeOf(event.detail));
    window.addEventListener("hashchange", moved);
    window.addEventListener(KEPT, kept);
    return () => { window.removeEventListener("hashchange", moved); window.removeEventListener(KEPT, kept); };
  }, []);
  return at;
}

// The address of this view with other choices; one that is null or empty leaves it.
export function amended(changes) {
  const { hash } = window.location, cut = hash.indexOf("?"), choices = new URLSearchParams(cut < 0 ? "" : hash.slice(cut + 1));
  for (const [name, value] of Object.entries(changes)) if (value === null || value === "") choices.delete(name); else choices.set(name, value);
  const path = (cut < 0 ? hash : hash.slice(0, cut)) || "#/";
  return choices.size ? `${path}?${choices}` : path;
}

// A step to other choices, from which the browser comes back.
export const goTo = (changes) => { window.location.hash = amended(changes); };

// Choices that change with each key that is pressed: they stand in the address, and make no step to come back from.
export function keep(changes) {
  const hash = amended(changes);
  try { window.history.replaceState(window.history.state, "", hash); } catch { /* Safari takes 100 of them in 30 s: the next one is right again */ }
  window.dispatchEvent(new CustomEvent(KEPT, { detail: hash }));
}
