// Figures of the analyses (pages/figures.py) as SVG: one function for each kind, and a table of its numbers.

import { h, s, cut, number, percent, visible, wide } from "./dom.js";
import { dashesOf, runColour } from "./colours.js";
import { colouredText, mark, shape } from "./parts.js";
import { heatMap } from "./heat.js";

const format = (value, unit) =>
  unit?.endsWith("%") ? percent(value) : number(value, Number(/\.(\d)/.exec(unit ?? "")?.[1] ?? 3));

const heat = ({ rows, columns, values, most, unit, title }) => {
  const all = values.flat().filter(Number.isFinite),
    top = most ?? Math.max(...all.map(Math.abs), 1e-9),
    signed = all.some(value => value < 0);
  return h(
    "div",
    { class: "scroll" },
    heatMap({
      rows,
      columns,
      weights: values,
      name: title,
      signed,
      share: value => (value ?? 0) / top,
      says: (row, column, value) => `${visible(rows[row])} → ${visible(columns[column])}: ${format(value, unit)}`,
    }),
  );
};

const FONT = "13.5px system-ui, -apple-system, Segoe UI, sans-serif";
const widest = names => Math.max(0, ...names.map(name => wide(name, FONT)));

/** A legend of names with their signs, wrapped to a width: its elements and its height. */
const key = (names, sign, { x: left, y: top, width }) => {
  let x = left,
    y = top + 14;
  const found = names.map((name, index) => {
    const w = wide(name, FONT) + 34;
    if (x > left && x + w > width) {
      x = left;
      y += 20;
    }
    const one = [sign(index, x + 6, y - 4), s("text", { x: x + 16, y }, name)];
    x += w;
    return one;
  });
  return [found, names.length ? y - top + 6 : 0];
};

const describeBar = (bar, unit) => {
  const interval = bar.low === null || bar.low === undefined ? "" : `, 95% interval ${format(bar.low, unit)} to `;
  const others = (bar.others ?? []).map(([name, value]) => `; ${name}: ${format(value, unit)}`);
  return `${bar.name}: ${format(bar.value, unit)}${interval && interval + format(bar.high, unit)}${others.join("")}`;
};

const bars = ({ bars: list, unit, least, most, line }, width, { names, colour }) => {
  const ends = list
    .flatMap(bar => [bar.value, bar.low, bar.high, ...(bar.others ?? []).map(([, value]) => value)])
    .filter(Number.isFinite);
  const low = Math.min(least ?? 0, ...ends),
    high = Math.max(most ?? Math.max(...ends, low + 1e-9), low + 1e-9);
  const letters = Math.max(10, Math.min(32, Math.floor(width / 16))),
    left = 10 + widest((names.length ? names : list.map(bar => bar.name)).map(name => cut(name, letters))),
    room = Math.max(60, Math.min(560, width - left - 64)),
    row = 26,
    whole = left + room + 64;
  const X = value => left + (room * (Math.min(high, Math.max(low, value)) - low)) / (high - low);
  const others = [...new Set(list.flatMap(bar => (bar.others ?? []).map(([name]) => name)))],
    circle = (index, x, y) =>
      s("circle", { cx: x, cy: y, r: 4.5, fill: "none", "stroke-width": 2, style: { stroke: runColour(1 + index) } });
  const [signs, more] = key(others, circle, { x: 2, y: row * list.length + 8, width: whole }),
    height = row * list.length + 8 + more;
  return s(
    "svg",
    { width: whole, height, viewBox: `0 0 ${whole} ${height}`, role: "group" },
    list.map((bar, index) => {
      const y = index * row + 4,
        within = bar.low !== null && bar.low !== undefined;
      return mark(
        describeBar(bar, unit),
        [
          s("text", { x: left - 8, y: y + 15, "text-anchor": "end" }, cut(bar.name, letters)),
          s("rect", {
            x: Math.min(X(Math.max(0, low)), X(bar.value)),
            y: y + 3,
            width: Math.max(1, Math.abs(X(bar.value) - X(Math.max(0, low)))),
            height: row - 10,
            rx: 3,
            style: { fill: colour },
          }),
          within &&
            s("path", {
              d: `M${X(bar.low)},${y + 11}H${X(bar.high)}M${X(bar.low)},${y + 7}v8M${X(bar.high)},${y + 7}v8`,
              fill: "none",
              style: { stroke: "var(--ink)" },
            }),
          (bar.others ?? []).map(([name, value]) => circle(others.indexOf(name), X(value), y + 11)),
          s("text", { class: "tick", x: left + room + 8, y: y + 15 }, format(bar.value, unit)),
        ],
        { box: [1, y, whole - 2, row - 4] },
      );
    }),
    line !== null &&
      line !== undefined &&
      s("line", {
        x1: X(line),
        x2: X(line),
        y1: 0,
        y2: row * list.length + 4,
        "stroke-dasharray": "3 4",
        style: { stroke: "var(--soft)" },
      }),
    signs,
  );
};

