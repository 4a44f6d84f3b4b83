// Captions of others, from a file or typed, held against their photos.
import { post, requests } from "./api.js";
import { $, el, isPicture, many, notice, tell } from "./dom.js";
import { photoView, roving, wordButton } from "./photo.js";
import { progress } from "./progress.js";
import { saveCsv, saveJson } from "./save.js";

const TOGETHER = 8; // photos of a request
const NAMED = 5; // photos that were left out and are named
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
  notice("audit", null);
  const photos = files.filter(isPicture);
  const text = files.find((file) => !photos.includes(file));
  if (text) chosen.captions = text;
  if (photos.length) chosen.photos = photos;
  $("audit-captions-name").textContent = chosen.captions?.name ?? "Choose a captions file";
  $("audit-photos-name").textContent = chosen.photos.length ? many(chosen.photos.length, "photo") : "Choose its photos";
}

/** What is typed goes before the file. */
function captionsGiven() {
  const typed = $("audit-typed").value.split("\n").map((line) => line.trim()).filter((line) => /[a-z]/i.test(line));
  return typed.length ? typed : chosen.captions;
}

async function check(limits) {
  notice("audit", null);
  audits = [];
  for (const image of $("audits").querySelectorAll("img")) URL.revokeObjectURL(image.src);
  $("audits").replaceChildren();
  $("audit-bar").hidden = true;
  const { photos } = chosen;
  const captions = captionsGiven();
  if (!captions || !photos.length) {
    notice("audit", captions ? { message: "no photo is chosen", fix: "choose some, or drop them here" }
      : { message: "there are no captions", fix: "choose a file of them, or type some" });
    return;
  }
  const control = new AbortController();
  const line = progress("Checked", () => control.abort());
  const left = [];
  let ready = 0;
  $("audit-go").disabled = true;
  tell(`Checking the captions of ${many(photos.length, "photo")}`);
  line.at(0, photos.length);
  try {
    const bytes = 0.9 * limits.bytes - (captions.size ?? 0);
    for (const group of requests([...photos], { most: Math.min(limits.photos, TOGETHER), bytes, alone: true })) {
      const answer = await post("/v1/audit", { captions, photos: group }, control.signal);
      left.push(...answer.unmatched.map((name) => `${name} has no caption`), ...answer.unread.map((one) => `${one.path}: ${one.error}`));
      const byName = new Map(group.map((photo) => [photo.name, photo]));
      audits.push(...answer.audits);
      $("audits").append(...answer.audits.map((one) => card(one, byName.get(one.path))));
      ready += group.length;
      line.at(ready, photos.length);
      count();
    }
  } catch (error) {
    if (!control.signal.aborted) notice("audit", error);
  }
  line.end();
  $("audit-go").disabled = false;
  if (left.length) notice("audit", { message: `${many(left.length, "photo was", "photos were")} left out: ${left.slice(0, NAMED).join("; ")}${left.length > NAMED ? " …" : ""}` });
  tell($("audit-count").textContent);
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
  const photo = photoView(URL.createObjectURL(file), audit.caption, audit.size, true);
  const line = el("p", { className: "tell", "aria-hidden": "true" });
  const flagged = audit.nouns.filter((noun) => !noun.supported);
  const evidence = flagged.length
    ? el("ul", { className: "evidence" }, ...flagged.map((noun) => el("li", {}, el("b", {}, noun.word), `: ${evidenceOf(noun)}`)))
    : el("p", { className: "fine" }, audit.nouns.length ? "Every noun is supported" : "No noun to look for");
  const made = el("li", { className: "card" }, el("div", { className: "picture" }, photo.view), el("div", { className: "side" },
    el("p", { className: "name" }, audit.path), marked(photo, audit, line), evidence, line));
  made.dataset.flagged = audit.flagged;
  return made;
}

const evidenceOf = (noun) => `${noun.verdict}${noun.instead.length ? `; seen instead: ${noun.instead.join(", ")}` : ""}`;

/** The caption as it was written, its nouns marked; `index` counts words between white space. */
function marked(photo, audit, line) {
  const said = el("p", { className: "said", role: "group", "aria-label": audit.caption });
  audit.caption.trim().split(/\s+/).forEach((word, i) => {
    if (i) said.append(" ");
    const noun = audit.nouns.find((one) => one.index === i);
    if (!noun) return said.append(word);
    const [, before, core, after] = word.match(/^([^\p{L}\p{N}]*)(.*?)([^\p{L}\p{N}]*)$/u);
    const flag = !noun.supported;
    const tells = `${noun.word}: ${evidenceOf(noun)}`;
    return said.append(before, wordButton(photo, core, { boxes: noun.box ? [noun.box] : [], tells, line, flag }), after);
  });
  return roving(said);
}
