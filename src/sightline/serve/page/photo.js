// A photo and its words: lighting a word lights its box and what the model looked at; lighting a box lights its words.
import { asSentence, el, percent, stored } from "./dom.js";

// Viridis, eight of its colours: equal steps look equal, also to the colour-blind and in print. style.css has the legend.
const VIRIDIS = ["440154", "46327e", "365c8d", "277f8e", "1fa187", "4ac16d", "a0da39", "fde725"]
  .map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
const same = (one, other) => one.every((value, i) => Math.abs(value - other[i]) < 0.5);
const remember = (value) => stored("localStorage", "heat", value) !== "off";

/** A photo with a box for each different place; `size` is that of the boxes' pixels. */
export function photoView(src, alt, size = [1, 1], lazy = false) {
  const image = el("img", { alt, loading: lazy ? "lazy" : "eager", decoding: "async", src });
  const heat = el("canvas", { "aria-hidden": "true" });
  const view = el("figure", { className: "photo" }, image, heat);
  if (size[0] > 1) view.style.setProperty("--ratio", size[0] / size[1]); // a small photo may be shown larger than it is
  const places = []; // {box, mark, words}
  image.addEventListener("error", () => {
    view.classList.add("blank");
    view.replaceChildren(el("span", {}, "This browser cannot show the file."));
  });

  function place(box, extra = false) {
    const known = places.find((one) => same(one.box, box));
    if (known) return known;
    const mark = el("span", { className: extra ? "box extra" : "box", "aria-hidden": "true" });
    const [x1, y1, x2, y2] = box;
    const [width, height] = size;
    const share = (value, side) => `${(100 * value) / side}%`;
    Object.assign(mark.style, { left: share(x1, width), top: share(y1, height), width: share(x2 - x1, width), height: share(y2 - y1, height) });
    const made = { box, mark, words: [] };
    const on = () => light([made], null);
    mark.addEventListener("pointerenter", (event) => { if (event.pointerType !== "touch") on(); });
    mark.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") light([]); });
    mark.addEventListener("click", on); // a tap stays until the next one
    places.push(made);
    // Small boxes on top, so that each can be reached.
    const area = (one) => (one.box[2] - one.box[0]) * (one.box[3] - one.box[1]);
    view.append(...[...places].sort((a, b) => area(b) - area(a)).map((one) => one.mark));
    return made;
  }

  function light(chosen, word, attention) {
    view.classList.toggle("busy", chosen.length > 0);
    for (const one of places) one.mark.classList.toggle("lit", chosen.includes(one));
    const lit = new Set(word == null ? chosen.flatMap((one) => one.words) : [word]);
    for (const own of places.flatMap((one) => one.words)) own.classList.toggle("lit", chosen.length > 0 && lit.has(own));
    const looked = Boolean(attention) && remember();
    heat.classList.toggle("lit", looked);
    if (looked) paint(heat, attention);
  }

  view.addEventListener("click", (event) => { if (!event.target.matches(".box")) light([]); });
  return { view, place, light };
}

/** Rows of shares from 0 to 1 as colours; the browser blends between the cells. */
function paint(canvas, rows) {
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  const brush = canvas.getContext("2d");
  const picture = brush.createImageData(canvas.width, canvas.height);
  rows.flat().forEach((share, i) => {
    const at = Math.min(share, 0.9999) * (VIRIDIS.length - 1);
    const [low, high] = [VIRIDIS[Math.floor(at)], VIRIDIS[Math.floor(at) + 1]];
    picture.data.set([...low.map((value, k) => value + (high[k] - value) * (at % 1)), 255], 4 * i);
  });
  brush.putImageData(picture, 0, 0);
}

/** What the colours mean, and a switch for them. */
export function heatLegend() {
  const box = el("input", { type: "checkbox", checked: remember(), onchange: (event) => remember(event.target.checked ? "on" : "off") });
  return el("div", { className: "legend" },
    el("label", { className: "check" }, box, "Show where the model looked"),
    el("span", { className: "scale", role: "img", "aria-label": "Colours: dark violet where it looked least, yellow where it looked most" },
      "least", el("i"), "most"));
}

/** A word that lights its places while it is pointed at or has the focus. `tells` is written into `line` meanwhile. */
export function wordButton(photo, text, { box, boxes = [box], attention, tells, line, flag = false, extra = false }) {
  const button = el("button", { type: "button", className: flag ? "flag" : "" }, text);
  const here = boxes.map((one) => photo.place(one, extra));
  here.forEach((one) => one.words.push(button));
  button.setAttribute("aria-description", tells);
  const on = () => { photo.light(here, button, attention); line.textContent = tells; };
  const off = () => { photo.light([]); line.textContent = ""; };
  for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, on); // a click is a tap on a phone
  for (const event of ["pointerleave", "blur"]) button.addEventListener(event, off);
  return button;
}

/** One stop for the tab key; arrows go on from word to word, Escape puts the light out. */
export function roving(group) {
  const words = [...group.querySelectorAll("button")];
  words.forEach((word, i) => { word.tabIndex = i === 0 ? 0 : -1; });
  group.addEventListener("keydown", (event) => {
    const at = words.indexOf(document.activeElement);
    if (event.key === "Escape" && at >= 0 && words[at].matches(".lit")) {
      event.preventDefault(); // and does not close what the photo is shown in
      return words[at].blur();
    }
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: words.length - 1 }[event.key];
    if (at < 0 || to === undefined) return undefined;
    event.preventDefault();
    event.stopPropagation();
    const next = words[(to + words.length) % words.length];
    words.forEach((word) => { word.tabIndex = word === next ? 0 : -1; });
    return next.focus();
  });
  return group;
}

/** Words with commas between them; each is a list of its button and what stands behind it. */
export function wordList(label, start, words) {
  const list = el("p", { className: "seen", role: "group", "aria-label": label }, start);
  words.forEach((word, i) => list.append(...(i ? [", "] : []), ...word));
  return roving(list);
}

/** A sentence as it was written; those of its words that have a place are buttons. */
export function sentenceOf(photo, words, line, text = asSentence(words.map((one) => one.word).join(" "))) {
  const said = el("p", { className: "said", role: "group", "aria-label": text });
  const low = text.toLowerCase();
  let at = 0;
  for (const one of words) {
    const found = low.indexOf(one.word.toLowerCase(), at);
    if (found < 0) continue; // spelled otherwise, such as a bracket
    const shown = text.slice(found, found + one.word.length);
    const sure = one.score == null ? "" : `, ${percent(one.score)} sure of the place`;
    said.append(text.slice(at, found), one.box ? wordButton(photo, shown, { ...one, tells: `${one.word}${sure}`, line }) : shown);
    at = found + shown.length;
  }
  const stop = text.slice(at);
  if (said.lastChild?.nodeName === "BUTTON") said.append(el("span", { className: "unbroken" }, said.lastChild, stop));
  else said.append(stop);
  return roving(said);
}
