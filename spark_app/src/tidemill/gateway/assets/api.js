// Requests to the gateway that serves this page, and what it tells by itself.
import { useEffect, useReducer, useRef, useState } from "./vendor/preact-htm.js";

class Refused extends Error {
  constructor(status, code, message) { super(message); this.status = status; this.code = code; }
}

// Relative, so that a gateway behind a path of a proxy works, too.
const address = (path) => path.startsWith("/session") ? path.slice(1) : `api/v1${path}`;

// JSON whose whole numbers beyond 2^53 keep their digits, where the browser can; JSON.stringify writes them as they were.
const LONG = (_, value, context) => isLong(value) && JSON.rawJSON && /^-?\d+$/.test(context.source) ? JSON.rawJSON(context.source) : value;
const isLong = (value) => Number.isInteger(value) && !Number.isSafeInteger(value);
const parse = (text) => JSON.parse(text, LONG);

// What a person wrote as JSON: a number that would be changed on its way is refused.
export function written(text) {
  return JSON.parse(text, (name, value, context) => {
    if (isLong(value) && !JSON.rawJSON) throw new Error(`this browser would round ${value}: use a newer one, or the command line`);
    return LONG(name, value, context);
  });
}

export async function ask(path, { method = "GET", body } = {}) {
  const headers = { accept: "application/json", "x-tidemill-page": "1" };
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(address(path), { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  const found = parsed(text);
  if (!answer.ok) throw refusal(answer, found);
  return found;
}

function parsed(text) {
  try { return text ? parse(text) : null; } catch { return null; }
}

function refusal(answer, found) {
  const error = found?.error ?? { code: "Unknown", message: `${answer.status} ${answer.statusText}` };
  if (answer.status === 401) window.dispatchEvent(new Event("signed-out"));
  return new Refused(answer.status, error.code, error.message);
}

// A picture that the gateway draws, as an element; it comes as SVG, of which no script runs.
export async function picture(path) {
  const answer = await fetch(address(path), { headers: { "x-tidemill-page": "1" } });
  const text = await answer.text();
  if (!answer.ok) throw refusal(answer, parsed(text));
  return document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
}

// Whether a request may be answered in a moment: nobody answered, or the gateway or its store was busy or away.
const isPassing = ({ status }) => status === undefined || status === 429 || status >= 500;

// What a request gives: { value, error, isLoading, again, refresh }. It is asked anew whenever `key` changes; `refresh` asks
// anew as soon as no answer is awaited, so that one who calls it again and again waits for each. A value that was there stays
// beside an error that passes: what somebody writes in its view would go with it.
export function useAsked(key, load) {
  const [count, again] = useReducer((n) => n + 1, 0);
  const [state, setState] = useState({ key: null });
  const now = useRef({});
  useEffect(() => {
    let isCurrent = true;
    if (key === null) return undefined;
    now.current = { isAwaited: true, isWanted: false };
    const settle = (found) => {
      if (!isCurrent) return;
      const { isWanted } = now.current;
      now.current = {};
      setState((before) => ({ key, ...(found.error && isPassing(found.error) && before.key === key ? { value: before.value } : {}), ...found }));
      if (isWanted) again();
    };
    load().then((value) => settle({ value }), (error) => settle({ error }));
    return () => { isCurrent = false; now.current = {}; };
  }, [key, count]);
  const refresh = () => { if (now.current.isAwaited) now.current.isWanted = true; else if (key !== null) again(); };
  const isOld = state.key !== key;
  return { value: isOld ? undefined : state.value, error: isOld ? undefined : state.error, isLoading: key !== null && isOld, again, refresh };
}

// Follows server-sent events; `handlers` by the event's name get its data. Comes again by itself after an end.
export function useEvents(path, handlers) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    let source, timer, isOver = false;
    const open = () => {
      source = new EventSource(address(path));
      source.onopen = () => setOpen(true);
      source.onerror = () => { setOpen(false); if (source.readyState === EventSource.CLOSED) later(); };
      source.addEventListener("end", () => { source.close(); later(); });
      for (const [name, handle] of Object.entries(handlers))
        source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    };
    const later = () => { if (!isOver) timer = setTimeout(open, 2000); };
    open();
    return () => { isOver = true; clearTimeout(timer); source.close(); };
  }, [path]);
  return isOpen;
}

// Follows a module as a whole: `reload` is called when something of it changed, at most once a second, with what changed:
// the numbers of its definition and its options, topologies and depots by name; without them where a trouble began or ended.
// Gives { isOpen, trouble }: whether the gateway is connected, and why it has no news.
export function useLive(module, reload) {
  const newest = useRef(reload), [trouble, setTrouble] = useState("");
  newest.current = reload;
  const isOpen = useEvents(`/modules/${segment(module)}/subscribe`, {
    module: (found) => newest.current(found),
    trouble: ({ message }) => { setTrouble(message); newest.current({ topologies: {} }); }, // asked again, the view finds out what is left
  });
  return { isOpen, trouble };
}

// Asks again when `news`, a number that counts up, says that something changed; 0 says nothing.
export function useNews(news, asked) {
  useEffect(() => { if (news > 0) asked.refresh(); }, [news]);
}

export const segment = encodeURIComponent;
export const bare = (name) => name.replace(/^(\*|\$\$)/, "");
