// The note of a run: saved when the field is left, and a second after the last key.

import { h } from "./dom.js";
import { post } from "./api.js";

const WAIT = 1000;

/** A field for the note of a run; `saved` is called with the note after it was saved. */
export const noteField = (run, note, { saved, fail }) => {
  const area = h("textarea", { name: "note", rows: 2, maxlength: 4000, "aria-label": `Note about ${run}` }),
    said = h("small", { "aria-live": "polite" });
  area.value = note;
  let before = note,
    timer,
    saving = Promise.resolve();
  const save = () => {
    clearTimeout(timer);
    saving = saving.then(async () => {
      const now = area.value;
      if (now.trimEnd() === before.trimEnd()) return;
      try {
        before = (await post("note", { run, note: now, before })).note;
        said.textContent = "saved";
        saved(before);
      } catch (error) {
        said.textContent = "not saved";
        fail(error);
      }
    });
  };
  area.addEventListener("input", () => {
    said.textContent = "…";
    clearTimeout(timer);
    timer = setTimeout(save, WAIT);
  });
  area.addEventListener("change", save);
  return h("label", { class: "field wide note" }, h("span", {}, "Note ", said), area);
};
