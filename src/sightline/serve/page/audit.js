// Captions of others, held against their photos.
import { post } from "./api.js";
import { $, el, many, percent, problem, sentence, tell } from "./dom.js";
import { photoView, roving, wordButton } from "./photo.js";
import { saveCsv, saveJson } from "./save.js";

let audits = [];
let chosen = { captions: null, photos: [] };

export function initAudit(health) {
  if (!health.can.includes("audit")) {
    $("audit-form").replaceWith(el("p", { className: "empty" }, "This model cannot look for words in photos. The one that comes with Sightline can."));
    return;
  }
  $("audit-captions").addEventListener("change", (event) => take([...event.target.files]));
  $("audit-photos").addEventListener("change", (event) => take([...event.target.files]));
  $("audit-only").addEventListener("change", filter);
  $("audit-form").addEventListener("submit", (event) => { event.preventDefault(); check(health.limits); });
  $("audit-json").addEventListener("click", () => saveJson("audit.json", audits));
  $("audit-csv").addEventListener("click", () => saveCsv("audit.csv", [
    ["file", "caption", "noun", "supported", "support", "instead"],
    ...audits.flatMap((one) => one.nouns.map((noun) => [one.path, one.caption, noun.word, noun.supported, noun.support, noun.instead.join("; ")])),
  ]));
}

/** Photos and captions may be chosen one after the other, or dropped together. */
export function take(files) {
  if (!$("audit-form")) return;
  const photos = files.filter((file) => file.type.startsWith("image/") || /\.(heic|heif|avif|tiff?)$/i.test(file.name));
  const text = files.find((file) => !photos.includes(file));
  if (text) chosen.captions = text;
  if (photos.length) chosen.photos = photos;
  $("audit-captions-name").textContent = chosen.captions?.name ?? "Choose a captions file";
  $("audit-photos-name").textContent = chosen.photos.length ? many(chosen.photos.length, "photo") : "Choose its photos";
}

/** Photos in groups that fit into one request together with the captions. */
function groups(photos, captions, limits) {
  const most = Math.max(1, Math.min(limits.photos, 8));
  const found = [];
  let bytes = Infinity;
  for (const photo of photos) {
    if (bytes + photo.size > 0.9 * limits.bytes - captions.size || found.at(-1).length >= most) { found.push([]); bytes = 0; }
    found.at(-1).push(photo);
    bytes += photo.size;
  }
  return found;
}

async function check(limits) {
  problem(null);
  const { captions, photos } = chosen;
  if (!captions || !photos.length) {
    problem({ message: captions ? "no photo is chosen" : "no captions file is chosen", fix: "choose both, or drop them together" });
    return;
  }
  const go = $("audit-go");
  go.disabled = true;
  audits = [];
  $("audits").replaceChildren();
  const left = [];
  tell(`Checking the captions of ${many(photos.length, "photo")}`);
  try {
    for (const group of groups(photos, captions, limits)) {
      go.textContent = `Checking ${many(photos.length, "photo")} …`;
      const told = await post("/v1/audit", { captions, photos: group });
      left.push(...told.unmatched.map((name) => `${name} has no caption`), ...told.unread.map((one) => `${one.path}: ${one.error}`));
      const byName = new Map(group.map((photo) => [photo.name, photo]));
      audits.push(...told.audits);
      $("audits").append(...told.audits.map((one) => card(one, byName.get(one.path))));
      count();
    }
    if (left.length) problem({ message: `${many(left.length, "photo was", "photos were")} left out: ${left.slice(0, 5).join("; ")}${left.length > 5 ? " …" : ""}` });
    tell($("audit-count").textContent);
  } catch (error) {
    problem(error);
    tell(sentence(error));
  } finally {
    go.disabled = false;
    go.textContent = "Check captions";
  }
}

function count() {
  const nouns = audits.reduce((sum, one) => sum + one.nouns.length, 0);
  const flagged = audits.reduce((sum, one) => sum + one.flagged, 0);
  $("audit-bar").hidden = !audits.length;
  $("audit-count").textContent = `${flagged} of ${many(nouns, "noun")} not supported, in ${many(audits.length, "caption")}`;
  filter();
}

function filter() {
  for (const item of $("audits").children) item.hidden = $("audit-only").checked && item.dataset.flagged === "0";
}

function card(audit, file) {
  const photo = photoView(URL.createObjectURL(file), audit.caption, audit.size);
  const line = el("p", { className: "tell", "aria-hidden": "true" });
  const flagged = audit.nouns.filter((noun) => !noun.supported);
  const evidence = flagged.length
    ? el("ul", { className: "evidence" }, ...flagged.map((noun) => el("li", {}, el("b", {}, noun.word), `: ${evidenceOf(noun)}`)))
    : el("p", { className: "fine" }, audit.nouns.length ? "Every noun is supported" : "No noun to look for");
  const made = el("li", { className: "card" }, photo.view, el("div", { className: "side" },
    el("p", { className: "name" }, audit.path), marked(photo, audit, line), evidence, line));
  made.dataset.flagged = audit.flagged;
  return made;
}

const evidenceOf = (noun) => `support ${percent(noun.support)}${noun.instead.length ? `; seen instead: ${noun.instead.join(", ")}` : ""}`;

/** The caption as it was written, its nouns marked; `index` counts words between white space. */
function marked(photo, audit, line) {
  const said = el("p", { className: "said", role: "group", "aria-label": audit.caption });
  audit.caption.trim().split(/\s+/).forEach((word, i) => {
    if (i) said.append(" ");
    const noun = audit.nouns.find((one) => one.index === i);
    if (!noun) return said.append(word);
    const [, before, core, after] = word.match(/^([^\p{L}\p{N}]*)(.*?)([^\p{L}\p{N}]*)$/u);
    const flag = !noun.supported;
    const tells = `${noun.word}: ${flag ? "not supported" : "supported"}, ${evidenceOf(noun)}`;
    return said.append(before, noun.box ? wordButton(photo, core, { box: noun.box, tells, line, flag }) : plain(core, tells, flag, line), after);
  });
  return roving(said);
}

function plain(word, tells, flag, line) {
  const on = () => { line.textContent = tells; };
  return el("button", { type: "button", className: flag ? "flag" : "", "aria-description": tells, onfocus: on, onpointerenter: on, onclick: on }, word);
}
