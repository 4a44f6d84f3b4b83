// One line at the bottom of the window, wherever people have scrolled to: how far work is, or what can be undone.
import { $, button, many } from "./dom.js";

const SHOWN = 15000; // milliseconds that an undo is offered
let timer = null;

const show = (text, ...actions) => {
  clearTimeout(timer);
  $("foot-text").textContent = text;
  $("foot-actions").replaceChildren(...actions);
  $("foot").hidden = false;
};

function hideFoot() {
  clearTimeout(timer);
  $("foot").hidden = true;
}

/** Show the progress of work on photos; `cancel` stops it. */
export function progress(doing, cancel) {
  const began = performance.now();
  const bar = $("foot-progress");
  bar.hidden = false;
  show("", button("Cancel", cancel));
  const at = (done, total) => {
    const seconds = (performance.now() - began) / 1000;
    const left = Math.ceil((seconds * (total - done)) / done);
    bar.max = total;
    bar.value = done;
    $("foot-text").textContent = `${doing} ${done} of ${many(total, "photo")}${done && seconds > 1 ? `, about ${duration(left)} left` : ""}`;
  };
  return { at, end: () => { if (!bar.hidden) hideFoot(); bar.hidden = true; } }; // an undo may have taken its place
}

const duration = (seconds) => (seconds < 100 ? `${seconds} s` : `${Math.round(seconds / 60)} min`);

/** Say what was done, and offer to undo it for a while; `forget` is called when that is over. */
export function undoable(text, undo, forget = () => {}) {
  $("foot-progress").hidden = true;
  show(text, button("Undo", () => { hideFoot(); undo(); }), button("Dismiss", () => { hideFoot(); forget(); }, "quiet"));
  timer = setTimeout(() => { hideFoot(); forget(); }, SHOWN);
}
