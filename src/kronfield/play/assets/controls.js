// The state of the page in its address, requests to the server, and controls made of settings.

const query = new URLSearchParams(location.search);
export const token = query.get("token") || "";
const page = Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => (b % 36).toString(36)).join("");
const WORKING = "Working";
let number = 0;
const waiting = new Map(); // of each kind of request, the controller that drops the one before

export let known = null; // names, ranges and defaults, from the server

export async function start() {
  const response = await fetch("/api/choices", { headers: { "X-Kronfield-Token": token } });
  if (!response.ok) throw new Error((await response.json()).refused);
  known = await response.json();
}

export function byId(id) { return document.getElementById(id); }

// A text stays until the next one; with "lasting", answers do not clear it for some seconds.
let lastingUntil = 0;
export function say(text, lasting = false) {
  if (!text && Date.now() < lastingUntil) return;
  lastingUntil = lasting ? Date.now() + 8000 : 0;
  byId("status").textContent = text;
}

// A request that was followed by a newer one of its kind gives null.
export async function ask(kind, state) {
  waiting.get(kind)?.abort();
  const controller = new AbortController();
  waiting.set(kind, controller);
  const patience = setTimeout(() => { if (Date.now() >= lastingUntil) say(WORKING); }, 400);
  try {
    const response = await fetch(`/api/${kind}`, options(state, controller.signal));
    const found = await response.json();
    if (found.superseded) return null;
    if (found.refused) throw new Error(found.refused);
    return found;
  } catch (error) {
    if (error.name === "AbortError") return null;
    if (error instanceof TypeError) throw new Error("The server does not answer. Is kronfield play still running?");
    throw error;
  } finally {
    clearTimeout(patience);
    if (byId("status").textContent === WORKING) say("");
  }
}

// Calls part(found) for each part of an answer that comes in lines; returns the last.
export async function listen(kind, state, part, signal) {
  const response = await fetch(`/api/${kind}`, options(state, signal));
  if (!response.ok) throw new Error((await response.json()).refused);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The server has ended the run.");
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const found = JSON.parse(line);
      if (found.refused) throw new Error(found.refused);
      if (found.done) return found.done;
      part(found.part);
    }
  }
}

export async function saved(state, name) {
  const response = await fetch("/api/save", options(state));
  if (!response.ok) throw new Error((await response.json()).refused);
  download(await response.blob(), name);
}

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export async function send(file) {
  const address = `/api/send?page=${page}&name=${encodeURIComponent(file.name)}`;
  const response = await fetch(address, { method: "POST", body: file, headers: { "X-Kronfield-Token": token } });
  const found = await response.json();
  if (!response.ok) throw new Error(found.refused);
  return found;
}

function options(state, signal) {
  number += 1;
  return {
    method: "POST",
    signal,
    headers: { "X-Kronfield-Token": token, "Content-Type": "application/json" },
    body: JSON.stringify({ page, number, state }),
  };
}

// The settings of a tab; changes go into the address.
export class Settings {
  constructor(tab) {
    this.tab = tab;
    this.values = {};
    for (const [name, one] of Object.entries(known.tabs[tab])) {
      const given = query.get("tab") === tab ? query.get(name) : null;
      this.values[name] = given === null ? one.default : typeof one.default === "number" ? Number(given) : given;
    }
  }

  set(changes) {
    Object.assign(this.values, changes);
    this.show();
  }

  only(names) {
    return Object.fromEntries(names.map((name) => [name, this.values[name]]));
  }

  address() {
    const parameters = new URLSearchParams({ token, tab: this.tab });
    for (const [name, value] of Object.entries(this.values)) {
      if (value !== known.tabs[this.tab][name].default) parameters.set(name, value);
    }
    return `${location.pathname}?${parameters}`;
  }

  show() { history.replaceState(null, "", this.address()); }
}

export function fill(select, names, chosen, words = {}) {
  select.replaceChildren(...names.map((name) => new Option(words[name] || name, name, false, name === chosen)));
  select.value = chosen;
}

// The sides of pictures that can be chosen, with one that an address has brought.
export function sides(select, value) {
  const numbers = new Set(Array.from(select.options, (option) => Number(option.value)));
  if (Number.isInteger(value)) numbers.add(value);
  return [...numbers].sort((a, b) => a - b).map(String);
}

// Returns whether an element is used by the keyboard, so that its cursor is shown.
export function keys(node) {
  let used = false;
  node.addEventListener("keydown", () => { used = true; });
  for (const name of ["pointerdown", "blur"]) node.addEventListener(name, () => { used = false; });
  return () => document.activeElement === node && (used || node.matches(":focus-visible"));
}

// A slider with a number beside it; change(value) is called as either moves.
export function range(place, { id, label, low, high, value, step, log = false, change }) {
  const steps = 400;
  const digits = (v) => (Number.isInteger(step) ? Math.round(v) : Number(v.toPrecision(4)));
  const toSlider = (v) => (log ? Math.round((steps * Math.log(v / low)) / Math.log(high / low)) : v);
  const fromSlider = (s) => (log ? low * (high / low) ** (s / steps) : Number(s));
  place.innerHTML = "";
  const text = document.createElement("label");
  text.htmlFor = id;
  text.textContent = label;
  const pair = document.createElement("div");
  pair.className = "pair";
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", id: `${id}-slider`, min: log ? 0 : low, max: log ? steps : high, step: log ? 1 : step });
  slider.setAttribute("aria-label", label);
  const box = document.createElement("input");
  Object.assign(box, { type: "number", id, min: low, max: high, step: "any" });
  const put = (v) => { slider.value = toSlider(v); box.value = digits(v); slider.setAttribute("aria-valuetext", String(digits(v))); };
  put(value);
  slider.addEventListener("input", () => { const v = digits(Math.min(high, Math.max(low, fromSlider(slider.value)))); put(v); change(v); });
  box.addEventListener("change", () => {
    const v = Number(box.value);
    if (!Number.isFinite(v) || box.value === "") { put(value); return; }
    const kept = digits(Math.min(high, Math.max(low, v)));
    put(kept);
    change(kept);
  });
  pair.append(slider, box);
  place.append(text, pair);
  return { put, hide(hidden) { place.hidden = hidden; } };
}

// The slider of the shape parameter of an embedder; relative to the features where pictures are encoded.
export function shape(place, id, kind, value, change, relative = false) {
  const about = known.shapes[kind];
  if (!about || !about.parameter) { place.innerHTML = ""; return null; }
  const low = relative ? about.relative / 16 : about.low;
  const high = relative ? about.relative * 16 : about.high;
  const unit = { width: "width, in spacings of the features", scale: "scale, per feature", exponent: "highest frequency, per feature" };
  const label = relative ? unit[about.parameter] : about.label;
  return range(place, { id, label, low, high, value, step: 0.0001, log: true, change });
}

export function duration(milliseconds) {
  return milliseconds < 1000 ? `${milliseconds.toPrecision(3)} ms` : `${(milliseconds / 1000).toPrecision(3)} s`;
}

export function later(work, wait = 40) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(work, wait); };
}
