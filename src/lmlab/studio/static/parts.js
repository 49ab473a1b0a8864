// Parts that views share: fields bound to the state, pictures with marks that can be focused, and tables.

import { h, s, cut, visible, wide } from "./dom.js";
import { inkOn, runColour, scale, diverging } from "./colours.js";

/** A labelled field of a page; `make` gives the input, and the state moves it. */
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
  input.addEventListener(event, () => {
    clearTimeout(timer);
    const tell = () => page.set({ [name]: get(input) });
    wait ? (timer = setTimeout(tell, wait)) : tell();
  });
  page.follow(state => {
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
    get: each => Math.min(max, Math.max(min, Number(each.value) || min)),
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

/** A choice among runs: several (their places are their colours), or one. */
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
              const place = chosen.indexOf(run.name);
              const input = h("input", {
                type: several ? "checkbox" : "radio",
                name: `picked-${name}`,
                value: run.name,
                checked: place >= 0,
                onchange: event => {
                  const now = [page.state[name]].flat().filter(each => page.runs.some(other => other.name === each));
                  const next = !several
                    ? run.name
                    : event.target.checked
                      ? [...now.filter(each => each !== run.name), run.name].slice(-8)
                      : now.filter(each => each !== run.name);
                  page.set({ [name]: next });
                },
              });
              return h(
                "label",
                {},
                input,
                several && place >= 0 && h("span", { class: "swatch", style: { "--c": runColour(place) } }),
                run.name,
                h("small", {}, run.task ?? run.kind),
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

/** A mark of a picture: its words are read where it is pointed at or focused. */
export const mark = (says, children, { pick, box, ...more } = {}) =>
  s(
    "g",
    {
      class: `mark ${more.class ?? ""}`,
      tabindex: -1,
      role: pick !== undefined ? "button" : "img",
      "aria-label": says,
      "data-pick": pick,
      ...more.data,
    },
    children,
    box && s("rect", { class: "ring", x: box[0], y: box[1], width: box[2], height: box[3], rx: 4 }),
  );

/** A table of numbers: cells that are numbers go to the right. */
export const table = (caption, head, rows) =>
  h(
    "div",
    { class: "scroll" },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map((each, place) =>
            h("th", { scope: "col", class: typeof rows[0]?.[place] === "number" ? "n" : null }, each),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map(row =>
          h(
            "tr",
            {},
            row.map(cell =>
              h(
                "td",
                { class: typeof cell === "number" ? "n" : "text" },
                cell instanceof Node ? cell : typeof cell === "number" ? tell(cell) : (cell ?? "–"),
              ),
            ),
          ),
        ),
      ),
    ),
  );
const tell = value =>
  Number.isInteger(value)
    ? value.toLocaleString("en")
    : (Math.abs(value) >= 0.001 ? value.toFixed(4) : value.toPrecision(3)).replace("-", "−");

/** A text in coloured pieces, wrapped to a width; each piece has {piece, share, says, sign?, pick?}. */
export const colouredText = (pieces, width, { size = 14 } = {}) => {
  const font = `${size}px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace`,
    high = size + 12,
    gap = 2;
  let x = 0,
    y = 0;
  const marks = [];
  for (const each of pieces) {
    const shown = visible(each.piece),
      w = Math.max(8, wide(shown, font) + 4);
    if (x && x + w > width) {
      x = 0;
      y += high + 4;
    }
    const colour = each.sign === undefined ? scale(each.share) : diverging(each.sign * each.share);
    marks.push(
      mark(
        each.says,
        [
          s("rect", { x, y, width: w, height: high, rx: 3, fill: colour }),
          each.sign
            ? s("rect", {
                x: x + 1,
                y: each.sign > 0 ? y + high - 2.5 : y,
                width: w - 2,
                height: 2.5,
                fill: inkOn(each.share),
                opacity: Math.min(1, 0.2 + each.share),
              })
            : null,
          s(
            "text",
            { class: "mono", x: x + 2, y: y + size + 4, style: { fill: inkOn(each.share), "font-size": `${size}px` } },
            shown,
          ),
        ],
        { box: [x, y, w, high], pick: each.pick, class: each.class },
      ),
    );
    x += w + gap;
    if (each.piece.endsWith("\n") || each.piece.endsWith("\\n")) {
      x = 0;
      y += high + 4;
    }
  }
  return s(
    "svg",
    {
      width,
      height: y + high + 2,
      viewBox: `0 0 ${width} ${y + high + 2}`,
      role: "group",
      "aria-label": "Coloured text",
    },
    marks,
  );
};

/** The key of the colours: samples with numbers. */
export const legend = (label, stops, share, { signed = false } = {}) => {
  const w = 54;
  return h(
    "div",
    { class: "scroll", "data-small": true },
    s(
      "svg",
      {
        width: 70 + w * stops.length + 40,
        height: 24,
        viewBox: `0 0 ${70 + w * stops.length + 40} 24`,
        role: "img",
        "aria-label": `${label}: ${stops.join(", ")}`,
      },
      s("text", { class: "tick", x: 0, y: 16 }, label),
      stops.map((each, place) => {
        const part = share(each);
        return [
          s("rect", {
            x: 70 + place * w,
            y: 2,
            width: w - 2,
            height: 20,
            rx: 3,
            fill: signed ? diverging(part) : scale(part),
          }),
          s(
            "text",
            {
              class: "tick",
              x: 70 + place * w + w / 2 - 1,
              y: 16,
              "text-anchor": "middle",
              style: { fill: inkOn(Math.abs(part)) },
            },
            String(each).replace("-", "−"),
          ),
        ];
      }),
    ),
  );
};

/** Bars with names: {piece, share, kept?, says, pick?}, as wide as the column; `whole` is the value of a full bar. */
export const bars = (rows, colour, width, whole) => {
  width = Math.min(width, 640);
  const high = 26,
    letters = Math.min(150, Math.max(70, ...rows.map(row => wide(cut(visible(row.piece), 16)) + 10))),
    room = Math.max(40, width - letters - 62);
  const most = whole ?? Math.max(...rows.map(row => Math.max(row.share, row.kept ?? 0)), 1e-9);
  return s(
    "svg",
    {
      width,
      height: high * rows.length + 4,
      viewBox: `0 0 ${width} ${high * rows.length + 4}`,
      role: "group",
      "aria-label": "Bars",
    },
    rows.map((row, place) => {
      const y = place * high,
        long = value => Math.max(0.5, (value / most) * room);
      return mark(
        row.says,
        [
          s("rect", { x: 0, y, width, height: high - 2, fill: "transparent" }),
          s("text", { class: "mono", x: letters - 8, y: y + 17, "text-anchor": "end" }, cut(visible(row.piece), 16)),
          s("rect", {
            class: "bar",
            x: letters,
            y: y + 4,
            width: long(row.kept ?? row.share),
            height: high - 10,
            rx: 3,
            style: { fill: colour },
            opacity: row.kept === 0 ? 0.18 : 1,
          }),
          row.kept !== undefined &&
            Math.abs(row.kept - row.share) > 1e-6 &&
            s("rect", {
              x: letters,
              y: y + 4,
              width: long(row.share),
              height: high - 10,
              rx: 3,
              fill: "none",
              "stroke-width": 1.2,
              "stroke-dasharray": "3 2",
              style: { stroke: "var(--ink)" },
            }),
          s(
            "text",
            { class: "tick", x: letters + long(Math.max(row.share, row.kept ?? 0)) + 6, y: y + 17 },
            row.number,
          ),
        ],
        { box: [1, y + 1, width - 2, high - 4], pick: row.pick },
      );
    }),
  );
};
