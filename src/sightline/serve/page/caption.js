// Photos in, captions out, each as it comes; made for a hundred of them.
import { post, requests } from "./api.js";
import { drawer, editCaption, findWords, otherWordings } from "./detail.js";
import { $, asSentence, button, each, el, isPicture, many, notice, percent, sentence, tell } from "./dom.js";
import { heatLegend, photoView, sentenceOf, wordButton, wordList } from "./photo.js";
import { progress, undoable } from "./progress.js";
import { copyButton, saveCsv, saveJson } from "./save.js";
import { closeViewer, openViewer, refreshViewer } from "./viewer.js";

const LANES = 4; // requests at once; browsers open no more than six connections
const TOGETHER = 4; // photos of a request
const FEW = 4; // photos that are shown large at first
const SPOKEN = 5; // captions that are read out one by one; of more, only how many there are
const SURE = 0.5; // of things that are listed beside the caption
const OTHERS = 4; // wordings that are asked for
let entries = []; // {file, url, state: waiting, done, failed or stopped, said, text, compare, error, item}
let server = { limits: { bytes: 4e7, photos: 8 }, models: [], can: [] };
let running = null; // {queue, control, begun} of the work that runs
let viewing = null; // the entry that is shown large
let view = null; // grid or list, once people have chosen

export function initCaption(health) {
  server = health;
  const points = health.can.includes("audit"); // a matcher finds the places of words
  $("caption-lead").textContent = points
    ? "Give photos; get a sentence for each. Words with a dotted line show their place in the photo."
    : "Give photos; get a sentence for each.";
  for (const name of ["caption-files", "caption-folder"]) {
    $(name).addEventListener("change", (event) => { captionPhotos([...event.target.files]); event.target.value = ""; });
  }
  $("caption-example").addEventListener("click", example);
  $("caption-options").addEventListener("submit", (event) => event.preventDefault());
  const [, other] = health.models;
  $("caption-compare-row").hidden = !other;
  $("caption-compare").checked = Boolean(other);
  $("caption-compare-name").textContent = other ?? "";
  for (const name of ["grid", "list"]) $(`view-${name}`).addEventListener("click", () => { view = name; render(); });
  $("caption-more").addEventListener("click", () => work(entries.filter((one) => one.state === "stopped")));
  $("caption-json").addEventListener("click", () => saveJson("captions.json", done().map(told)));
  $("caption-csv").addEventListener("click", () => saveCsv("captions.csv", [
    ["file", "caption", "confidence", ...(other ? [`caption of ${other}`] : [])],
    ...done().map((one) => [one.file.name, one.text, one.said.confidence, ...(other ? [one.compare?.text ?? ""] : [])]),
  ]));
  copyButton("Copy all", () => done().map((one) => `${one.file.name}\t${one.text}`).join("\n"), $("caption-copy"));
  $("caption-clear").addEventListener("click", clear);
}

const done = () => entries.filter((one) => one.state === "done");
const told = (one) => ({ ...one.said, caption: one.text, ...(one.edited ? { edited: true } : {}), ...(one.compare ? { compare: { model: one.compare.model, caption: one.compare.text } } : {}) });

async function example() {
  const bytes = await (await fetch("/example.jpg")).blob();
  captionPhotos([new File([bytes], "example.jpg", { type: "image/jpeg" })]);
}

/** Everything that is not a picture, such as the notes in a folder, is left out where there are pictures. */
function pictures(files) {
  const known = files.filter(isPicture);
  return known.length ? known : files;
}

export async function captionPhotos(files) {
  if (!files.length) return;
  notice("caption", null);
  const added = pictures(files).map((file) => ({ file, url: URL.createObjectURL(file), state: "waiting", item: el("li") }));
  entries.push(...added);
  render();
  await work(added);
}

const options = () => ({
  length: $("caption-words").value || $("caption-length").value,
  beam: $("caption-beam").value,
  must_include: $("caption-include").value.trim(),
});

/** Caption entries a few at a time; those that come while others are worked on join them. */
async function work(list) {
  list.forEach((one) => { one.state = "waiting"; draw(one); });
  if (running) running.queue.push(...list);
  else if (list.length) await run([...list]);
}

async function run(queue) {
  const control = new AbortController();
  const line = progress("Captioned", () => control.abort());
  running = { queue, control, begun: [] };
  const { begun } = running;
  const shown = () => {
    const ready = begun.filter((one) => one.state !== "waiting").length;
    line.at(ready, begun.filter((one) => one.state === "waiting").length + ready + queue.length);
    if (begun.length > SPOKEN && ready % 10 === 0) tell(`${ready} captioned`);
    count();
  };
  tell(`Captioning ${many(queue.length, "photo")}`);
  shown();
  while (queue.length) { // more may have come at the very end
    await each(coming(queue, begun), LANES, async (group) => {
      if (!control.signal.aborted) await captionGroup(group, control);
      shown();
    });
  }
  running = null;
  line.end();
  for (const one of begun.filter((other) => other.state === "waiting")) { one.state = "stopped"; draw(one); }
  count();
  if (begun.length > SPOKEN) tell($("caption-count").textContent);
}

