// Curves: lines against a logarithmic axis, with names at their ends, and a mark for every point.

import { s, cut, number, short } from "./dom.js";
import { colourOf, dashesOf, numberOf } from "./colours.js";
import { mark, shape } from "./parts.js";

const ticks = (low, high, most = 6) => {
  const rough = (high - low) / most,
    power = 10 ** Math.floor(Math.log10(rough)),
    step = [1, 2, 5, 10].map(each => each * power).find(each => each >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-12; value += step)
    found.push(Number(value.toPrecision(10)));
  return found;
};

const decades = (low, high) => {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const each of [1, 2, 5]) {
      const value = each * 10 ** power;
      if (value >= low && value <= high) found.push(value);
    }
  return found.length > 9 ? found.filter(each => String(each.toPrecision(1)).startsWith("1")) : found;
};

/** series: [{name, points: [{x, y, says}], dots?: [...], smooth?: [{x, y}]}] */
export const lineChart = (series, { width, xLabel, yLabel, height = 380 }) => {
  const left = 58,
    right = Math.min(170, Math.max(90, width * 0.2)),
    top = 12,
    bottom = 46;
  const all = series
    .flatMap(each => [...each.points, ...(each.dots ?? [])])
    .filter(point => point.x > 0 && Number.isFinite(point.y));
  if (!all.length) return null;
  const xs = all.map(point => point.x),
    ys = all.map(point => point.y);
  let low = Math.min(...xs),
    high = Math.max(...xs);
  if (high / low < 1.5) {
    low /= 1.6;
    high *= 1.6;
  }
  const bottomY = Math.min(...ys),
    topY = Math.max(...ys),
    spread = Math.max(topY - bottomY, 0.02 * Math.max(Math.abs(topY), 1e-9));
  const y0 = bottomY - 0.06 * spread,
    y1 = topY + 0.06 * spread;
  const X = x =>
    left + ((Math.log(Math.max(x, low)) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (width - left - right);
  const Y = y => top + ((y1 - y) / (y1 - y0)) * (height - top - bottom);
  const grid = [
    ticks(y0, y1).map(value => [
      s("line", { class: "grid", x1: left, x2: width - right, y1: Y(value), y2: Y(value) }),
      s("text", { class: "tick", x: left - 8, y: Y(value) + 4, "text-anchor": "end" }, String(value)),
    ]),
    decades(low, high).map(value => [
      s("line", { class: "grid", x1: X(value), x2: X(value), y1: top, y2: height - bottom }),
      s("text", { class: "tick", x: X(value), y: height - bottom + 17, "text-anchor": "middle" }, short(value)),
    ]),
    s("text", { class: "tick", x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle" }, xLabel),
    s(
      "text",
      {
        class: "tick",
        x: 13,
        y: (top + height - bottom) / 2,
        "text-anchor": "middle",
        transform: `rotate(-90 13 ${(top + height - bottom) / 2})`,
      },
      yLabel,
    ),
  ];
  const ends = [];
  const lines = series.map(each => {
    const colour = colourOf(each.name),
      points = each.points.filter(point => point.x > 0 && Number.isFinite(point.y)),
      dots = (each.dots ?? points).filter(point => point.x > 0 && Number.isFinite(point.y));
    const last = dots.at(-1) ?? points.at(-1);
    if (last) ends.push({ y: Y(last.y), at: Y(last.y), each, colour });
    return [
      points.length > 1 &&
        s("polyline", {
          points: points.map(point => `${X(point.x).toFixed(1)},${Y(point.y).toFixed(1)}`).join(" "),
          fill: "none",
          "stroke-width": each.dots ? 1.2 : 2.2,
          opacity: each.smooth ? 0.25 : each.dots ? 0.55 : 1,
          "stroke-linejoin": "round",
          style: { stroke: colour },
        }),
      each.smooth?.length > 1 &&
        s("polyline", {
          class: "smooth",
          points: each.smooth.map(point => `${X(point.x).toFixed(1)},${Y(point.y).toFixed(1)}`).join(" "),
          fill: "none",
          "stroke-width": 1.8,
          "stroke-linejoin": "round",
          style: { stroke: colour },
        }),
      each.dots &&
        dots.length > 1 &&
        s("polyline", {
          points: dots.map(point => `${X(point.x).toFixed(1)},${Y(point.y).toFixed(1)}`).join(" "),
          fill: "none",
          "stroke-width": 2.4,
          "stroke-dasharray": dashesOf(numberOf(each.name)),
          style: { stroke: colour },
        }),
      dots.map(point =>
        mark(point.says, [shape(numberOf(each.name), X(point.x), Y(point.y), dots.length > 60 ? 2.2 : 4)], {
          box: [X(point.x) - 7, Y(point.y) - 7, 14, 14],
        }),
      ),
    ];
  });
  ends.sort((a, b) => a.y - b.y);
  for (let i = 1; i < ends.length; i++) ends[i].at = Math.max(ends[i].at, ends[i - 1].at + 16);
  const over = ends.length ? ends.at(-1).at - (height - bottom) : 0;
  if (over > 0) for (const end of ends) end.at -= over;
  const letters = Math.floor((right - 30) / 7.2);
  const names = ends.map(({ y, at, each, colour }) => [
    s("path", { d: `M${width - right + 2},${y}L${width - right + 12},${at}`, fill: "none", style: { stroke: colour } }),
    shape(numberOf(each.name), width - right + 18, at, 4),
    s(
      "text",
      { x: width - right + 26, y: at + 4, style: { "font-weight": 600, "font-size": "12.5px" } },
      cut(each.name, letters),
      s("title", {}, each.name),
    ),
  ]);
  return s(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${yLabel} against ${xLabel}` },
    grid,
    lines,
    names,
  );
};

export const pointSays = (name, what, point, unit, xLabel) =>
  `${name}, ${what}: ${number(point.y)} ${unit} at ${short(point.x)} ${xLabel}`;

/** A curve smoothed by an exponential moving average, without the bias of its start (as in Adam); 0 changes nothing. */
export const smooth = (points, weight) => {
  let sum = 0,
    norm = 0;
  return points.map(point => {
    sum = weight * sum + (1 - weight) * point.y;
    norm = weight * norm + (1 - weight);
    return { x: point.x, y: sum / norm };
  });
};
