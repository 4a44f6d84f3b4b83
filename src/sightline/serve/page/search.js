// Photos of the index, found by words or by a photo, and why each was found.
import { picture, post } from "./api.js";
import { $, each, el, many, percent, problem, tell } from "./dom.js";
import { photoView, roving, wordButton } from "./photo.js";
import { saveCsv, saveJson } from "./save.js";

const HITS = 24;
const AT_ONCE = 2;
let shown = [];
let turn = 0; // answers to earlier questions are dropped

export function initSearch(health) {
  if (!health.can.includes("search")) {
    $("search-form").replaceWith(el("p", { className: "empty" },
      "There is no index here yet. Make one with ", el("code", {}, "sightline index PHOTOS --store photos.index"),
      ", then start this page with ", el("code", {}, "sightline serve --store photos.index"), "."));
    $("search-lead").hidden = true;
    return;
  }
  $("search-lead").textContent = `Describe it in a few words, or give a photo that is like it. ${many(health.indexed, "photo")} can be found.`;
  $("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("search-text").value.trim();
    if (text) search({ text, without: $("search-without").value.trim() });
    else $("search-text").focus();
  });
  $("search-file").addEventListener("change", (event) => {
    if (event.target.files.length) searchByPhoto(event.target.files[0]);
    event.target.value = "";
  });
  $("search-json").addEventListener("click", () => saveJson("found.json", shown));
  $("search-csv").addEventListener("click", () => saveCsv("found.csv", [
    ["file", "score", "caption"], ...shown.map((hit) => [hit.path, hit.score, hit.caption ?? ""]),
  ]));
}

export function searchByPhoto(photo) {
  if (!$("search-form")) return;
  $("search-text").value = "";
  search({ photo, without: $("search-without").value.trim() });
}

async function search(ask) {
  const own = ++turn;
  const list = $("hits");
  list.setAttribute("aria-busy", "true");
  problem(null);
  asked(ask.photo);
  tell("Searching");
  try {
    const { sentence, unknown, hits } = await post("/v1/search", { ...ask, k: HITS });
    if (own !== turn) return;
    shown = hits.map(({ id, ...hit }) => hit);
    $("search-asked").querySelector("figcaption").textContent = ask.photo ? sentence : "";
    $("search-bar").hidden = !hits.length;
    $("search-count").textContent = many(hits.length, "photo");
    const nothing = unknown.length ? `Nothing was found: the model does not know ${unknown.join(", ")}. Try other words.` : "Nothing was found. Try fewer or more common words.";
    list.replaceChildren(...(hits.length ? [] : [el("li", { className: "empty" }, nothing)]));
    tell(hits.length ? `${many(hits.length, "photo")} found. The first: ${hits[0].caption ?? hits[0].path}` : nothing);
    const cards = hits.map((hit) => ({ hit, card: el("li", { className: "hit" }, el("div", { className: "wait" }, el("i"), el("i"))) }));
    list.append(...cards.map((one) => one.card));
    await each(cards, AT_ONCE, async (one) => { if (own === turn) await show(one.card, one.hit, sentence); });
  } catch (error) {
    if (own === turn) problem(error);
  } finally {
    if (own === turn) list.removeAttribute("aria-busy");
  }
}

function asked(photo) {
  $("search-asked").hidden = !photo;
  if (photo) $("search-asked").querySelector("img").src = URL.createObjectURL(photo);
}

/** The photo and its caption first; then, when the model has looked, where the question's words are. */
async function show(card, hit, sentence) {
  const name = hit.path.split(/[/\\]/).pop();
  const said = el("p", { className: "said" }, hit.caption ?? name);
  const score = el("p", { className: "meter" },
    el("meter", { min: 0, max: 1, value: Math.max(0, hit.score), "aria-label": "Score" }), hit.score.toFixed(2), el("span", { title: hit.path }, name));
  const frame = el("div", { className: "frame" });
  try {
    const src = await picture(hit.id, 640);
    frame.append(photoView(src, hit.caption ?? name, [1, 1]).view);
    card.replaceChildren(frame, said, score);
    const { words, size } = await post(`/v1/photos/${hit.id}/ground`, { sentence });
    const photo = photoView(src, hit.caption ?? name, size);
    frame.replaceChildren(photo.view);
    said.after(why(photo, words.filter((one) => one.box)));
  } catch { // the photo has moved, or the question has no word that can be looked for: the hit stays as it is
    if (!frame.childElementCount) frame.append(el("p", { className: "empty" }, "This photo can no longer be read"));
    card.replaceChildren(frame, said, score);
  }
}

/** Which words of the question are where, and how surely. */
function why(photo, words) {
  if (!words.length) return el("p", { className: "seen" }, "It is alike as a whole");
  const line = el("span", { className: "unseen" });
  const seen = el("p", { className: "seen", role: "group", "aria-label": "Why it was found" }, "Looked for: ");
  words.forEach((one, i) => {
    if (i) seen.append(", ");
    const tells = `${one.word}, ${percent(one.score)} sure of the place`;
    seen.append(wordButton(photo, one.word, { boxes: one.boxes, tells, line }), ` ${percent(one.score)}`);
  });
  return roving(seen);
}