/** Groups of what waits and was not removed meanwhile. */
function* coming(queue, begun) {
  const { photos, bytes } = server.limits;
  const size = { most: Math.min(TOGETHER, photos), bytes: 0.9 * bytes, alone: !begun.length, file: (one) => one.file };
  for (const group of requests(queue, size)) {
    begun.push(...group);
    yield group.filter((one) => entries.includes(one));
  }
}

async function captionGroup(group, control) {
  const { signal } = control;
  const fields = { photos: group.map((one) => one.file), attention: true, ...options() };
  if (!group.length) return;
  try {
    const { captions } = await post("/v1/caption", fields, signal);
    const second = await compared(fields, signal);
    group.forEach((one, i) => finish(one, captions[i], second[i]));
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 409 || /^(length|beam|must_include)/.test(error.message)) { // the same for every photo: told once, and the work ends
      notice("caption", error);
      control.abort();
    } else if (group.length > 1 && !error.again) { // one of them spoils the request: each has its own
      for (const one of group) await captionGroup([one], control);
    } else {
      group.forEach((one) => fail(one, error));
    }
  }
}

/** The captions of the second model; what it cannot do costs none of the first. */
async function compared(fields, signal) {
  const [, model] = server.models;
  if (!model || !$("caption-compare").checked) return [];
  try {
    const { captions } = await post("/v1/caption", { ...fields, model }, signal);
    return captions.map((said) => ({ ...said, model }));
  } catch (error) {
    if (signal.aborted) throw error;
    notice("caption", { message: `${model}: ${error.message}`, fix: error.fix });
    return [];
  }
}

function finish(one, said, compare) {
  if (said.error) return fail(one, { message: said.error, fix: said.fix, again: false });
  Object.assign(one, { state: "done", said, text: asSentence(said.caption), edited: false, compare: compare?.caption ? { ...compare, text: asSentence(compare.caption) } : null });
  draw(one);
  if (entries.length <= SPOKEN) tell(`${one.file.name}: ${one.text}`);
  return undefined;
}

function fail(one, error) {
  Object.assign(one, { state: "failed", error });
  draw(one);
  tell(sentence(error));
}

function count() {
  const ready = done().length;
  const stopped = entries.filter((one) => one.state === "stopped").length;
  $("caption-bar").hidden = entries.length === 0;
  $("caption-count").textContent = ready === entries.length ? many(ready, "caption") : `${ready} of ${many(entries.length, "photo")} captioned`;
  for (const name of ["caption-csv", "caption-json", "caption-copy"]) $(name).disabled = !ready;
  $("caption-more").hidden = !stopped || Boolean(running);
  $("caption-more").textContent = `Caption the other ${stopped}`;
}

const shownAs = () => view ?? (entries.length > FEW ? "grid" : "list");

/** Show all entries as they are shown now: small, side by side, or large, with everything. */
function render() {
  const as = shownAs();
  const list = $("captions");
  for (const name of ["grid", "list"]) $(`view-${name}`).setAttribute("aria-pressed", String(as === name));
  if (list.dataset.view !== as) entries.forEach((one) => { one.drawn = null; });
  list.dataset.view = as;
  list.className = as === "grid" ? "tiles" : "cards";
  list.replaceChildren(...entries.map((one) => one.item));
  entries.forEach(draw);
  count();
}

function draw(one) {
  const as = shownAs();
  const now = [as, one.state, one.text, one.error?.message].join("|");
  if (one.drawn === now) return;
  one.drawn = now;
  one.item.dataset.state = one.state;
  one.item.className = as === "grid" ? "tile" : "card";
  one.item.toggleAttribute("aria-busy", one.state === "waiting");
  if (one.state === "waiting") one.item.setAttribute("aria-busy", "true");
  one.item.replaceChildren(...(as === "grid" ? tile(one) : large(one)));
  if (viewing === one) refreshViewer();
}

const label = (one) => ({ waiting: "Waiting", stopped: "Not captioned", failed: "No caption" })[one.state] ?? one.text;

