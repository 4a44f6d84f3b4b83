// Small words for making and telling.

/** An element; text is never read as HTML. */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export const $ = (id) => document.getElementById(id);
export const button = (label, onclick = () => {}, className = "") => el("button", { type: "button", className, onclick }, label);

/** A text that the browser keeps in one of its storages, set where a value is given; null where it may not keep any. */
export function stored(storage, name, value) {
  try {
    if (value !== undefined) globalThis[storage].setItem(name, value);
    return globalThis[storage].getItem(name);
  } catch { return null; }
}

/** Said by screen readers, seen by nobody. */
export function tell(text) {
  $("status").textContent = text;
}

/** Shown under the form of a panel until the next thing works, and brought into sight. */
export function notice(panel, error) {
  const box = $(`${panel}-notice`);
  box.hidden = !error;
  box.textContent = error ? sentence(error) : "";
  if (error) box.scrollIntoView({ block: "nearest" });
}

const FIELD = /^(text|without|sentence|captions|must_include|length|beam)(\.\d+)?: /;

/** An error as people read it: without the name of the API's field, which they have not seen. */
export function sentence(error) {
  const plain = (words) => words.replace(FIELD, "").replaceAll("`must_include`", "the words that every caption must have");
  const text = capital(plain(error.message ?? String(error)));
  const fix = error.fix && !error.fix.startsWith("`/docs`") ? ` ${capital(plain(error.fix))}.` : "";
  return `${text.replace(/\.$/, "")}.${fix}`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A caption as alt text: a sentence, with capital and full stop. */
export function asSentence(words) {
  const text = capital(words.trim());
  return !text || /[.!?…]["')]?$/.test(text) ? text : `${text}.`;
}

export const many = (count, one, more = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;
export const percent = (share) => `${Math.round(100 * share)} %`;

/** Work on items, a few at a time, in order. */
export async function each(items, width, work) {
  const coming = items[Symbol.iterator]();
  const lane = async () => { for (const item of coming) await work(item); };
  await Promise.all(Array.from({ length: width }, lane));
}

/** Whether a file is a picture; of some kinds, browsers only know the name. */
export const isPicture = (file) => file.type.startsWith("image/") || /\.(heic|heif|avif|tiff?)$/i.test(file.name);
