// Photos of the index, found by words or by a photo, and why each was found.
import { picture, post } from "./api.js";
import { drawer, findWords } from "./detail.js";
import { $, asSentence, button, each, el, many, notice, percent, tell } from "./dom.js";
import { photoView, wordButton, wordList } from "./photo.js";
import { copyButton, saveCsv, saveJson } from "./save.js";
import { closeViewer, openViewer } from "./viewer.js";

const HITS = 24;
const LANES = 6; // pictures that are fetched at once
const [SMALL, LARGE] = [480, 1600]; // pixels of the longest side
let shown = []; // {hit, card, frame, said, photo, src, why}
let atOnce = HITS; // hits that the server explains in one request
let asking = new AbortController(); // answers to earlier questions are dropped, and the server is told

export function initSearch(health) {
  if (!health.can.includes("search")) {
    $("search-form").replaceWith(el("p", { className: "empty" },
      "There is no index here yet. Make one with ", el("code", {}, "sightline index PHOTOS --store photos.index"),
      ", then start this page with ", el("code", {}, "sightline serve --store photos.index"), "."));
    $("search-lead").hidden = true;
    return;
  }
  atOnce = Math.min(HITS, health.limits.queue);
  $("search-lead").textContent = `Describe it in a few words, or give a photo that is like it. ${many(health.indexed, "photo")} can be found.`;
  $("search-form").addEventListener("submit", (event) => { event.preventDefault(); byWords(true); });
  $("search-file").addEventListener("change", (event) => {
    if (event.target.files.length) searchByPhoto(event.target.files[0]);
    event.target.value = "";
  });
  for (const one of document.querySelectorAll("[data-query]")) {
    one.addEventListener("click", () => { $("search-text").value = one.dataset.query; $("search-without").value = ""; byWords(true); });
  }
  const told = () => shown.map(({ hit: { id, weak, ...rest } }) => rest);
  $("search-json").addEventListener("click", () => saveJson("found.json", told()));
  $("search-csv").addEventListener("click", () => saveCsv("found.csv", [
    ["file", "score", "caption"], ...told().map((hit) => [hit.path, hit.score, hit.caption ?? ""]),
  ]));
  addEventListener("popstate", fromAddress);
  fromAddress();
}

/** The query is in the address: it can be bookmarked, sent, and gone back to. */
function fromAddress() {
  const given = new URLSearchParams(location.search);
  if (!given.get("q")) return;
  $("search-text").value = given.get("q");
  $("search-without").value = given.get("not") ?? "";
  byWords(false);
}

function byWords(write) {
  const [text, without] = ["search-text", "search-without"].map((name) => $(name).value.trim());
  if (!/[a-z]/i.test(text)) {
    empty();
    notice("search", { message: "say with at least one word what to find" });
    $("search-text").focus();
    return;
  }
  if (write) {
    const query = new URLSearchParams({ q: text, ...(without ? { not: without } : {}) });
    if (location.search !== `?${query}`) history.pushState(null, "", `?${query}#search`);
  }
  search({ text, without });
}

export function searchByPhoto(photo) {
  if (!$("search-form")) return;
  $("search-text").value = "";
  history.replaceState(null, "", `${location.pathname}#search`);
  search({ photo, without: $("search-without").value.trim() }, URL.createObjectURL(photo));
}

function searchLike(one) {
  closeViewer();
  $("search-text").value = "";
  search({ like: one.hit.id }, one.src);
  $("search-asked").scrollIntoView({ block: "nearest" });
}

/** Put away what was found; the picture at `src` is still needed. */
function empty(src) {
  asking.abort();
  for (const one of shown) if (one.src && one.src !== src) URL.revokeObjectURL(one.src);
  shown = [];
  $("hits").replaceChildren();
  $("search-bar").hidden = true;
  $("search-asked").hidden = true;
  notice("search", null);
}

async function search(ask, src) {
  empty(src); // what was found for another question
  asking = new AbortController();
  const { signal } = asking;
  const list = $("hits");
  list.setAttribute("aria-busy", "true");
  $("search-asked").hidden = !src;
  if (src) $("search-asked").querySelector("img").src = src;
  tell("Searching");
  try {
    const { sentence, unknown, hits } = await post("/v1/search", { ...ask, k: HITS }, signal);
    $("search-asked").querySelector("figcaption").textContent = src ? asSentence(sentence) : "";
    $("search-bar").hidden = !hits.length;
    const weaker = hits.filter((hit) => hit.weak).length;
    const good = hits.length - weaker;
    const rest = weaker ? many(weaker, "weaker match", "weaker matches") : "";
    $("search-count").textContent = good ? [many(good, "photo"), rest].filter(Boolean).join(" and ") : `No photo fits well; ${rest}`;
    const nothing = unknown.length ? `Nothing was found: the model does not know ${unknown.join(", ")}. Try other words.` : "Nothing was found. Try fewer or more common words.";
    shown = hits.map(card);
    layOut(nothing);
    tell(hits.length ? `${$("search-count").textContent}. The first: ${textOf(hits[0])}` : nothing);
    await each(shown, LANES, (one) => showPicture(one, signal));
    if (hits.length) explain(await post("/v1/explain", { ids: hits.map((hit) => hit.id).slice(0, atOnce), sentence }, signal));
  } catch (error) {
    if (!signal.aborted) fail(error);
  } finally {
    if (!signal.aborted) list.removeAttribute("aria-busy");
  }
}

