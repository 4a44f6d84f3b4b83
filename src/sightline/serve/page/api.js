// The server, asked politely: it says when it is busy, and then it is asked again.
import { $, stored } from "./dom.js";

const TRIES = 30;
const LATER = new Set([0, 408, 500, 503]); // what may go well another time
const kept = (value) => stored("sessionStorage", "token", value) ?? "";
const address = new URLSearchParams(location.search);
if (address.has("token")) { // as the terminal prints the address: it goes no further, not into bookmarks either
  kept(address.get("token"));
  address.delete("token");
  history.replaceState(null, "", `${location.pathname}${String(address) && `?${address}`}${location.hash}`);
}
let asking = null; // one dialog for all requests that need a token

class Refused extends Error {
  constructor(answer, status) {
    super(answer.error ?? `the server answered ${status}`);
    this.fix = answer.fix;
    this.status = status;
    this.again = LATER.has(status);
  }
}

function token() {
  asking ??= new Promise((resolve) => {
    const dialog = $("token");
    $("token-wrong").hidden = !kept(); // one was sent, and was not right
    $("token-value").value = "";
    dialog.addEventListener("close", () => { kept($("token-value").value.trim()); asking = null; resolve(); }, { once: true });
    dialog.showModal();
  });
  return asking;
}

const pause = (seconds, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, 1000 * seconds);
  signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); });
});

async function ask(path, options = {}, tries = TRIES) {
  const headers = { ...options.headers };
  const sent = kept();
  if (sent) headers.Authorization = `Bearer ${sent}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Refused({ error: "the server does not answer", fix: "check that it is running" }, 0);
  }
  if (answer.ok) return answer;
  if (answer.status === 401) {
    if (kept() === sent) await token(); // else another request has got a new one meanwhile
    return ask(path, options, tries);
  }
  if (answer.status === 503 && tries > 0) {
    await pause(Number(answer.headers.get("Retry-After")) || 1, options.signal);
    return ask(path, options, tries - 1);
  }
  throw new Refused(await answer.json().catch(() => ({})), answer.status);
}

export const health = async () => (await ask("/v1/health")).json();

/** Send fields; files may be given with names. Aborting the signal lets the server drop the work. */
export async function post(path, fields, signal) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one instanceof Blob) form.append(name, one, one.name || "photo");
      else if (one !== undefined && one !== "") form.append(name, String(one));
    }
  }
  return (await ask(path, { method: "POST", body: form, signal })).json();
}

/** Groups of at most `most` files and so many bytes, a request each, taken from a queue that may grow meanwhile. The
 * first can be `alone`, so that something is seen soon; `file` gives the file of what is queued. */
export function* requests(queue, { most, bytes, alone, file = (one) => one }) {
  for (let count = alone ? 1 : most; queue.length; count = most) {
    const group = [];
    let room = bytes;
    while (queue.length && group.length < count && (!group.length || file(queue[0]).size <= room)) {
      room -= file(queue[0]).size;
      group.push(queue.shift());
    }
    yield group;
  }
}

/** An address of a photo of the index; it is fetched here, because a token goes with it. */
export async function picture(id, side, signal) {
  return URL.createObjectURL(await (await ask(`/v1/photos/${id}?side=${side}`, { signal })).blob());
}
