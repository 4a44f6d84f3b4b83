// What can be asked about one photo besides its caption: other wordings, an own one, and where words are in it.
import { asSentence, button, el, percent, sentence, tell } from "./dom.js";
import { sentenceOf } from "./photo.js";

/** A form of one line that does something with what is typed; it says itself what went wrong. */
function lineForm(label, value, go, work) {
  const input = el("textarea", { rows: 1, value, maxLength: 1000 });
  const wrong = el("p", { className: "failed", role: "alert", hidden: true });
  const submit = el("button", { type: "submit", className: "main" }, go);
  const form = el("form", { className: "line-form" }, el("label", { className: "field" }, label, input), submit, wrong);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); }
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    wrong.hidden = true;
    if (!/[a-z]/i.test(input.value)) {
      wrong.textContent = "Type at least one word.";
      wrong.hidden = false;
      return;
    }
    submit.disabled = true;
    try {
      await work(input.value.trim());
    } catch (error) {
      wrong.textContent = sentence(error);
      wrong.hidden = false;
    }
    submit.disabled = false;
  });
  return { form, input };
}

/** One tool is open at a time, in a place under the actions. */
export function drawer() {
  const place = el("div", { className: "drawer", hidden: true });
  let opened = null;
  const tool = (label, make) => {
    const opener = button(label, () => {
      const closing = opened === opener;
      opened?.setAttribute("aria-expanded", "false");
      opened = closing ? null : opener;
      place.hidden = closing;
      if (closing) return place.replaceChildren();
      opener.setAttribute("aria-expanded", "true");
      return make(place);
    });
    opener.setAttribute("aria-expanded", "false");
    return opener;
  };
  return { place, tool };
}

/** Find typed words in the photo; `ask` gives what the server answers to a sentence. */
export function findWords(place, photo, ask) {
  const line = el("p", { className: "tell", "aria-hidden": "true" });
  const answer = el("div");
  const { form, input } = lineForm("Words to find in this photo", "", "Find", async (text) => {
    const { words } = await ask(text);
    const found = words.filter((one) => one.box);
    answer.replaceChildren(sentenceOf(photo, words, line), el("p", { className: "seen" }, found.length
      ? found.map((one) => `${one.word} ${percent(one.score)}`).join(", ") : "Nothing of it can be looked for. Name things."), line);
    if (found.length) photo.light(found.flatMap((one) => one.boxes).map((box) => photo.place(box)), null);
    tell(answer.innerText);
  });
  place.replaceChildren(form, answer);
  input.focus();
}

/** Edit the caption; `save` is given the new one. */
export function editCaption(place, text, save) {
  const { form, input } = lineForm("Caption", text, "Save", save);
  place.replaceChildren(form);
  input.rows = 2;
  input.focus();
}

/** Other captions of the photo, one of which can be taken. */
export async function otherWordings(place, ask, take) {
  place.replaceChildren(el("div", { className: "wait", role: "img", "aria-label": "Looking for other words" }, el("i"), el("i")));
  try {
    const others = await ask();
    if (!others.length) return place.replaceChildren(el("p", { className: "tell" }, "The model has no other words for it."));
    const list = el("ul", { className: "others", "aria-label": "Other wordings" },
      ...others.map((one) => el("li", {}, button(asSentence(one), () => take(asSentence(one)), "quiet"))));
    place.replaceChildren(list);
    return list.querySelector("button").focus();
  } catch (error) {
    return place.replaceChildren(el("p", { className: "failed", role: "alert" }, sentence(error)));
  }
}
