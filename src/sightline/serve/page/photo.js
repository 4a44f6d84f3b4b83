// A photo and its words: lighting a word lights its box and what the model looked at; lighting a box lights its words.
import { el, percent } from "./dom.js";

const same = (one, other) => one.every((value, i) => Math.abs(value - other[i]) < 0.5);

/** A photo with a box for each different place; `size` is that of the boxes' pixels. */
export function photoView(src, alt, size) {
  const image = el("img", { src, alt });
  const heat = el("canvas", { "aria-hidden": "true" });
  const view = el("figure", { className: "photo" }, image, heat);
  const places = []; // {box, mark, words}
  image.addEventListener("error", () => {
    view.classList.add("blank");
    view.replaceChildren(el("span", { role: "img", "aria-label": alt }, "This browser cannot show the file; its caption is right all the same."));
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
    mark.addEventListener("pointerenter", () => light([made], null));
    mark.addEventListener("pointerleave", () => light([]));
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
    heat.classList.toggle("lit", Boolean(attention));
    if (attention) paint(heat, attention);
  }

  return { view, place, light };
}

/** Rows of shares from 0 to 1 as a veil that is clear where the model looked. */
function paint(canvas, rows) {
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  const brush = canvas.getContext("2d");
  rows.forEach((row, y) => row.forEach((share, x) => {
    brush.fillStyle = `rgb(95 211 187 / ${share * share})`;
    brush.fillRect(x, y, 1, 1);
  }));
}

/** A word that lights its places while it is pointed at or has the focus. `tells` is written into `line` meanwhile. */
export function wordButton(photo, text, { box, boxes = [box], attention, tells, line, flag = false, extra = false }) {
  const button = el("button", { type: "button", className: flag ? "flag" : "" }, text);
  const here = boxes.map((one) => photo.place(one, extra));
  here.forEach((one) => one.words.push(button));
  button.setAttribute("aria-description", tells);
  const on = () => { photo.light(here, button, attention); line.textContent = tells; };
  const off = () => { photo.light([]); line.textContent = ""; };
  for (const event of ["pointerenter", "focus"]) button.addEventListener(event, on);
  for (const event of ["pointerleave", "blur"]) button.addEventListener(event, off);
  button.addEventListener("click", on); // a tap on a phone
  return button;
}

/** One stop for the tab key; arrows go on from word to word, Escape puts the light out. */
export function roving(group) {
  const words = [...group.querySelectorAll("button")];
  words.forEach((word, i) => { word.tabIndex = i === 0 ? 0 : -1; });
  group.addEventListener("keydown", (event) => {
    const at = words.indexOf(document.activeElement);
    if (event.key === "Escape" && at >= 0) return words[at].blur();
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: words.length - 1 }[event.key];
    if (at < 0 || to === undefined) return undefined;
    event.preventDefault();
    const next = words[(to + words.length) % words.length];
    words.forEach((word) => { word.tabIndex = word === next ? 0 : -1; });
    return next.focus();
  });
  return group;
}

/** A sentence whose words with a place are buttons. */
export function sentenceOf(photo, words, line) {
  const said = el("p", { className: "said", role: "group", "aria-label": words.map((one) => one.word).join(" ") });
  words.forEach((one, i) => {
    if (i) said.append(" ");
    const sure = one.score == null ? "" : `, ${percent(one.score)} sure of the place`;
    said.append(one.box ? wordButton(photo, one.word, { ...one, tells: `${one.word}${sure}`, line }) : one.word);
  });
  return roving(said);
}
