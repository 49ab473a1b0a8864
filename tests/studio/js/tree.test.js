import assert from "node:assert/strict";
import { test } from "node:test";

import "./browser.js";

const { drawTree, joinSearches, wayTo } = await import("../../../src/lmlab/studio/static/tree.js");

const candidate = (id, parent, token, total, fate, more = {}) => {
  return { id, parent, token, piece: `t${token}`, log_probability: -1, total, fate, ends: false, rank: 1, ...more };
};
const result = (text, tokens, total, path) => ({ text, tokens, log_probability: total, finished: false, path });
const SEARCH = {
  forced: [],
  forced_total: 0,
  length_penalty: 0,
  candidates: [
    candidate(0, null, 5, -1, "kept"),
    candidate(1, null, 6, -2, "pruned", { rank: 2 }),
    candidate(2, 0, 7, -2, "finished", { ends: true }),
    candidate(3, 0, 8, -3, "kept", { rank: 2 }),
  ],
  results: [result("t5", [5, 7], -2, [0, 2]), result("t5t8", [5, 8], -3, [0, 3])],
};
const PINNED = {
  forced: [{ token: 6, piece: "t6", log_probability: -2 }],
  forced_total: -2,
  length_penalty: 0,
  candidates: [candidate(0, null, 9, -0.5, "kept")],
  results: [result("t9", [9], -0.5, [0])],
};

test("the candidates of a search are nodes with their depth and parent", () => {
  const { nodes } = joinSearches([SEARCH]);
  assert.deepEqual(
    nodes.map(node => [node.key, node.depth, node.parent?.key]),
    [
      ["5", 1, undefined],
      ["6", 1, undefined],
      ["5,7", 2, "5"],
      ["5,8", 2, "5"],
    ],
  );
  assert.deepEqual(
    wayTo(nodes[3]).map(node => node.token),
    [5, 8],
  );
});

test("a pinned branch is merged with the node that the search dropped", () => {
  const { nodes, results } = joinSearches([SEARCH, PINNED]);
  const forced = nodes.find(node => node.key === "6");
  assert.equal(nodes.length, 5);
  assert.deepEqual([forced.forced, forced.fate], [true, "kept"]);
  assert.equal(nodes.find(node => node.key === "6,9").total, -2.5);
  assert.deepEqual(
    results.map(each => [each.text, each.total, each.pinned]),
    [
      ["t5", -2, false],
      ["t6t9", -2.5, true],
      ["t5t8", -3, false],
    ],
  );
});

test("results are ranked with the length penalty, and each text is listed once", () => {
  const penalty = { ...SEARCH, length_penalty: 1 };
  const { results } = joinSearches([penalty, penalty]);
  assert.equal(results.length, 2);
  assert.equal(results[0].score, -2 / (7 / 6));
});

test("the picture has a mark for each node, with its text, and marks the best path", () => {
  const svg = drawTree(joinSearches([SEARCH]), { prompt: "Return", upto: 2 });
  const marks = svg.find("g").filter(each => each.attributes["data-pick"]);
  assert.equal(marks.length, 4);
  assert.match(marks[0].attributes["aria-label"], /step 1: “t5”, probability 36\.8%/);
  const best = marks.filter(each => / best/.test(each.attributes.class)).map(each => each.attributes["data-pick"]);
  assert.deepEqual(best, ["5", "5,7"]);
});
