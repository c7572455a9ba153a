// The tab "Points".
import { ask, byId, duration, fill, keys, known, later, range, saved, say, Settings } from "./controls.js";
import { curves, map } from "./drawing.js";

export function open() {
  const settings = new Settings("points");
  const values = settings.values;
  if (!values.points && !values.table) values.points = known.example;
  let next = 0.5;
  let drawn = null;
  let newest = null;

  const update = later(async () => {
    byId("points-text").textContent = values.points.split(";").join("\n");
    try {
      const found = await ask("points", { ...values, show: "error" });
      if (!found) return;
      newest = found;
      byId("points-problem").textContent = "";
      byId("points-note").textContent = found.notes.join(" ");
      say("");
      show();
    } catch (error) { byId("points-problem").textContent = error.message; }
  });
  const change = (changes) => { settings.set(changes); update(); };
  const list = () => values.points.split(";").filter(Boolean);

  const slider = range(byId("points-value-range"), { id: "points-value", label: "value of the next point", low: -2, high: 2, value: next, step: 0.01, change: (v) => { next = v; } });
  slider.put(next);
  const add = (x, y, v) => {
    const short = (n) => String(Number(n.toFixed(Math.abs(n) < 10 ? 4 : 2)));
    const text = [...list(), [x, y, v].map(short).join(",")].join(";");
    if (text.length > known.tabs.points.points.longest) { say("No more points: the address would be too long. Load a table instead."); return; }
    change({ points: text });
  };
  const canvas = byId("points-map");
  const keyed = keys(canvas);
  let cursor = [0.5, 0.5]; // where the keys are, in parts of the map
  const act = (event) => {
    if (!drawn) return;
    const i = drawn.nearest(event);
    const fixed = newest.points.length - list().length; // those of the table stay
    if (i >= fixed) { change({ points: list().filter((_, j) => j !== i - fixed).join(";") }); return; }
    if (i < 0) add(...drawn.place(event), next);
  };
  canvas.addEventListener("click", act);
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (!drawn || !(moves[event.key] || event.key === " ")) return;
    event.preventDefault();
    if (moves[event.key]) cursor = cursor.map((v, i) => Math.max(0, Math.min(1, v + (event.shiftKey ? 0.1 : 0.02) * moves[event.key][i])));
    const area = canvas.getBoundingClientRect();
    const place = { clientX: area.left + cursor[0] * area.width, clientY: area.top + (1 - cursor[1]) * area.height };
    if (event.key === " ") { act(place); return; }
    const [x, y] = drawn.place(place).map((v) => v.toPrecision(3));
    say(`x ${x}, y ${y}${drawn.nearest(place) < 0 ? "" : ", on a point"}`);
    show();
  });
  for (const name of ["focus", "blur"]) canvas.addEventListener(name, show);
  byId("points-add").addEventListener("click", () => {
    const numbers = byId("points-new").value.split(/[ ,;]+/).filter(Boolean).map(Number);
    if (numbers.length !== 3 || numbers.some((v) => !Number.isFinite(v))) { say("Type three numbers: x, y, value. For example: 0.5, 0.25, 1"); return; }
    add(...numbers);
    byId("points-new").value = "";
  });
  byId("points-outlier").addEventListener("click", () => {
    const all = list();
    if (!all.length) { say("There is no point to change: click to place one."); return; }
    const [x, y, v] = all.pop().split(",").map(Number);
    change({ points: [...all, `${x},${y},${Number((v + 3).toFixed(3))}`].join(";") });
  });
  byId("points-clear").addEventListener("click", () => change({ points: "", table: "" }));
  byId("points-example").addEventListener("click", () => change({ points: known.example, table: "" }));
  const loss = byId("points-loss");
  fill(loss, known.tabs.points.loss.names, values.loss, { squared: "squares", huber: "Huber" });
  loss.addEventListener("change", () => change({ loss: loss.value }));
  byId("points-show").value = values.show;
  byId("points-show").addEventListener("change", () => { settings.set({ show: byId("points-show").value }); show(); });
  for (const id of ["points-contours", "points-arrows"]) byId(id).addEventListener("change", () => show());
  byId("points-save").addEventListener("click", async () => {
    try { await saved({ tab: "points", state: values }, "points.field"); } catch (error) { say(error.message); }
  });

  function show() {
    if (!newest) return;
    const errors = values.show === "error" && newest.errors !== null;
    const shown = errors ? newest.errors.map((row) => row.map((v) => 2 * v)) : newest.values;
    const flat = shown.flat();
    const low = errors ? 0 : Math.min(...flat);
    const high = Math.max(...flat);
    drawn = map(canvas, {
      values: shown, box: newest.box, points: newest.points, low, high, rejected: newest.rejected,
      contours: byId("points-contours").checked, slopes: byId("points-arrows").checked ? newest.slopes : null,
      cursor: keyed() ? cursor : null,
    });
    byId("points-scale").replaceChildren(...[`${low.toPrecision(3)} (dark)`, errors ? "two standard errors" : "value", `${high.toPrecision(3)} (bright)`].map((text) => Object.assign(document.createElement("span"), { textContent: text })));
    const expected = newest.expected_error === null ? "" : `, expected error ${newest.expected_error.toPrecision(3)}`;
    const out = newest.rejected.length ? `, ${newest.rejected.length} taken for outliers` : "";
    byId("points-numbers").textContent = `${newest.points.length} points, fitted in ${duration(newest.milliseconds)}${expected}${out}`;
    byId("points-report").textContent = newest.report;
    section();
  }

  // values along x in the middle of y, with two standard errors to either side
  function section() {
    const n = newest.values.length;
    const m = newest.values[0].length;
    const k = newest.errors?.length;
    const [low, high] = newest.box[0];
    const x = Array.from({ length: n }, (_, i) => low + ((high - low) * i) / (n - 1));
    const y = newest.values.map((column) => (column[m / 2 - 1] + column[m / 2]) / 2);
    const error = x.map((_, i) => {
      if (!k) return 0;
      const at = Math.max(0, Math.min(k - 1, (i / (n - 1)) * k - 0.5));
      const j = Math.min(k - 2, Math.floor(at));
      const column = (c) => (newest.errors[c][k / 2 - 1] + newest.errors[c][k / 2]) / 2;
      return 2 * (column(j) + (at - j) * (column(j + 1) - column(j)));
    });
    curves(byId("points-section"), {
      series: [{ x, y: y.map((v, i) => v - error[i]), upper: y.map((v, i) => v + error[i]), kind: "a" }, { x, y, kind: "a" }],
      height: 240, label: "The field across the middle of the map, with two standard errors",
    });
  }

  function table(name) { change({ table: name, points: "" }); }

  update();
  return { settings, table, again: show, code: () => ask("script", { tab: "points", state: values }) };
}