/** The photo and its sentence; everything else is one click away. */
function tile(one) {
  const open = el("button", { type: "button", className: "open", onclick: () => show(one) },
    el("img", { src: one.url, alt: "", loading: "lazy", decoding: "async" }),
    el("span", { className: one.state === "done" ? "said" : "said off" }, label(one)));
  const doubt = one.said?.low_confidence ? el("p", { className: "doubt" }, "Please check") : null;
  const other = one.compare ? el("p", { className: "other" }, el("b", {}, one.compare.model), ` ${one.compare.text}`) : null;
  return [open, other, doubt].filter(Boolean);
}

function show(one) {
  const build = (at) => {
    viewing = entries[at];
    return el("div", { className: "card bare" }, ...large(viewing));
  };
  openViewer(entries.length, entries.indexOf(one), build, (at) => {
    viewing = null;
    entries[at]?.item.querySelector("button")?.focus();
  });
}

function large(one) {
  const name = el("p", { className: "name" }, one.file.name);
  if (one.state === "done") return captioned(one, name);
  const photo = photoView(one.url, "").view;
  const actions = el("div", { className: "actions" }, removeButton(one));
  if (one.state === "waiting") {
    return [photo, el("div", { className: "side" }, name, el("div", { className: "wait", role: "img", "aria-label": "Looking at the photo" }, el("i"), el("i")))];
  }
  if (one.state === "stopped" || one.error.again) actions.prepend(button(one.state === "stopped" ? "Caption it" : "Try again", () => work([one])));
  const why = one.state === "stopped" ? el("p", { className: "tell" }, "Not captioned") : el("p", { className: "failed" }, sentence(one.error));
  return [photo, el("div", { className: "side" }, name, why, actions)];
}

function captioned(one, name) {
  const { said } = one;
  const photo = photoView(one.url, one.text, said.size);
  const line = el("p", { className: "tell", "aria-hidden": "true" });
  const tools = drawer();
  const take = async (text) => {
    const { words } = await post("/v1/ground", { photo: one.file, sentence: text });
    Object.assign(one, { text: asSentence(text), edited: true, said: { ...said, words } });
    draw(one);
    tell(`Saved: ${one.text}`);
  };
  const others = async () => {
    const { captions: [answer] } = await post("/v1/caption", { photos: one.file, ...options(), beam: Math.max(2, Number(options().beam)), alternatives: OTHERS });
    return [answer.caption, ...answer.alternatives].filter((text) => asSentence(text) !== one.text);
  };
  const legend = said.words.some((word) => word.attention && word.box) ? heatLegend() : null;
  return [el("div", { className: "picture" }, photo.view, legend), el("div", { className: "side" }, name,
    one.compare ? el("p", { className: "name" }, server.models[0]) : null,
    sentenceOf(photo, said.words, line, one.text),
    said.low_confidence && !one.edited ? el("p", { className: "doubt" }, `Not sure (${percent(said.confidence)}): please check`) : null,
    one.compare ? el("p", { className: "name" }, one.compare.model) : null,
    one.compare ? sentenceOf(photo, one.compare.words, line) : null,
    alsoSeen(photo, said, line),
    el("div", { className: "actions" },
      copyButton("Copy alt text", () => one.text),
      tools.tool("Edit", (place) => editCaption(place, one.text, take)),
      tools.tool("Other wordings", (place) => otherWordings(place, others, take)),
      tools.tool("Find words", (place) => findWords(place, photo, (text) => post("/v1/ground", { photo: one.file, sentence: text }))),
      removeButton(one)),
    tools.place, line)];
}

/** Things that vision named and the caption does not. */
function alsoSeen(photo, said, line) {
  const words = new Set(said.words.map((one) => one.word));
  const things = said.concepts.filter((one) => one.box && one.score >= SURE && !words.has(one.name)).slice(0, 6);
  if (!things.length) return null;
  return wordList("Also seen", "Also seen: ", things.map((one) =>
    [wordButton(photo, one.name, { box: one.box, tells: `${one.name}, ${percent(one.score)} sure`, line, extra: true })]));
}

function removeButton(one) {
  return button("Remove", () => {
    if ($("viewer").open) closeViewer();
    const before = [...entries];
    entries = entries.filter((other) => other !== one);
    render();
    takeBack(`${one.file.name} was removed`, before);
  }, "quiet");
}

function clear() {
  running?.control.abort();
  const before = entries;
  entries = [];
  render();
  takeBack(`${many(before.length, "photo")} cleared`, before);
  tell("Cleared");
  $("caption-files").focus();
}

function takeBack(text, before) {
  undoable(text, () => {
    entries = [...before, ...entries.filter((one) => !before.includes(one))];
    entries.filter((one) => one.state === "waiting" && !running).forEach((one) => { one.state = "stopped"; });
    render();
  }, () => before.filter((one) => !entries.includes(one)).forEach((one) => URL.revokeObjectURL(one.url)));
}
