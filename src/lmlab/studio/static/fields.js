// Form fields that are bound to the state of a page, and the choice of runs.

import { h } from "./dom.js";
import { swatch } from "./parts.js";

/** A labelled input that is bound to one value of the page's state, in both directions. */
export const field = (
  page,
  label,
  input,
  {
    wide: whole = false,
    get = each => each.value,
    set = (each, value) => {
      if (each.value !== String(value)) each.value = value;
    },
    name,
    event = "input",
    wait = 0,
  },
) => {
  let timer;
  const take = () => page.pending.has(name) && page.set({});
  input.addEventListener(event, () => {
    clearTimeout(timer);
    if (!wait) return page.set({ [name]: get(input) });
    page.pending.set(name, () => get(input));
    timer = setTimeout(take, wait);
  });
  if (wait) input.addEventListener("change", take); // when the field is left, so that the address has what was typed
  page.follow(state => {
    if (page.pending?.has(name)) return;
    if (document.activeElement !== input || event === "change") set(input, state[name]);
  });
  return h("label", { class: whole ? "field wide" : "field" }, label, input);
};

export const textField = (page, label, name = "text", { rows = 3, wait = 60 } = {}) =>
  field(page, label, h("textarea", { rows, spellcheck: "false", autocomplete: "off", name, maxlength: 20000 }), {
    name,
    wide: true,
    wait,
  });

export const numberField = (page, label, name, { min, max, step = 1 }) =>
  field(page, label, h("input", { type: "number", min, max, step, name }), {
    name,
    event: "change",
    get: each => {
      const given = each.value.trim() === "" ? NaN : Number(each.value);
      return Number.isFinite(given) ? Math.min(max, Math.max(min, given)) : page.state[name];
    },
  });

/** A slider that shows its number. */
export const slider = (page, label, name, { min, max, step }) => {
  const shown = h("output");
  const input = h("input", { type: "range", min, max, step, name });
  page.follow(state => {
    shown.textContent = ` ${state[name]}`;
  });
  return field(page, h("span", {}, label, shown), input, { name, get: each => Number(each.value) });
};

export const choice = (page, label, name, options, { number = false } = {}) => {
  const input = h("select", { name });
  const fill = list =>
    input.replaceChildren(
      ...list.map(each =>
        h("option", { value: Array.isArray(each) ? each[0] : each }, Array.isArray(each) ? each[1] : each),
      ),
    );
  fill(options);
  const element = field(page, label, input, {
    name,
    event: "change",
    get: each => (number ? Number(each.value) : each.value),
  });
  element.options = list => {
    const now = page.state[name];
    fill(list);
    input.value = String(now);
  };
  return element;
};

export const tick = (page, label, name) => {
  const input = h("input", { type: "checkbox", name });
  input.addEventListener("change", () => page.set({ [name]: input.checked }));
  page.follow(state => {
    input.checked = state[name];
  });
  return h("div", { class: "choices" }, h("label", {}, input, label));
};

/** A choice among runs: one, or several, whose order gives their colours. */
export class RunPicker extends HTMLElement {
  set(page, { name = "run", several = true, fits, none }) {
    const draw = () => {
      const runs = page.runs.filter(each => fits(each) && each.weights),
        chosen = [page.state[name]].flat();
      if (!runs.length) return this.replaceChildren(h("p", { class: "empty" }, none));
      this.replaceChildren(
        h(
          "fieldset",
          {},
          h("legend", {}, several ? "Runs, side by side" : "Run"),
          h(
            "div",
            { class: "choices" },
            runs.map(run => {
              const index = chosen.indexOf(run.name);
              const input = h("input", {
                type: several ? "checkbox" : "radio",
                name: `picked-${name}`,
                value: run.name,
                checked: index >= 0,
                onchange: event => {
                  const now = [page.state[name]].flat().filter(each => page.runs.some(other => other.name === each));
                  const next = !several
                    ? run.name
                    : event.target.checked
                      ? [...now.filter(each => each !== run.name), run.name].slice(-10)
                      : now.filter(each => each !== run.name);
                  page.set({ [name]: next });
                },
              });
              return h(
                "label",
                {},
                input,
                index >= 0 && swatch(run.name),
                run.name,
                h("small", {}, run.task?.replaceAll("_", " ") ?? run.kind),
              );
            }),
          ),
        ),
      );
      const held = this.contains(document.activeElement);
      if (held) this.querySelector("input")?.focus();
    };
    let before = "";
    page.follow(state => {
      const now = JSON.stringify([state[name], page.runs.map(run => [run.name, run.kind])]);
      if (now === before) return;
      before = now;
      const focused = document.activeElement?.value;
      draw();
      if (focused !== undefined)
        [...this.querySelectorAll("input")]
          .find(each => each.value === focused && this.ownerDocument.activeElement === document.body)
          ?.focus();
    });
    return this;
  }
}
customElements.define("run-picker", RunPicker);
export const runPicker = (page, settings) => h("run-picker", { class: "wide" }).set(page, settings);
