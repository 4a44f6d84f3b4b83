// Tabs, keys, and files that are dropped or pasted anywhere.
import { health } from "./api.js";
import { initAudit, take } from "./audit.js";
import { captionPhotos, initCaption } from "./caption.js";
import { $, notice } from "./dom.js";
import { initSearch, searchByPhoto } from "./search.js";
import { initViewer } from "./viewer.js";

const TABS = ["caption", "search", "audit"];
let current = "caption";

function open(name, focus = false) {
  current = name;
  for (const one of TABS) {
    const tab = $(`tab-${one}`);
    tab.setAttribute("aria-selected", String(one === name));
    tab.tabIndex = one === name ? 0 : -1;
    $(`panel-${one}`).hidden = one !== name;
  }
  if (focus) $(`tab-${name}`).focus();
  if (location.hash.slice(1) !== name) history.replaceState(null, "", `${location.search}#${name}`);
}

function given(files) {
  if (!files.length) return;
  if (current === "audit") take(files);
  else if (current === "search") searchByPhoto(files[0]);
  else captionPhotos(files);
}

for (const name of TABS) {
  $(`tab-${name}`).addEventListener("click", () => open(name));
  $(`tab-${name}`).addEventListener("keydown", (event) => {
    const at = TABS.indexOf(name);
    const to = { ArrowRight: at + 1, ArrowLeft: at + 2, Home: 0, End: 2 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    open(TABS[to % 3], true);
  });
}
const fromHash = () => { if (TABS.includes(location.hash.slice(1))) open(location.hash.slice(1)); };
addEventListener("hashchange", fromHash);
addEventListener("popstate", fromHash);
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches?.("input, textarea, select") || document.querySelector("dialog[open]") || !$("search-form")) return;
  event.preventDefault();
  open("search");
  $("search-text").focus();
  $("search-text").select();
});

const carriesFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
addEventListener("dragover", (event) => { if (carriesFiles(event)) { event.preventDefault(); $("veil").hidden = false; } });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("veil").hidden = true; });
addEventListener("drop", async (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  $("veil").hidden = true;
  given(await dropped(event.dataTransfer));
});
addEventListener("paste", (event) => given([...(event.clipboardData?.files ?? [])]));

/** Files, and those of folders, whatever is below them. Entries must be taken before the event is over. */
async function dropped(carried) {
  const entries = [...carried.items].map((item) => item.webkitGetAsEntry?.());
  if (!entries.some((entry) => entry?.isDirectory)) return [...carried.files];
  return (await Promise.all(entries.filter(Boolean).map(filesBelow))).flat();
}

async function filesBelow(entry) {
  if (entry.isFile) return [await new Promise((resolve, reject) => { entry.file(resolve, reject); })];
  const reader = entry.createReader();
  const found = [];
  for (let some; (some = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); })).length;) found.push(...some); // a hundred at a time
  return (await Promise.all(found.filter((one) => !one.name.startsWith(".")).map(filesBelow))).flat();
}

initViewer();
open(TABS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "caption");
try {
  const how = await health();
  $("about").textContent = `Photos go to this server and nowhere else. Sightline ${how.version}, model ${how.models.join(" and ")}.`;
  initCaption(how);
  initSearch(how);
  initAudit(how);
} catch (error) {
  notice(current, error);
}
document.documentElement.dataset.ready = "true";
