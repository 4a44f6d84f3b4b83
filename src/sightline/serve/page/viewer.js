// One photo large, with what can be done with it; arrow keys and buttons go to the next one.
import { $ } from "./dom.js";

let current = { count: 0, at: 0, build: null, closed: null };

export function initViewer() {
  $("viewer-close").addEventListener("click", () => $("viewer").close());
  $("viewer-previous").addEventListener("click", () => step(-1));
  $("viewer-next").addEventListener("click", () => step(1));
  $("viewer").addEventListener("click", (event) => { if (event.target === $("viewer")) $("viewer").close(); }); // beside it
  $("viewer").addEventListener("keydown", (event) => {
    if (event.target.matches("input, textarea, select, [role=group] *")) return;
    if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "ArrowRight") step(1);
  });
  $("viewer").addEventListener("close", () => { $("viewer-body").replaceChildren(); current.closed?.(current.at); });
}

function step(by) {
  show((current.at + by + current.count) % current.count);
}

function show(at) {
  current.at = at;
  $("viewer-at").textContent = `${at + 1} of ${current.count}`;
  for (const name of ["viewer-previous", "viewer-next"]) $(name).disabled = current.count < 2;
  $("viewer-body").replaceChildren(current.build(at));
  $("viewer-body").scrollTop = 0;
}

/** Show the photo at a place; `build` makes what is shown, `closed` is told where people stopped. */
export function openViewer(count, at, build, closed) {
  current = { count, at, build, closed };
  show(at);
  $("viewer").showModal();
}

/** Show again what has changed. */
export const refreshViewer = () => { if ($("viewer").open) show(current.at); };
export const closeViewer = () => $("viewer").close();
