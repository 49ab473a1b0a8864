// A beam search as a tree: steps from left to right, branches that were pinned or forced among them.

import { s, cut, number, percent, visible, wide } from "./dom.js";
import { count, mark } from "./parts.js";

const ROW = 38,
  GAP = 44,
  HIGH = 28;

/**
 * Joins several searches in one tree; pinned branches are merged with the others by their tokens.
 * Nodes: {key, token, piece, log, total, depth, fate, parent, forced, rank, ends}.
 */
export const joinSearches = searches => {
  const nodes = new Map();
  const add = (parent, token, more) => {
    const key = parent ? `${parent.key},${token}` : String(token);
    const known = nodes.get(key);
    if (known) {
      if (more.forced) known.forced = true;
      if (more.fate === "kept" || more.fate === "finished") known.fate = more.fate;
      return known;
    }
    const node = { key, token, parent, depth: (parent?.depth ?? 0) + 1, ...more };
    nodes.set(key, node);
    return node;
  };
  const results = [];
  searches.forEach((search, number) => {
    let tip = null,
      total = 0;
    for (const each of search.forced) {
      total += each.log_probability;
      tip = add(tip, each.token, {
        piece: each.piece,
        log: each.log_probability,
        total,
        fate: "kept",
        forced: true,
        ends: false,
        rank: 1,
      });
    }
    const own = new Map();
    for (const each of search.candidates)
      own.set(
        each.id,
        add(each.parent === null ? tip : own.get(each.parent), each.token, {
          piece: each.piece,
          log: each.log_probability,
          total: search.forced_total + each.total,
          fate: each.fate,
          ends: each.ends,
          rank: each.rank,
        }),
      );
    for (const each of search.results) {
      const last = own.get(each.path.at(-1)) ?? tip;
      const tokens = search.forced.length + each.tokens.length;
      const total_ = search.forced_total + each.log_probability;
      results.push({
        text: search.forced.map(f => f.piece).join("") + each.text,
        tokens,
        total: total_,
        score: total_ / ((5 + tokens) / 6) ** search.length_penalty,
        finished: each.finished,
        key: last?.key ?? "",
        pinned: number > 0,
      });
    }
  });
  const once = new Map();
  for (const each of results.sort((a, b) => b.score - a.score)) if (!once.has(each.key)) once.set(each.key, each);
  return { nodes: [...nodes.values()], results: [...once.values()] };
};

const describeNode = node =>
  `step ${node.depth}: “${node.ends ? "end" : visible(node.piece)}”, ` +
  `probability ${percent(Math.exp(node.log))} after its context; ` +
  `log P of the text ${number(node.total, 2)}; ${node.forced ? "forced" : node.fate}`;

/** The nodes from the first token to a node. */
export const wayTo = node => {
  const way = [];
  for (; node; node = node.parent) way.unshift(node);
  return way;
};

/** The least scale of a picture that is wider than its room. */
const SMALLEST = 0.75;

/** The picture; `upto` is the last step that is shown. It is made smaller to fit into its room, within limits. */
export const drawTree = ({ nodes, results }, { prompt, upto, room = Infinity }) => {
  const levels = [];
  for (const node of nodes) (levels[node.depth - 1] ??= []).push(node);
  const label = node => (node.ends ? "■ end" : cut(visible(node.piece), 16));
  const start = cut(visible(prompt.trim() || "start"), 18);
  const widths = [wide(start) + 24, ...levels.map(level => Math.max(...level.map(node => wide(label(node)))) + 76)];
  const x = widths.map((_, index) => 12 + widths.slice(0, index).reduce((sum, each) => sum + each, 0) + GAP * index);
  const most = Math.max(1, ...levels.map(level => level.length)),
    height = 34 + ROW * most + 12;
  const y = new Map();
  for (const level of levels) {
    level.sort((a, b) => (y.get(a.parent) ?? 0) - (y.get(b.parent) ?? 0) || a.rank - b.rank);
    const first = 34 + (ROW * (most - level.length)) / 2 + ROW / 2;
    level.forEach((node, index) => y.set(node, first + ROW * index));
  }
  const bestKey = results[0]?.key ?? "",
    best = new Set();
  for (let node = nodes.find(each => each.key === bestKey); node; node = node.parent) best.add(node);
  const middle = 34 + (ROW * most) / 2,
    width = x.at(-1) + widths.at(-1) + 12,
    scale = Math.max(SMALLEST, Math.min(1, room / width));
  const kind = node =>
    [
      best.has(node) && upto >= levels.length && "best",
      node.fate,
      node.forced && "forced",
      node.depth > upto && "later",
    ]
      .filter(Boolean)
      .join(" ");
  const edges = nodes.map(node => {
    const a = x[node.depth - 1] + widths[node.depth - 1],
      b = node.parent ? y.get(node.parent) : middle,
      c = x[node.depth],
      d = y.get(node),
      bend = (c - a) / 2;
    return s("path", { class: `edge ${kind(node)}`, d: `M${a},${b}C${a + bend},${b} ${c - bend},${d} ${c},${d}` });
  });
  const drawn = levels.flat().map(node => {
    const left = x[node.depth],
      top = y.get(node) - HIGH / 2,
      w = widths[node.depth];
    return mark(
      describeNode(node),
      [
        s("rect", { x: left, y: top, width: w, height: HIGH, rx: 8 }),
        s("text", { class: "mono", x: left + 9, y: top + 18.5 }, label(node)),
        s("text", { class: "tick", x: left + w - 8, y: top + 18, "text-anchor": "end" }, number(node.total, 2)),
      ],
      { box: [left, top, w, HIGH], pick: node.key, class: `node ${kind(node)}` },
    );
  });
  return s(
    "svg",
    {
      class: "tree",
      width: width * scale,
      height: height * scale,
      viewBox: `0 0 ${width} ${height}`,
      role: "group",
      "aria-label": `The tree of a search, ${count(levels.length, "step")}`,
    },
    levels.map((_, index) => s("text", { class: "tick", x: x[index + 1], y: 18 }, `step ${index + 1}`)),
    edges,
    s(
      "g",
      { class: "node root" },
      s("rect", { x: x[0], y: middle - HIGH / 2, width: widths[0], height: HIGH, rx: 8 }),
      s("text", { class: "mono", x: x[0] + widths[0] / 2, y: middle + 4.5, "text-anchor": "middle" }, start),
    ),
    drawn,
  );
};
