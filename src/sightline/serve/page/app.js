// Tabs, and files that are dropped or pasted anywhere.
import { health } from "./api.js";
import { initAudit, take } from "./audit.js";
import { captionPhotos, initCaption } from "./caption.js";
import { $, problem } from "./dom.js";
import { initSearch, searchByPhoto } from "./search.js";

const TABS = ["caption", "search", "audit"];
let current = "caption";

function open(name, focus = false) {
  current = name;
  problem(null);
  for (const one of TABS) {
    const tab = $(`tab-${one}`);
    tab.setAttribute("aria-selected", String(one === name));
    tab.tabIndex = one === name ? 0 : -1;
    $(`panel-${one}`).hidden = one !== name;
  }
  if (focus) $(`tab-${name}`).focus();
  if (location.hash.slice(1) !== name) history.replaceState(null, "", `#${name}`);
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
addEventListener("hashchange", () => { if (TABS.includes(location.hash.slice(1))) open(location.hash.slice(1)); });

const carriesFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
addEventListener("dragover", (event) => { if (carriesFiles(event)) { event.preventDefault(); $("veil").hidden = false; } });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("veil").hidden = true; });
addEventListener("drop", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  $("veil").hidden = true;
  given([...event.dataTransfer.files]);
});
addEventListener("paste", (event) => given([...(event.clipboardData?.files ?? [])]));

initCaption();
open(TABS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "caption");
try {
  const how = await health();
  $("about").textContent = `Photos go to this server and nowhere else. Sightline ${how.version}, model ${how.model}.`;
  initSearch(how);
  initAudit(how);
} catch (error) {
  problem(error);
}
document.documentElement.dataset.ready = "true";
