// Results leave the page: as a file, or through the clipboard.
import { button as makeButton, el, tell } from "./dom.js";

function save(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = el("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
  tell(`${name} was downloaded`);
}

export const saveJson = (name, value) => save(name, "application/json", `${JSON.stringify(value, null, 1)}\n`);

/** A cell. Text that a spreadsheet would run as a formula, such as a file named =1+1.jpg, gets an apostrophe. */
function cell(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r\n]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csv = (rows) => `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;

/** Rows of cells; the first row names the columns. Spreadsheets find the encoding by the mark at the beginning. */
export const saveCsv = (name, rows) => save(name, "text/csv", `\uFEFF${csv(rows)}`);

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // without https, browsers have the old way only
    const area = el("textarea", { value: text, className: "unseen" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** A button that copies, and says so for a moment. */
export function copyButton(label, text, button = makeButton(label)) {
  button.addEventListener("click", async () => {
    await copy(text());
    button.textContent = "Copied";
    tell("Copied");
    setTimeout(() => { button.textContent = label; }, 1500);
  });
  return button;
}
