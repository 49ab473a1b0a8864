// Rows of numbers as coloured cells: one picture with a cursor, which the pointer and the arrow keys move.

import { s, cut, visible, wide } from "./dom.js";
import { diverging, inkOn, scale } from "./colours.js";

const FONT = "12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
/** Most numbers are small: colours go by the root, so that one in a hundred can be seen. */
const root = share => Math.sign(share) * Math.sqrt(Math.abs(share));

/** Where the cells of a grid are: a single row without names is folded into lines. */
export const layOut = ({ rows, columns, width, room }) => {
  const named = columns.length > 0;
  const left =
    rows.length > 1 ? Math.min(110, 10 + Math.max(...rows.map(row => wide(cut(visible(row), 13), FONT)))) : 0;
  const top = named
    ? Math.min(86, 14 + Math.max(...columns.map(each => wide(cut(visible(each), 12), FONT))) * 0.86)
    : 0;
  const space = Math.max(60, room - left - (named ? 34 : 0));
  const folds = rows.length === 1 && !named;
  const size = folds ? Math.max(13, Math.min(20, space / Math.min(width, 32))) : 0;
  const lone = folds ? Math.max(1, Math.min(width, Math.floor(space / size))) : width;
  const cell = folds ? size : Math.max(named ? 15 : 5, Math.min(named ? 34 : 18, space / width));
  const lines = folds ? Math.ceil(width / lone) : rows.length;
  const high = folds ? size : named ? Math.max(16, Math.min(24, cell)) : 14;
  return { left, top, cell, high, across: lone, lines, folds };
};

/** The row and column of a point of the picture, or nothing. */
export const cellAt = (place, rows, width, x, y) => {
  const column = Math.floor((x - place.left) / place.cell),
    line = Math.floor((y - place.top) / place.high);
  if (column < 0 || column >= place.across || line < 0 || line >= place.lines) return null;
  if (!place.folds) return { row: line, column };
  const at = line * place.across + column;
  return at < width ? { row: 0, column: at } : null;
};

/** Where the cursor goes from a cell by a key, or nothing. */
export const moved = (place, rows, width, { row, column }, key) => {
  const clamp = (value, most) => Math.max(0, Math.min(most, value));
  const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[key];
  if (key === "Home") return { row, column: 0 };
  if (key === "End") return { row, column: width - 1 };
  if (!step) return null;
  if (place.folds) return { row: 0, column: clamp(column + step[1] + step[0] * place.across, width - 1) };
  return { row: clamp(row + step[0], rows - 1), column: clamp(column + step[1], width - 1) };
};

/**
 * A picture of `values[row][column]` with names of `rows` and, or not, of `columns`. `says(row, column)` is the text of
 * a cell, `pick(row, column)` is called by a click or Enter; `chosen` {row, column} has a frame.
 */
export const cells = ({ rows, columns, values, kind, room, label, says, say, pick, chosen, most }) => {
  const width = values[0].length,
    place = layOut({ rows, columns, width, room });
  const { left, top, cell, high, across, folds } = place;
  const largest = kind === "share" ? 1 : (most ?? Math.max(...values.flat().map(Math.abs), 1e-12));
  const corner = (row, column) =>
    folds
      ? [left + (column % across) * cell, top + Math.floor(column / across) * high]
      : [left + column * cell, top + row * high];
  const gap = cell > 8 ? 1 : 0,
    dashes = { dark: "", light: "" };
  const rects = values.flatMap((row, r) =>
    row.map((value, c) => {
      const [x, y] = corner(r, c),
        share = root(Math.max(-1, Math.min(1, value / largest)));
      if (value < 0 && cell >= 9)
        dashes[inkOn(Math.abs(share)) === "#ffffff" ? "light" : "dark"] +=
          `M${x + cell * 0.3} ${y + high / 2}h${cell * 0.4 - gap}`;
      const fill = kind === "share" ? scale(share) : diverging(share);
      return s("rect", { x, y, width: cell - gap, height: high - 1, rx: gap ? 2 : 0, fill });
    }),
  );
  const total = [left + across * cell + (columns.length ? 34 : 2), top + place.lines * high + 2];
  const frame = s("rect", { class: "cursor", width: cell - gap, height: high - 1, rx: 2, visibility: "hidden" });
  const picture = s(
    "svg",
    {
      class: "cells",
      width: total[0],
      height: total[1],
      viewBox: `0 0 ${total[0]} ${total[1]}`,
      tabindex: 0,
      role: "application",
      "aria-label":
        `${label}: ${width} numbers${rows.length > 1 ? ` for each of ${rows.length}` : ""}; ` +
        "arrow keys go from one to the next, Enter opens it",
    },
    columns.map((each, c) => {
      const [x, y] = [left + c * cell + cell / 2 + 3, top - 5];
      return s("text", { class: "name", x, y, transform: `rotate(-56 ${x} ${y})` }, cut(visible(each), 12));
    }),
    rows.length > 1 &&
      rows.map((each, r) =>
        s(
          "text",
          { class: "name", x: left - 6, y: top + r * high + high / 2 + 4, "text-anchor": "end" },
          cut(visible(each), 13),
        ),
      ),
    rects,
    Object.entries(dashes).map(([ink, d]) => d && s("path", { class: `minus ${ink}`, d })),
    chosen && outline(corner(chosen.row, chosen.column), cell - gap, high - 1),
    frame,
  );
  let at = chosen ?? { row: 0, column: 0 };
  const show = found => {
    at = found;
    const [x, y] = corner(at.row, at.column);
    for (const [name, value] of Object.entries({ x, y, visibility: "visible" }))
      frame.setAttribute(name, String(value));
    say(says(at.row, at.column), picture, [x + cell / 2, y]);
  };
  const leave = () => {
    frame.setAttribute("visibility", "hidden");
    say(null);
  };
  const under = event => {
    const box = picture.getBoundingClientRect(),
      scaled = total[0] / box.width;
    return cellAt(place, rows.length, width, (event.clientX - box.left) * scaled, (event.clientY - box.top) * scaled);
  };
  picture.addEventListener("pointermove", event => {
    const found = under(event);
    if (found) show(found);
    else leave();
  });
  picture.addEventListener("pointerleave", leave);
  picture.addEventListener("focus", () => show(at));
  picture.addEventListener("blur", leave);
  picture.addEventListener("click", event => {
    const found = under(event);
    if (found) pick(found.row, found.column);
  });
  picture.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const found = moved(place, rows.length, width, at, event.key);
    if (found) show(found);
    else if (event.key === "Enter" || event.key === " ") pick(at.row, at.column);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return picture;
};

const outline = ([x, y], width, height) => s("rect", { class: "chosen", x, y, width, height, rx: 2 });
