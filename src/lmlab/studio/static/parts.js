// Parts of views: marks that can be focused, tables, coloured texts, legends and bars.

import { h, s, cut, visible, wide } from "./dom.js";
import { inkOn, scale, diverging } from "./colours.js";

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

/** The legend of a colour scale: samples with numbers. */
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
      stops.map((each, index) => {
        const part = share(each);
        return [
          s("rect", {
            x: 70 + index * w,
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
              x: 70 + index * w + w / 2 - 1,
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