const lines = ({ steps, lines: list, unit, x_label: label, title }, width) => {
  const legendAtSide = width >= 560,
    right = legendAtSide ? Math.min(270, 32 + widest(list.map(([name]) => name)) * 1.08) : 12,
    left = 58,
    top = 12,
    high = 240,
    room = Math.max(80, Math.min(640, width - left - right)),
    whole = left + room + right;
  const all = list.flatMap(([, values]) => values).filter(Number.isFinite);
  let low = Math.min(...all),
    most = Math.max(...all);
  if (!(most > low)) {
    low -= 0.5;
    most += 0.5;
  }
  const X = step => left + room * (steps.length > 1 ? step / (steps.length - 1) : 0.5),
    Y = value => top + (high * (most - value)) / (most - low),
    every = Math.ceil(steps.length / Math.max(2, room / 40));
  let before = -Infinity;
  const ends = list
    .map(([name, values], index) => ({ name, index, y: Y(values.at(-1) ?? low) }))
    .sort((a, b) => a.y - b.y)
    .map(end => ({ ...end, at: (before = Math.max(end.y, before + 15)) }));
  const dash = (index, x, y) => shape(index, x, y, 4.5);
  const [names, more] = legendAtSide
    ? [
        ends.map(end => [
          shape(end.index, left + room + 14, end.at, 4),
          s("text", { x: left + room + 23, y: end.at + 4, style: { "font-weight": 600 } }, cut(end.name, 32)),
        ]),
        0,
      ]
    : key(
        list.map(([name]) => name),
        dash,
        { x: 2, y: top + high + 46, width: whole },
      );
  const height = top + high + 46 + more;
  return s(
    "svg",
    { width: whole, height, viewBox: `0 0 ${whole} ${height}`, role: "group", "aria-label": title },
    [low, (low + most) / 2, most].map(value => [
      s("line", { class: "grid", x1: left, x2: left + room, y1: Y(value), y2: Y(value) }),
      s("text", { class: "tick", x: left - 8, y: Y(value) + 4, "text-anchor": "end" }, format(value, unit)),
    ]),
    steps.map(
      (step, index) =>
        index % every === 0 &&
        s("text", { class: "tick", x: X(index), y: top + high + 18, "text-anchor": "middle" }, cut(step, 10)),
    ),
    s("text", { class: "tick", x: left + room / 2, y: top + high + 38, "text-anchor": "middle" }, label),
    list.map(([name, values], index) => [
      s("polyline", {
        points: values.map((value, step) => (Number.isFinite(value) ? `${X(step)},${Y(value)}` : "")).join(" "),
        fill: "none",
        "stroke-width": 2.2,
        "stroke-dasharray": dashesOf(index),
        style: { stroke: runColour(index) },
      }),
      values.map(
        (value, step) =>
          Number.isFinite(value) &&
          mark(`${name}, ${label} ${steps[step]}: ${format(value, unit)}`, [shape(index, X(step), Y(value), 4)], {
            box: [X(step) - 7, Y(value) - 7, 14, 14],
          }),
      ),
    ]),
    names,
  );
};

const scatter = ({ dots, title }, width) => {
  const groups = [...new Set(dots.map(dot => dot.group))],
    xs = dots.map(dot => dot.x),
    ys = dots.map(dot => dot.y);
  const legendAtSide = width >= 560 && groups.length > 1,
    size = Math.min(520, width - (legendAtSide ? 160 : 2));
  const scale = (value, list) =>
    14 + ((size - 28) * (value - Math.min(...list))) / (Math.max(...list) - Math.min(...list) || 1);
  const dot = (at, x, y) => shape(at, x, y, 4.5, { "fill-opacity": "0.75" });
  const [names, more] =
    groups.length < 2
      ? [[], 0]
      : legendAtSide
        ? [
            groups.map((group, at) => [
              dot(at, size + 14, 16 + 20 * at),
              s("text", { x: size + 26, y: 20 + 20 * at }, cut(group, 18)),
            ]),
            0,
          ]
        : key(groups, dot, { x: 2, y: size + 4, width: size });
  const whole = size + (legendAtSide ? 160 : 0),
    height = size + more;
  return s(
    "svg",
    { width: whole, height, viewBox: `0 0 ${whole} ${height}`, role: "group", "aria-label": title },
    s("rect", { x: 0.5, y: 0.5, width: size - 1, height: size - 1, rx: 8, fill: "none", class: "grid" }),
    dots.map(each => {
      const x = scale(each.x, xs),
        y = size - scale(each.y, ys);
      return mark(`${each.group}: ${each.label}`, [dot(groups.indexOf(each.group), x, y)], {
        box: [x - 7, y - 7, 14, 14],
      });
    }),
    names,
  );
};

const coloured = ({ pieces, most, unit }, width) => {
  const signed = pieces.some(([, value]) => value < 0);
  return colouredText(
    pieces.map(([piece, value]) => ({
      piece,
      share: Math.min(1, Math.abs(value) / most),
      ...(signed ? { sign: value < 0 ? -1 : 1 } : {}),
      says: `“${visible(piece)}”: ${format(value, unit)}`,
    })),
    width,
  );
};

const KINDS = { Heatmap: heat, Bars: bars, Lines: lines, Scatter: scatter, ColouredText: coloured };

/** The names of all bars of some analyses. */
const barNames = analyses =>
  analyses.flatMap(each => each.figures.flatMap(figure => (figure.bars ?? []).map(bar => bar.name)));

/** What an analysis found: its sentence, pictures and notes. Its bars begin where those of the others `among` do, and
 * have the colour of its run. */
export const drawAnalysis = (shown, width, { among = [], colour = runColour(0) } = {}) =>
  [
    h("p", {}, h("b", {}, shown.lead)),
    shown.figures.map(
      figure =>
        KINDS[figure.kind] &&
        h(
          "figure",
          {},
          h("figcaption", {}, figure.title),
          KINDS[figure.kind](figure, width, { names: barNames(among), colour }),
        ),
    ),
    shown.notes.map(note => h("p", { class: "lead" }, note)),
  ]
    .flat(Infinity)
    .filter(Boolean);
