// The server, asked politely: it says when it is busy, and then it is asked again.
import { $ } from "./dom.js";

const TRIES = 30;
const kept = (value) => {
  try {
    if (value !== undefined) sessionStorage.setItem("token", value);
    return sessionStorage.getItem("token") ?? "";
  } catch { return ""; }
};
const given = new URLSearchParams(location.search).get("token");
if (given) { // as the terminal prints the address: it goes no further, not into bookmarks either
  kept(given);
  history.replaceState(null, "", location.pathname + location.hash);
}
let asking = null; // one dialog for all requests that need a token

export class Refused extends Error {
  constructor(told, status) {
    super(told.error ?? `the server answered ${status}`);
    this.fix = told.fix;
    this.status = status;
  }
}

function token() {
  asking ??= new Promise((resolve) => {
    const dialog = $("token");
    dialog.addEventListener("close", () => { kept($("token-value").value.trim()); asking = null; resolve(); }, { once: true });
    dialog.showModal();
  });
  return asking;
}

async function ask(path, options = {}, tries = TRIES) {
  const headers = { ...options.headers };
  if (kept()) headers.Authorization = `Bearer ${kept()}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch {
    throw new Refused({ error: "the server does not answer", fix: "check that it is running" }, 0);
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && tries > 0) {
    await token();
    return ask(path, options, tries - 10);
  }
  if (answer.status === 503 && tries > 0) {
    await new Promise((resolve) => setTimeout(resolve, 1000 * (Number(answer.headers.get("Retry-After")) || 1)));
    return ask(path, options, tries - 1);
  }
  throw new Refused(await answer.json().catch(() => ({})), answer.status);
}

export const health = async () => (await ask("/v1/health")).json();

/** Send fields; files may be given with names. */
export async function post(path, fields) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one instanceof Blob) form.append(name, one, one.name || "photo");
      else if (one !== undefined && one !== "") form.append(name, String(one));
    }
  }
  return (await ask(path, { method: "POST", body: form })).json();
}

/** An address of a photo of the index; it is fetched here, because a token goes with it. */
export async function picture(id, side) {
  return URL.createObjectURL(await (await ask(`/v1/photos/${id}?side=${side}`)).blob());
}