/** Hits that were not found are told; of those that were, only why they were found is missing. */
function fail(error) {
  if (!shown.length) { empty(); notice("search", error); }
}

/** The good matches; under a line, when people ask for them, the weaker ones. */
function layOut(nothing) {
  const good = shown.filter((one) => !one.hit.weak);
  const weak = shown.filter((one) => one.hit.weak);
  const line = button(`Show ${many(weak.length, "weaker match", "weaker matches")}`, () => {
    rule.replaceWith(el("li", { className: "rule" }, el("h2", {}, "Weaker matches")), ...weak.map((one) => one.card));
    weak[0].card.querySelector("button").focus();
  });
  const rule = el("li", { className: "rule" }, line);
  $("hits").replaceChildren(...(shown.length ? [] : [el("li", { className: "empty" }, nothing)]), ...good.map((one) => one.card), ...(weak.length ? [rule] : []));
}

const nameOf = (hit) => hit.path.split(/[/\\]/).pop();
const textOf = (hit) => (hit.caption ? asSentence(hit.caption) : nameOf(hit));

function meterOf(hit) {
  return el("p", { className: "meter" },
    el("meter", { min: 0, max: 1, value: Math.max(0, hit.score), "aria-label": "Score" }), el("b", {}, hit.score.toFixed(2)), el("span", { title: hit.path }, nameOf(hit)));
}

function card(hit) {
  const one = { hit, frame: el("div", { className: "frame" }, el("div", { className: "wait" }, el("i"), el("i"))), said: el("p", { className: "said" }, textOf(hit)) };
  const actions = el("div", { className: "actions" },
    el("button", { type: "button", onclick: () => open(one), "aria-label": `Open ${nameOf(hit)}` }, "Open"),
    el("button", { type: "button", className: "quiet", onclick: () => searchLike(one), "aria-label": `Find photos similar to ${nameOf(hit)}` }, "Find similar"));
  one.frame.addEventListener("click", () => { if (one.src) open(one); }); // a shortcut for the mouse
  one.card = el("li", { className: "hit" }, one.frame, one.said, meterOf(hit), actions);
  return one;
}

async function showPicture(one, signal) {
  try {
    one.src = await picture(one.hit.id, SMALL, signal);
    one.frame.replaceChildren(photoView(one.src, textOf(one.hit)).view);
  } catch (error) {
    if (signal.aborted) throw error;
    one.frame.replaceChildren(el("p", { className: "empty" }, "This photo can no longer be read"));
  }
}

/** One answer tells of all hits where the words of the question are. */
function explain({ hits }) {
  hits.forEach((why, i) => {
    const one = shown[i];
    if (!why || !one.src) return;
    one.why = why;
    const photo = photoView(one.src, textOf(one.hit), why.size);
    one.frame.replaceChildren(photo.view);
    one.said.after(reasons(photo, why.words));
  });
}

/** Which words of the question are where, and how surely. */
function reasons(photo, words, line = el("span", { className: "unseen" })) {
  const found = words.filter((one) => one.box);
  if (!found.length) return el("p", { className: "seen" }, "It is alike as a whole");
  return wordList("Why it was found", "Looked for: ", found.map((one) => {
    const tells = `${one.word}, ${percent(one.score)} sure of the place`;
    return [wordButton(photo, one.word, { boxes: one.boxes, tells, line }), ` ${percent(one.score)}`];
  }));
}

function open(one) {
  const here = shown.filter((other) => other.src && other.card.isConnected);
  openViewer(here.length, here.indexOf(one), (at) => large(here[at]), (at) => here[at]?.card.querySelector("button")?.focus());
}

/** A hit large: the small picture at once, the sharp one when it has come. */
function large(one) {
  const photo = photoView(one.src, textOf(one.hit), one.why?.size);
  const image = photo.view.querySelector("img");
  picture(one.hit.id, LARGE, asking.signal).then((src) => { image.src = src; image.onload = () => URL.revokeObjectURL(src); }, () => {});
  const line = el("p", { className: "tell", "aria-hidden": "true" });
  const tools = drawer();
  return el("div", { className: "card bare" }, el("div", { className: "picture" }, photo.view), el("div", { className: "side" },
    el("p", { className: "name" }, one.hit.path), el("p", { className: "said" }, textOf(one.hit)),
    one.why ? reasons(photo, one.why.words, line) : null, meterOf(one.hit), line,
    el("div", { className: "actions" },
      button("Find similar", () => searchLike(one)),
      one.hit.caption ? copyButton("Copy alt text", () => textOf(one.hit)) : null,
      one.why ? tools.tool("Find words", (place) => findWords(place, photo, (text) => post(`/v1/photos/${one.hit.id}/ground`, { sentence: text }))) : null),
    tools.place));
}
