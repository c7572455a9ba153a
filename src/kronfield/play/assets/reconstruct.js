// The tab "Reconstruct".
import { ask, byId, duration, fill, known, later, listen, range, saved, say, Settings, shape, sides } from "./controls.js";

const SHOWN = ["picture", "side", "task", "share", "seed", "kind", "s", "zoom"];
const TRAINED = ["picture", "side", "task", "share", "seed", "kind", "s", "combine", "depth", "epochs"];
const NAMES = {
  truth: "the truth", given: "given", chosen: "kronfield, nothing chosen by hand", closed: "closed form, this encoding",
  nearest: "nearest", linear: "linear", cubic: "cubic", pchip: "PCHIP", network: "trained network",
};

export function pictures() {
  const built = [...(known.photograph ? ["photograph"] : []), "shapes", "waves"];
  return known.file === "picture" ? ["file", ...built] : built;
}

export function open() {
  const settings = new Settings("reconstruct");
  const values = settings.values;
  if (values.picture === "photograph" && !known.photograph) values.picture = "shapes";
  const panels = {};
  let run = null; // the run that is under way
  let trained = null; // the settings of the network that is shown

  const slow = later(async () => {
    try {
      const found = await ask("baselines", settings.only(SHOWN));
      if (found) for (const [name, one] of Object.entries(found)) put(name, one);
    } catch (error) { byId("reconstruct-problem").textContent = error.message; }
  }, 120);
  const quick = later(async () => {
    try {
      const found = await ask("reconstruct", settings.only(SHOWN));
      if (!found) return;
      byId("reconstruct-problem").textContent = found.refused_fit || "";
      byId("reconstruct-note").textContent = found.notes.join(" ");
      byId("reconstruct-embedder").textContent = `${found.embedder}, stable rank ${found.stable_rank.toPrecision(4)} an axis`;
      put("truth", { picture: found.truth });
      put("given", { picture: found.given, count: found.count });
      if (found.closed) put("closed", found.closed); else put("closed", null);
      say("");
    } catch (error) { byId("reconstruct-problem").textContent = error.message; }
  });
  const change = (changes, all = false) => {
    settings.set(changes);
    if (trained && TRAINED.some((name) => name in changes)) forget();
    quick();
    if (all) slow();
  };
  // a network of other settings is not shown beside the new numbers
  const forget = () => {
    run?.abort();
    run = trained = null;
    stop.disabled = true;
    put("network", null);
    told.textContent = "Train again: the settings have changed.";
  };

  const words = { grid: "every second pixel", random: "random pixels", rff: "random Fourier (RFF)", linf: "linear Fourier (LinF)", logf: "logarithmic Fourier (LogF)", simple: "simple: side by side", complex: "complex: Kronecker product", file: "the file of the command line" };
  const choose = (name, names, all) => {
    const select = byId(`reconstruct-${name}`);
    fill(select, names, String(values[name]), words);
    select.addEventListener("change", () => {
      const value = typeof values[name] === "number" ? Number(select.value) : select.value;
      if (TRAINED.includes(name) && !SHOWN.includes(name)) settings.set({ [name]: value });
      else change({ [name]: value }, all);
    });
  };
  const sent = values.picture.startsWith("sent-") ? [values.picture] : [];
  choose("picture", [...pictures(), ...sent], true);
  choose("task", known.tabs.reconstruct.task.names, true);
  choose("combine", known.tabs.reconstruct.combine.names);
  for (const name of ["side", "depth"]) choose(name, sides(byId(`reconstruct-${name}`), values[name]), true);
  const kind = byId("reconstruct-kind");
  fill(kind, known.tabs.reconstruct.kind.names, values.kind, words);
  const place = document.querySelector("#reconstruct [data-shape=s]");
  const make = () => shape(place, "reconstruct-s", values.kind, values.s, (v) => change({ s: v }), true);
  make();
  kind.addEventListener("change", () => { change({ kind: kind.value, s: known.shapes[kind.value].relative }); make(); });
  const share = document.querySelector("#reconstruct [data-setting=share]");
  range(share, { id: "reconstruct-share", label: share.dataset.label, ...limits("share"), value: values.share, step: 0.01, change: (v) => change({ share: v }, true) });
  const epochs = document.querySelector("#reconstruct [data-setting=epochs]");
  range(epochs, { id: "reconstruct-epochs", label: "epochs", ...limits("epochs"), value: values.epochs, step: 1, log: true, change: (v) => settings.set({ epochs: v }) });
  byId("reconstruct-task").addEventListener("change", () => { share.hidden = values.task === "grid"; });
  share.hidden = values.task === "grid";
  byId("reconstruct-show").addEventListener("change", again);
  byId("reconstruct-zoom").addEventListener("click", () => zoom("0.375,0.375"));
  byId("reconstruct-unzoom").addEventListener("click", () => zoom(""));
  byId("reconstruct-unzoom").disabled = !values.zoom;
  byId("reconstruct-save").addEventListener("click", async () => {
    try { await saved({ tab: "chosen", state: settings.only(SHOWN) }, "picture.field"); } catch (error) { say(error.message); }
  });

  function zoom(corner) {
    byId("reconstruct-unzoom").disabled = !corner;
    change({ zoom: corner }, true);
  }

  const train = byId("reconstruct-train");
  const stop = byId("reconstruct-stop");
  const told = byId("reconstruct-training");
  if (!known.torch) {
    train.disabled = true;
    told.textContent = "Training needs PyTorch: pip install 'kronfield[torch]'";
  }
  train.addEventListener("click", async () => {
    run?.abort();
    const mine = new AbortController();
    run = mine;
    stop.disabled = false;
    const progress = (one) => {
      if (run !== mine) return;
      put("network", one);
      told.textContent = `epoch ${one.epoch} of ${one.epochs}, loss ${one.loss.toExponential(2)}, ${one.seconds.toFixed(1)} s`;
    };
    told.textContent = "Starting";
    trained = settings.only(TRAINED);
    try {
      const done = await listen("train", trained, progress, mine.signal);
      progress(done);
      if (run === mine) told.textContent += done.stopped_by === "callback" ? ": stopped" : ": done";
    } catch (error) {
      if (error.name !== "AbortError" && run === mine) told.textContent = error.message;
      if (run === mine && !panels.network) trained = null;
    }
    if (run === mine) { run = null; stop.disabled = true; }
  });
  stop.addEventListener("click", () => { run?.abort(); run = null; stop.disabled = true; told.textContent += ": stopped"; });

  function put(name, one) {
    panels[name] = one;
    let figure = byId(`panel-${name}`);
    if (!one) { figure?.remove(); return; }
    if (!figure) {
      figure = document.createElement("figure");
      figure.id = `panel-${name}`;
      if (["closed", "chosen"].includes(name)) figure.className = "ours";
      figure.innerHTML = "<figcaption></figcaption><img><div class=figures></div>";
      figure.querySelector("figcaption").textContent = NAMES[name];
      figure.querySelector("img").addEventListener("click", (event) => {
        if (values.zoom) return;
        const box = event.target.getBoundingClientRect();
        const at = (v) => Math.round(1000 * Math.min(0.75, Math.max(0, v - 0.125))) / 1000;
        zoom(`${at((event.clientY - box.top) / box.height)},${at((event.clientX - box.left) / box.width)}`);
      });
      const order = Object.keys(NAMES);
      const after = Array.from(byId("reconstruct-panels").children).find((other) => order.indexOf(other.id.slice(6)) > order.indexOf(name));
      byId("reconstruct-panels").insertBefore(figure, after || null);
    }
    draw(name, figure);
  }

  function draw(name, figure) {
    const one = panels[name];
    const errors = byId("reconstruct-show").value === "error";
    const image = figure.querySelector("img");
    image.src = errors && one.error ? one.error : values.zoom && one.detail ? one.detail : one.picture;
    image.alt = `${NAMES[name]}${one.psnr ? `, PSNR ${one.psnr.toFixed(2)} dB` : ""}`;
    const facts = [];
    if (one.psnr !== undefined) facts.push(`PSNR ${one.psnr === null ? "∞" : one.psnr.toFixed(2)} dB`);
    if (one.milliseconds !== undefined) facts.push(duration(one.milliseconds));
    if (one.seconds !== undefined) facts.push(`${one.seconds.toFixed(1)} s`);
    if (one.numbers !== undefined) facts.push(`${one.numbers.toLocaleString("en")} parameters`);
    if (one.count !== undefined) facts.push(`${one.count.toLocaleString("en")} pixels`);
    figure.querySelector(".figures").textContent = facts.join(", ");
  }

  function again() {
    for (const figure of byId("reconstruct-panels").children) draw(figure.id.slice(6), figure);
  }

  // a picture that was sent or chosen
  function take(name, label) {
    const select = byId("reconstruct-picture");
    if (!Array.from(select.options).some((option) => option.value === name)) select.prepend(new Option(label, name));
    select.value = name;
    change({ picture: name }, true);
  }

  quick();
  slow();
  return {
    settings,
    take,
    again,
    leave: () => run?.abort(),
    code: () => ask("script", trained ? { tab: "train", state: trained } : { tab: "reconstruct", state: settings.only(SHOWN) }),
  };
}

function limits(name) {
  const { low, high } = known.tabs.reconstruct[name];
  return { low, high };
}
