import assert from "node:assert/strict";
import { test } from "node:test";

import "./browser.js";

const { filterRuns, rankable, runTable, sortRuns, writeScore } =
  await import("../../../src/lmlab/studio/static/run-table.js");

const run = (name, value, text = "book.txt", more = {}) => ({
  name,
  kind: "gpt2",
  does: [],
  status: "ready",
  note: "",
  parameters: null,
  text: { name: text, id: text },
  score: value === null ? null : { value, unit: "bits per byte", higher: false, test: null },
  ...more,
});
const names = runs => runs.map(each => each.name);

test("runs are sorted by a column, and those without a value are last in both directions", () => {
  const runs = [run("b", 2), run("none", null), run("a", 10), run("c", 1)];
  assert.deepEqual(names(sortRuns(runs, "score", false)), ["c", "b", "a", "none"]);
  assert.deepEqual(names(sortRuns(runs, "score", true)), ["a", "b", "c", "none"]);
  assert.deepEqual(names(sortRuns(runs, "name", false)), ["a", "b", "c", "none"]);
  assert.deepEqual(names(sortRuns([run("run10", 1), run("run9", 1)], "name", false)), ["run9", "run10"]);
});

test("a run is found by words of its name, model, text and note, in any order", () => {
  const runs = [
    run("demo/a", 1),
    run("b", 1, "goethe.txt", { note: "the Best one" }),
    run("c", 1, "x", { kind: "lstm" }),
  ];
  assert.deepEqual(names(filterRuns(runs, "GOETHE best")), ["b"]);
  assert.deepEqual(names(filterRuns(runs, "lstm")), ["c"]);
  assert.deepEqual(names(filterRuns(runs, " ")), ["demo/a", "b", "c"]);
  assert.deepEqual(filterRuns(runs, "nothing"), []);
});

test("scores of different texts and of different units are never in one ranking", () => {
  const other = { score: { value: 0.5, unit: "accuracy", higher: true, test: null } };
  const runs = [run("a", 1), run("b", 2, "other"), run("c", 3), run("none", null), run("d", 1, "book.txt", other)];
  assert.deepEqual(rankable(runs).map(names), [["a", "c"], ["b"], ["d"], ["none"]]);
});

test("runs whose text is not known are ranked alone", () => {
  const unknown = { text: null };
  assert.deepEqual(rankable([run("a", 1, "", unknown), run("b", 2, "", unknown)]).map(names), [["a"], ["b"]]);
});

test("the table says the text and unit of each ranking, and marks the column that it is sorted by", () => {
  const state = { run: [], card: "", sort: "score", down: false, find: "" };
  const table = runTable([run("a", 1), run("b", 2, "other")], { state, set: () => {}, open: () => {} });
  const lines = table.find("th").filter(each => each.attributes.scope === "rowgroup");
  assert.deepEqual(
    lines.map(each => each.textContent),
    ["Text: book.txt · bits per byte, lower is better · 1 run", "Text: other · bits per byte, lower is better · 1 run"],
  );
  assert.deepEqual(
    table.find("th").flatMap(each => (each.attributes["aria-sort"] === "ascending" ? [each.textContent] : [])),
    ["validation ▲"],
  );
});

test("a click on a heading sorts by it, and a second click turns the order round", () => {
  const set = [];
  const state = { run: [], card: "", sort: "name", down: false, find: "" };
  const table = runTable([run("a", 1)], { state, set: each => set.push(each), open: () => {} });
  const heading = name => table.find("button").find(each => each.attributes["data-sort"] === name);
  heading("score").listeners.click();
  heading("name").listeners.click();
  assert.deepEqual(set, [
    { sort: "score", down: false },
    { sort: "name", down: true },
  ]);
});

test("accuracy is written in percent, bits per byte are not", () => {
  assert.equal(writeScore(0.725, "accuracy"), "72.5%");
  assert.equal(writeScore(1.2345, "bits per byte"), "1.234");
});
