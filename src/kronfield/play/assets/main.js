// Tabs, files that are dropped, and copies of the page.
import { byId, say, send, start } from "./controls.js";
import { open as openEncode } from "./encode.js";
import { open as openPoints } from "./points.js";
import { open as openReconstruct } from "./reconstruct.js";
import { open as openRepair } from "./repair.js";

const OPEN = { encode: openEncode, reconstruct: openReconstruct, repair: openRepair, points: openPoints };
const tabs = Object.keys(OPEN);
const opened = {};
let current = "";

function show(tab, focus = false) {
  if (current && current !== tab) opened[current].leave?.();
  current = tab;
  for (const name of tabs) {
    const button = byId(`tab-${name}`);
    button.setAttribute("aria-selected", String(name === tab));
    button.tabIndex = name === tab ? 0 : -1;
    byId(name).hidden = name !== tab;
  }
  if (focus) byId(`tab-${tab}`).focus();
  if (opened[tab]) opened[tab].again();
  else opened[tab] = OPEN[tab]();
  opened[tab].settings.show();
}

async function receive(file) {
  say(`Reading ${file.name}`);
  try {
    const found = await send(file);
    if (found.kind === "table") { if (current !== "points") show("points"); opened.points.table(found.name); }
    else {
      if (!["reconstruct", "repair"].includes(current)) show("reconstruct");
      for (const name of ["reconstruct", "repair"]) if (opened[name] && name === current) opened[name].take(found.name, file.name);
    }
    say("");
  } catch (error) { say(error.message, true); }
}

async function copy(text, done) {
  try {
    await navigator.clipboard.writeText(text);
    say(done);
  } catch { say("The browser does not allow copying: select the text and copy it."); }
}

async function main() {
  try { await start(); } catch (error) { say(error.message); return; }
  for (const name of tabs) {
    const button = byId(`tab-${name}`);
    button.addEventListener("click", () => show(name));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) show(tabs[(tabs.indexOf(name) + step + tabs.length) % tabs.length], true);
    });
  }
  for (const form of document.querySelectorAll("form")) form.addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["reconstruct-file", "repair-file", "points-file"]) {
    byId(id).addEventListener("change", (event) => { if (event.target.files[0]) receive(event.target.files[0]); event.target.value = ""; });
  }
  document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    if (event.dataTransfer.files[0]) receive(event.dataTransfer.files[0]);
  });
  byId("copy-python").addEventListener("click", async () => {
    try {
      const found = await opened[current].code();
      if (!found) return;
      byId("code").value = found.code;
      byId("code-dialog").showModal();
      await copy(found.code, "Copied.");
    } catch (error) { say(error.message); }
  });
  byId("code-close").addEventListener("click", () => byId("code-dialog").close());
  byId("copy-link").addEventListener("click", () => copy(location.href, "Copied: the address holds the state of this tab."));
  let timer = 0;
  window.addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(() => opened[current]?.again(), 100); });
  const asked = new URLSearchParams(location.search).get("tab");
  show(tabs.includes(asked) ? asked : "encode");
}

main();
