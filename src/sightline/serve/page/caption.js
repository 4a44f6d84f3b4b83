// Photos in, captions out, each as it comes.
import { post } from "./api.js";
import { $, each, el, many, percent, sentence, tell } from "./dom.js";
import { photoView, roving, sentenceOf, wordButton } from "./photo.js";
import { copyButton, saveCsv, saveJson } from "./save.js";

const AT_ONCE = 4;
const SURE = 0.5; // of things that are listed beside the caption
const results = new Map(); // card to what the server said, in the order of the cards

export function initCaption() {
  $("caption-files").addEventListener("change", (event) => {
    captionPhotos([...event.target.files]);
    event.target.value = "";
  });
  $("caption-json").addEventListener("click", () => saveJson("captions.json", done()));
  $("caption-csv").addEventListener("click", () => saveCsv("captions.csv", [
    ["file", "caption", "confidence"], ...done().map((one) => [one.path, one.caption, one.confidence]),
  ]));
  $("caption-clear").addEventListener("click", () => {
    for (const image of $("captions").querySelectorAll("img")) URL.revokeObjectURL(image.src);
    results.clear();
    $("captions").replaceChildren();
    count();
    tell("Cleared");
    $("caption-files").focus();
  });
}

const done = () => [...results.values()].filter((one) => one?.caption !== undefined);

function count() {
  const waiting = [...results.values()].filter((one) => one === null).length;
  $("caption-bar").hidden = results.size === 0;
  $("caption-count").textContent = waiting ? `${done().length} of ${many(results.size, "photo")} captioned` : many(done().length, "caption");
  for (const name of ["caption-csv", "caption-json"]) $(name).disabled = !done().length;
}

export async function captionPhotos(files) {
  const cards = files.map((file) => {
    const card = el("li", { className: "card" });
    waiting(card, file);
    results.set(card, null);
    return { card, file };
  });
  $("captions").append(...cards.map((one) => one.card));
  count();
  if (files.length) tell(`Captioning ${many(files.length, "photo")}`);
  await each(cards, AT_ONCE, one);
}

async function one({ card, file }) {
  if (!results.has(card)) return; // cleared meanwhile
  try {
    const { captions: [said] } = await post("/v1/caption", { photos: file, attention: true });
    if (!results.has(card)) return;
    results.set(card, said);
    show(card, file, said);
    tell(`${file.name}: ${said.caption}`);
  } catch (error) {
    if (!results.has(card)) return;
    results.set(card, { error: error.message });
    failed(card, file, error);
    tell(sentence(error));
  }
  count();
}

function waiting(card, file) {
  card.setAttribute("aria-busy", "true");
  const view = photoView(URL.createObjectURL(file), "", [1, 1]).view;
  const lines = el("div", { className: "wait", role: "img", "aria-label": "Looking at the photo" }, el("i"), el("i"));
  card.replaceChildren(view, el("div", { className: "side" }, el("p", { className: "name" }, file.name), lines));
}

function failed(card, file, error) {
  card.removeAttribute("aria-busy");
  card.querySelector(".wait").replaceWith(
    el("p", { className: "failed" }, sentence(error)),
    el("div", { className: "actions" }, el("button", {
      type: "button",
      onclick: () => { results.set(card, null); waiting(card, file); count(); one({ card, file }); },
    }, "Try again")),
  );
}

function show(card, file, said) {
  card.removeAttribute("aria-busy");
  const photo = photoView(card.querySelector("img")?.src ?? URL.createObjectURL(file), said.caption, said.size);
  const line = el("p", { className: "tell", "aria-hidden": "true" });
  const side = el("div", { className: "side" },
    el("p", { className: "name" }, file.name),
    sentenceOf(photo, said.words, line),
    said.low_confidence ? el("p", { className: "doubt" }, `Not sure (${percent(said.confidence)}): please check`) : null,
    alsoSeen(photo, said, line),
    el("div", { className: "actions" }, copyButton("Copy alt text", () => said.caption), line));
  card.replaceChildren(photo.view, side);
}

/** Things that vision named and the caption does not. */
function alsoSeen(photo, said, line) {
  const told = new Set(said.words.map((one) => one.word));
  const things = said.concepts.filter((one) => one.box && one.score >= SURE && !told.has(one.name)).slice(0, 6);
  if (!things.length) return null;
  const seen = el("p", { className: "seen", role: "group", "aria-label": "Also seen" }, "Also seen: ");
  things.forEach((one, i) => {
    if (i) seen.append(", ");
    seen.append(wordButton(photo, one.name, { box: one.box, tells: `${one.name}, ${percent(one.score)} sure`, line, extra: true }));
  });
  return roving(seen);
}
