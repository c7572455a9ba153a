// The tab "Repair".
import { ask, byId, download, duration, fill, known, later, range, saved, say, Settings, sides } from "./controls.js";
import { pictures } from "./reconstruct.js";

const SCRIBBLE = "2:20.30.40.24.52.40.74.28.96.44;2:24.70.60.66.100.78;1:30.96.96.98;";

export function open() {
  const settings = new Settings("repair");
  const values = settings.values;
  if (values.picture === "photograph" && !known.photograph) values.picture = "shapes";
  let radius = 3;
  let stroke = null; // the numbers of the stroke that is being painted
  let cursor = [0.5, 0.5];
  let newest = null;

  const update = later(async () => {
    try {
      const found = await ask("repair", values);
      if (!found) return;
      newest = found;
      byId("repair-problem").textContent = "";
      byId("repair-note").textContent = found.notes.join(" ");
      say("");
      show();
    } catch (error) { byId("repair-problem").textContent = error.message; }
  });
  const change = (changes) => { settings.set(changes); update(); };

  const select = byId("repair-picture");
  const sent = values.picture.startsWith("sent-") ? [values.picture] : [];
  fill(select, [...pictures(), ...sent], values.picture, { file: "the file of the command line" });
  select.addEventListener("change", () => change({ picture: select.value }));
  const side = byId("repair-side");
  fill(side, sides(side, values.side), String(values.side));
  side.addEventListener("change", () => change({ side: Number(side.value), strokes: "" }));
  const noise = document.querySelector("#repair [data-setting=noise]");
  const { low, high } = known.tabs.repair.noise;
  range(noise, { id: "repair-noise", label: noise.dataset.label, low, high, value: values.noise, step: 0.01, change: (v) => change({ noise: v }) });
  range(byId("repair-brush-range"), { id: "repair-brush", label: "radius of the brush, pixels", low: 1, high: 20, value: radius, step: 1, change: (v) => { radius = v; } });
  byId("repair-clear").addEventListener("click", () => { change({ strokes: "" }); overlay(); });
  byId("repair-text").addEventListener("click", () => {
    const scale = values.side / 128;
    const scaled = SCRIBBLE.replace(/\d+/g, (n) => String(Math.max(1, Math.round(Number(n) * scale))));
    change({ strokes: scaled });
    overlay();
  });
  byId("repair-divider").addEventListener("input", divide);
  byId("repair-save").addEventListener("click", async () => {
    try { await saved({ tab: "repair", state: values }, "repaired.field"); } catch (error) { say(error.message); }
  });
  byId("repair-save-picture").addEventListener("click", async () => {
    if (newest) download(await (await toBlob(newest.after)), "repaired.png");
  });

  // the brush
  const canvas = byId("repair-paint");
  const pixel = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top].map((v, i) => Math.max(0, Math.min(values.side - 1, Math.round((v / (i ? box.height : box.width)) * values.side - 0.5))));
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    stroke = pixel(event);
    overlay();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!stroke) return;
    const at = pixel(event);
    const before = stroke.slice(-2);
    // positions nearer than half the radius add nothing but length to the address
    if (Math.hypot(at[0] - before[0], at[1] - before[1]) >= Math.max(1, radius / 2)) { stroke.push(...at); overlay(); }
  });
  const finish = () => {
    if (!stroke) return;
    add(stroke);
    stroke = null;
  };
  canvas.addEventListener("pointerup", finish);
  canvas.addEventListener("pointercancel", finish);
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const at = () => cursor.map((v) => Math.round(v * (values.side - 1)));
    if (moves[event.key]) {
      const step = radius / values.side;
      cursor = cursor.map((v, i) => Math.max(0, Math.min(1, v + step * moves[event.key][i])));
    } else if (event.key === " ") add(at());
    else return;
    event.preventDefault();
    overlay();
  });
  canvas.addEventListener("focus", overlay);
  canvas.addEventListener("blur", overlay);

  function add(numbers) {
    const text = `${values.strokes.replace(/;?$/, (end) => (values.strokes ? ";" : end))}${radius}:${numbers.join(".")};`;
    if (text.length > known.tabs.repair.strokes.longest) { say("No more paint: the address would be too long. Use a larger brush, or clear."); return; }
    change({ strokes: text });
    overlay();
  }

  function overlay() {
    canvas.width = canvas.height = 2 * values.side;
    const context = canvas.getContext("2d");
    context.scale(2, 2);
    context.strokeStyle = context.fillStyle = "#ff0099";
    context.lineCap = context.lineJoin = "round";
    const painting = stroke ? `${radius}:${stroke.join(".")}` : "";
    for (const one of values.strokes.split(";").concat(painting)) {
      if (!one) continue;
      const [r, path = ""] = one.split(":");
      const numbers = path.split(".").map(Number);
      context.lineWidth = 2 * Number(r) + 1;
      context.beginPath();
      for (let i = 0; i < numbers.length; i += 2) context[i ? "lineTo" : "moveTo"](numbers[i] + 0.5, numbers[i + 1] + 0.5);
      if (numbers.length === 2) context.lineTo(numbers[0] + 0.51, numbers[1] + 0.5);
      context.stroke();
    }
    if (document.activeElement === canvas) {
      context.lineWidth = 1;
      context.strokeStyle = "#000";
      context.beginPath();
      context.arc(cursor[0] * (values.side - 1) + 0.5, cursor[1] * (values.side - 1) + 0.5, radius, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  function divide() {
    const percent = byId("repair-divider").value;
    byId("repair-over").style.clipPath = `inset(0 ${100 - percent}% 0 0)`;
  }

  function show() {
    const found = newest;
    byId("repair-before").src = byId("repair-over").src = found.before;
    byId("repair-after").src = found.after;
    byId("repair-error").src = found.error;
    byId("repair-report").textContent = found.report;
    const decibel = (v) => (v === undefined || v === null ? "-" : `${v.toFixed(2)} dB`);
    const noise = found.noise_found === null ? "none" : found.noise_found.toPrecision(3);
    const texts = [decibel(found.psnr_before), decibel(found.psnr_known), decibel(found.psnr_holes), noise, duration(found.milliseconds)];
    Array.from(document.querySelectorAll("#repair-numbers td")).forEach((cell, i) => { cell.textContent = texts[i]; });
    overlay();
    divide();
  }

  function take(name, label) {
    if (!Array.from(select.options).some((option) => option.value === name)) select.prepend(new Option(label, name));
    select.value = name;
    change({ picture: name });
  }

  update();
  return { settings, take, again: overlay, code: () => ask("script", { tab: "repair", state: values }) };
}

async function toBlob(address) {
  const bytes = Uint8Array.from(atob(address.split(",")[1]), (c) => c.charCodeAt(0));
  return new Blob([bytes], { type: "image/png" });
}
