// Parts of views: marks that can be focused, tables, coloured texts, legends and bars.

import { h, s, cut, visible, wide } from "./dom.js";
import { diverging, inkOn, numberOf, runColour, scale } from "./colours.js";

/** A mark of a picture; its text is shown when it is pointed at or focused. */
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

/** Corners of the marks of lines, by the number of their colour, as in pages/figures/palette.py; none is a circle. */
const CORNERS = [
  [],
  [-1, -1, 1, -1, 1, 1, -1, 1],
  [0, -1.3, 1.3, 1, -1.3, 1],
  [0, -1.4, 1.4, 0, 0, 1.4, -1.4, 0],
  [
    ...[-0.4, -1.3, 0.4, -1.3, 0.4, -0.4, 1.3, -0.4, 1.3, 0.4, 0.4, 0.4],
    ...[0.4, 1.3, -0.4, 1.3, -0.4, 0.4, -1.3, 0.4, -1.3, -0.4, -0.4, -0.4],
  ],
];

/** The mark that goes with the n-th colour: colour and shape together tell lines apart, also in grey. */
export const shape = (number, x, y, radius, more = {}) => {
  const corners = CORNERS[number % CORNERS.length],
    style = { fill: runColour(number) };
  if (!corners.length) return s("circle", { cx: x, cy: y, r: radius, style, ...more });
  const points = corners.map((each, index) => (each * radius + (index % 2 ? y : x)).toFixed(1)).join(" ");
  return s("polygon", { points, style, ...more });
};

/** The mark of a run beside its name. */
export const swatch = name =>
  s(
    "svg",
    { class: "swatch", width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true", "data-small": true },
    shape(numberOf(name), 7, 7, 5),
  );

/** A heading with the name of a run and its mark. */
export const runHeading = (name, ...more) => h("h2", {}, swatch(name), " ", name, ...more);

/** A number with its noun: "1 token", "2 tokens". */
export const count = (number, noun, plural = `${noun}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;

/** A table; numbers are aligned to the right. */
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
          head.map((each, index) =>
            h("th", { scope: "col", class: typeof rows[0]?.[index] === "number" ? "n" : null }, each),
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
                cell instanceof Node ? cell : typeof cell === "number" ? format(cell) : (cell ?? "–"),
              ),
            ),
          ),
        ),
      ),
    ),
  );
const format = value =>
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
                fill: inkOn(each.share, each.sign),
                opacity: Math.min(1, 0.2 + each.share),
              })
            : null,
          s(
            "text",
            {
              class: "mono",
              x: x + 2,
              y: y + size + 4,
              style: { fill: inkOn(each.share, each.sign), "font-size": `${size}px` },
            },
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

/** One block for each item, side by side where they fit: `draw(item, width)` returns what is in it. */
export const sideBySide = (items, width, draw, { least = 420, gap = 24 } = {}) => {
  const columns = Math.max(1, Math.min(items.length, Math.floor((width + gap) / (least + gap)))),
    each = Math.floor((width - gap * (columns - 1)) / columns);
  return h(
    "div",
    { class: "columns", style: { "--columns": columns } },
    items.map(item => h("div", {}, draw(item, each))),
  );
};

/** The legend of a colour scale: samples with numbers. */
export const legend = (label, stops, share, { signed = false } = {}) => {
  const w = stops.length > 5 ? 42 : 50,
    left = Math.ceil(wide(label, "11.5px system-ui, sans-serif")) + 12,
    width = left + w * stops.length;
  return h(
    "div",
    { class: "scroll", "data-small": true },
    s(
      "svg",
      {
        width,
        height: 24,
        viewBox: `0 0 ${width} 24`,
        role: "img",
        "aria-label": `${label}: ${stops.join(", ")}`,
      },
      s("text", { class: "tick", x: 0, y: 16 }, label),
      stops.map((each, index) => {
        const part = share(each);
        return [
          s("rect", {
            x: left + index * w,
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
              x: left + index * w + w / 2 - 1,
              y: 16,
              "text-anchor": "middle",
              style: { fill: inkOn(part, signed && part < 0 ? -1 : 1) },
            },
            String(each).replace("-", "−"),
          ),
        ];
      }),
    ),
  );
};

/** Bars with names: {piece, share, kept?, says, pick?}, as wide as the column; `whole` is the value of a full bar.
 * `names` are those of all bars that begin at the same x. */
export const bars = (rows, colour, width, whole, names = rows.map(row => row.piece)) => {
  width = Math.min(width, 640);
  const high = 26,
    letters = Math.min(150, Math.max(70, ...names.map(name => wide(cut(visible(name), 16)) + 10))),
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
    rows.map((row, index) => {
      const y = index * high,
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
