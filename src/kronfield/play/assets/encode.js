// The tab "Encode".
import { ask, byId, fill, keys, known, later, range, say, Settings, shape } from "./controls.js";
import { curves, matrix } from "./drawing.js";

export function open() {
  const settings = new Settings("encode");
  const values = settings.values;
  let at = null; // from the mouse to the plot of the fit
  let heights = null;
  let newest = null;

  const update = later(async () => {
    try {
      const found = await ask("encode", values);
      if (found) { newest = found; show(found); say(keyed() ? place : ""); }
    } catch (error) { say(error.message); }
  });
  const change = (changes) => { settings.set(changes); update(); };

  const words = { rff: "random Fourier (RFF)", linf: "linear Fourier (LinF)", logf: "logarithmic Fourier (LogF)" };
  for (const name of ["a", "b"]) {
    const select = byId(`encode-${name}`);
    fill(select, known.tabs.encode[name].names, values[name], words);
    const place = document.querySelector(`#encode [data-shape=${name}s]`);
    const make = () => shape(place, `encode-${name}s`, values[name], values[`${name}s`], (v) => change({ [`${name}s`]: v }));
    make();
    select.addEventListener("change", () => {
      change({ [name]: select.value, [`${name}s`]: known.shapes[select.value]?.default || values[`${name}s`] });
      make();
    });
    byId(`encode-${name}`).remake = () => { select.value = values[name]; make(); };
  }
  for (const place of document.querySelectorAll("#encode [data-setting]")) {
    const name = place.dataset.setting;
    const { low, high } = known.tabs.encode[name];
    range(place, { id: `encode-${name}`, label: place.dataset.label, low, high, value: values[name], step: 1, change: (v) => change({ [name]: v }) });
  }
  for (const name of ["at", "signal"]) {
    const select = byId(`encode-${name}`);
    fill(select, known.tabs.encode[name].names, values[name], { even: "evenly spaced", random: "random", drawn: "drawn by hand" });
    select.addEventListener("change", () => change({ [name]: select.value }));
  }
  byId("encode-match").addEventListener("click", async () => {
    try {
      const found = await ask("match", values);
      if (!found) return;
      change({ b: found.kind, bs: Number(found.shape.toPrecision(4)) });
      byId("encode-b").remake();
    } catch (error) { say(error.message); }
  });

  // draw a signal: 64 heights in [-1, 1]
  const fit = byId("encode-fit");
  let drawing = false;
  let last = null;
  const take = () => {
    const { x, y } = newest.truth;
    heights = Array.from({ length: 64 }, (_, i) => Math.max(-1, Math.min(1, y[Math.min(x.length - 1, Math.round((i / 63) * (x.length - 1)))])));
  };
  const changed = () => {
    const text = heights.map((h) => Math.round(((h + 1) / 2) * 1295).toString(36).padStart(2, "0")).join("");
    byId("encode-signal").value = "drawn";
    change({ signal: "drawn", drawn: text });
  };
  const draw = (event) => {
    const [x, y] = at(event);
    const put = (i, v) => { if (i >= 0 && i < 64) heights[i] = Math.max(-1, Math.min(1, v)); };
    const i = Math.round(x * 63);
    if (last) {
      const steps = Math.max(1, Math.abs(i - last[0]));
      for (let k = 0; k <= steps; k += 1) put(Math.round(last[0] + (k / steps) * (i - last[0])), last[1] + (k / steps) * (y - last[1]));
    } else put(i, y);
    last = [i, y];
    changed();
  };
  fit.addEventListener("pointerdown", (event) => {
    if (!at || !newest) return;
    drawing = true;
    last = null;
    take();
    fit.setPointerCapture(event.pointerId);
    draw(event);
  });
  fit.addEventListener("pointermove", (event) => { if (drawing) draw(event); });
  for (const end of ["pointerup", "pointercancel"]) fit.addEventListener(end, () => { drawing = false; });
  const keyed = keys(fit);
  let place = ""; // what is said of it
  let pen = 0; // the number of the height that the keys move
  fit.addEventListener("keydown", (event) => {
    const aside = { ArrowLeft: -1, ArrowRight: 1 }[event.key] || 0;
    const up = { ArrowDown: -0.05, ArrowUp: 0.05 }[event.key] || 0;
    if (!newest || !(aside || up)) return;
    event.preventDefault();
    if (values.signal !== "drawn" || !heights) take();
    const height = heights[pen];
    pen = Math.max(0, Math.min(63, pen + aside));
    if (up || event.shiftKey) {
      heights[pen] = Math.max(-1, Math.min(1, height + up));
      changed();
    }
    place = `Place ${pen + 1} of 64, height ${heights[pen].toFixed(2)}`;
    say(place);
    show(newest);
  });
  for (const name of ["focus", "blur"]) fit.addEventListener(name, () => { if (newest) show(newest); });

  function show(found) {
    const two = Object.entries(found.embedders);
    const truth = { ...found.truth, kind: "truth" };
    const fits = two.map(([name, one]) => ({ x: found.truth.x, y: one.fitted, kind: name }));
    const bound = 1.6 * Math.max(1, ...found.truth.y.map(Math.abs));
    at = curves(fit, { series: [truth, ...fits], dots: found.samples, height: 230, low: -bound, high: bound, left: 0, right: 1, label: "The signal, its samples, and the linear fits. Left and right choose a place, up and down change the height there, with shift it is carried along", pen: keyed() ? [pen / 63, values.signal === "drawn" && heights ? heights[pen] : found.truth.y[Math.round((pen / 63) * (found.truth.y.length - 1))]] : null });
    fit.setAttribute("role", "application");
    for (const figure of document.querySelectorAll("#encode .for-b")) figure.hidden = !found.embedders.b;
    const half = found.truth.x.filter((_, i) => i % 2 === 0);
    for (const [name, one] of two) {
      curves(byId(`encode-basis-${name}`), { series: one.basis.map((y) => ({ x: half, y, kind: `${name} thin` })), label: `Basis functions of ${one.name}` });
      matrix(byId(`encode-matrix-${name}`), one.matrix, `Embedding matrix of ${one.name}`);
    }
    const order = (list) => list.map((_, i) => i + 1);
    curves(byId("encode-singular"), { series: two.map(([name, one]) => ({ x: order(one.singular), y: one.singular, kind: name })), log: true, low: 1e-16, high: 1, label: "Singular values of the embedding matrices" });
    curves(byId("encode-similarity"), {
      series: two.flatMap(([name, one]) => [{ x: one.distances, y: one.similarity, kind: name }, { x: one.distances, y: one.similarity_theory, kind: `${name} dashed` }]),
      label: "Similarity of the features against the distance of two positions",
    });
    const cells = two.map(([name, one]) => {
      const row = document.createElement("tr");
      const texts = [one.name, number(one.stable_rank), number(one.stable_rank_theory), number(one.preservation), error(one.error_at_samples), error(one.error_between)];
      row.append(...texts.map((text, i) => Object.assign(document.createElement("td"), { textContent: text, className: i === 0 ? name : "" })));
      return row;
    });
    document.querySelector("#encode-numbers tbody").replaceChildren(...cells);
  }

  update();
  return {
    settings,
    again: () => { if (newest) show(newest); },
    code: () => ask("script", { tab: "encode", state: values }),
  };
}

function number(value) { return value === null ? "-" : value.toPrecision(4); }
function error(value) { return value === null ? "-" : value.toExponential(2); }
