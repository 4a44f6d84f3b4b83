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

/** Said by screen readers, seen by nobody. */
export function tell(sentence) {
  $("status").textContent = sentence;
}

/** Shown to everybody until the next thing works. */
export function problem(error) {
  const box = $("problem");
  box.hidden = !error;
  box.textContent = error ? sentence(error) : "";
}

export function sentence(error) {
  const told = error.message ?? String(error);
  const text = told.charAt(0).toUpperCase() + told.slice(1);
  return error.fix ? `${text}. To fix: ${error.fix}.` : `${text}.`;
}

export const many = (count, one, more = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;
export const percent = (share) => `${Math.round(100 * share)} %`;

/** Work on items, a few at a time, in order. */
export async function each(items, width, work) {
  const coming = items[Symbol.iterator]();
  const lane = async () => { for (const item of coming) await work(item); };
  await Promise.all(Array.from({ length: width }, lane));
}
