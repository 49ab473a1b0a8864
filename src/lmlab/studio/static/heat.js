// A matrix of weights from 0 to 1 with names on both sides: alignments, and small heads of attention.

import { s, cut, number, visible, wide } from "./dom.js";
import { diverging, scale } from "./colours.js";
import { mark } from "./parts.js";

/**
 * `rows` and `columns` are names; `weights[row][column]`; `share` maps a weight to the strength of its colour.
 * `says(row, column, weight)` is the text of a cell.
 */
export const heatMap = ({
  rows,
  columns,
  weights,
  says,
  cell = 24,
  share = value => value,
  signed = false,
  name = "Matrix",
  pick,
}) => {
  const label = each => cut(visible(each), 16);
  const left = 12 + Math.max(...rows.map(each => wide(label(each))), 8),
    reach = Math.max(...columns.map(each => wide(label(each))), 8),
    top = 10 + reach * 0.79 + 8;
  const width = left + cell * columns.length + Math.max(12, wide(label(columns.at(-1) ?? "")) * 0.62 + 6),
    height = top + cell * rows.length + 6;
  return s(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": name },
    columns.map((each, index) => {
      const x = left + cell * (index + 0.5),
        y = top - 6;
      return s(
        "text",
        { class: "mono", x, y, transform: `rotate(-52 ${x} ${y})`, style: { "font-size": "13px" } },
        label(each),
      );
    }),
    rows.map((each, row) => [
      s(
        "text",
        {
          class: "mono",
          x: left - 7,
          y: top + cell * (row + 0.5) + 4.5,
          "text-anchor": "end",
          style: { "font-size": "13px" },
        },
        label(each),
      ),
      columns.map((other, column) => {
        const value = weights[row][column],
          x = left + cell * column,
          y = top + cell * row;
        return mark(
          says ? says(row, column, value) : `${visible(each)} to ${visible(other)}: ${number(value)}`,
          [
            s("rect", {
              x,
              y,
              width: cell - 1,
              height: cell - 1,
              rx: 2,
              fill: (signed ? diverging : scale)(share(value)),
            }),
          ],
          { box: [x, y, cell - 1, cell - 1], pick: pick?.(row, column) },
        );
      }),
    ]),
  );
};
