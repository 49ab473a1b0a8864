import assert from "node:assert/strict";
import { test } from "node:test";

import "./browser.js";

const { bars, colouredText, count, legend, mark, shape, table } =
  await import("../../../src/lmlab/studio/static/parts.js");
const { choice, numberField, runPicker } = await import("../../../src/lmlab/studio/static/fields.js");
const { forEachRun } = await import("../../../src/lmlab/studio/static/api.js");
const { number, percent, short, visible } = await import("../../../src/lmlab/studio/static/dom.js");
const { diverging, inkOn, knowRuns, luminance, numberOf } = await import("../../../src/lmlab/studio/static/colours.js");
const { smooth } = await import("../../../src/lmlab/studio/static/charts.js");
const { fromHalves } = await import("../../../src/lmlab/studio/static/halves.js");

/** A page with a state, as far as fields use it. */
const pageOf = (state, runs = []) => ({
  state,
  runs,
  follow(listener) {
    listener(this.state);
  },
  set(change) {
    Object.assign(this.state, change);
  },
});

test("numbers are written for people", () => {
  assert.deepEqual([number(-1.5, 1), number(null), number(NaN)], ["−1.5", "–", "–"]);
  assert.deepEqual([percent(0.5), percent(0.012), percent(0.00001)], ["50.0%", "1.20%", "0.0010%"]);
  assert.deepEqual([short(1234567), short(12), short(2e12)], ["1.23 M", "12", "2 T"]);
  assert.equal(visible("a b\n"), "a·b⏎");
  assert.deepEqual([visible(""), visible("\u00a0"), visible("\u200b\r")], ["∅", "\\u{a0}", "\\u{200b}␍"]);
});

test("text stays text: nothing is parsed as HTML", () => {
  const found = table("<b>caption</b>", ["<i>"], [["<script>alert(1)</script>"]]);
  assert.equal(found.find("script").length, 0);
  assert.equal(found.find("td")[0].textContent, "<script>alert(1)</script>");
});

test("a table aligns numbers and marks missing values", () => {
  const cells = table("t", ["a", "b"], [[1234, null]]).find("td");
  assert.deepEqual(
    cells.map(cell => [cell.attributes.class, cell.textContent]),
    [
      ["n", "1,234"],
      ["text", "–"],
    ],
  );
});

test("a mark has its text as label, and is a button if it can be picked", () => {
  assert.equal(mark("a: 1", []).attributes.role, "img");
  assert.equal(mark("a: 1", [], { pick: "a" }).attributes.role, "button");
  assert.equal(mark("a: 1", []).attributes["aria-label"], "a: 1");
});

test("coloured texts wrap at their width and after line ends", () => {
  const piece = text => ({ piece: text, share: 0.5, says: text });
  const tops = width =>
    colouredText([piece("one"), piece("two\n"), piece("three")], width)
      .find("g")
      .map(each => each.find("rect")[0].attributes.y);
  assert.deepEqual(tops(1000), ["0", "0", "30"]);
  assert.deepEqual(tops(40), ["0", "30", "60"]);
});

test("bars are as long as their share of the longest", () => {
  const row = share => ({ piece: "x", share, says: "x", number: "" });
  const widths = bars([row(0.8), row(0.4)], "red", 400)
    .find("rect")
    .filter(each => each.attributes.class === "bar")
    .map(each => Number(each.attributes.width));
  assert.equal(widths[0], 2 * widths[1]);
});

test("a legend names all its numbers", () => {
  const label = legend("bits", [1, 2], bits => bits / 2).find("svg")[0].attributes["aria-label"];
  assert.equal(label, "bits: 1, 2");
});

test("a number field keeps its value within its limits", () => {
  const page = pageOf({ top: 3 });
  const [input] = numberField(page, "Top", "top", { min: 1, max: 10 }).find("input");
  assert.equal(input.value, 3);
  for (const [given, kept] of [
    ["99", 10],
    ["7", 7],
    ["", 7],
    ["0", 1],
  ]) {
    input.value = given;
    input.listeners.change();
    assert.equal(page.state.top, kept);
  }
});

test("a choice of numbers sets a number", () => {
  const page = pageOf({ layer: 0 });
  const [select] = choice(page, "Layer", "layer", [[0, "0"]], { number: true }).find("select");
  select.value = "2";
  select.listeners.change();
  assert.equal(page.state.layer, 2);
});

test("the run picker offers runs that fit and have weights, and keeps the order of the chosen ones", () => {
  const run = (name, does, weights = true) => ({ name, does, weights, kind: "lstm" });
  const runs = [
    run("a", ["next token"]),
    run("b", ["masks"]),
    run("c", ["next token"]),
    run("d", ["next token"], false),
  ];
  const page = pageOf({ run: ["c"] }, runs);
  const picker = runPicker(page, { fits: each => each.does.includes("next token"), none: "none" });
  const inputs = picker.find("input");
  assert.deepEqual(
    inputs.map(each => [each.attributes.value ?? each.value, Boolean(each.checked ?? each.attributes.checked)]),
    [
      ["a", false],
      ["c", true],
    ],
  );
  inputs[0].listeners.change({ target: { checked: true } });
  assert.deepEqual(page.state.run, ["c", "a"]);
});

test("responses for several runs are joined, and one that fails does not spoil the others", async () => {
  const ask = async name => {
    if (name === "b") throw new Error("b cannot");
    return { value: name.length };
  };
  assert.deepEqual(await forEachRun(["aa", "b"], ask), {
    runs: [{ run: "aa", value: 2 }],
    refused: [{ run: "b", why: "b cannot" }],
  });
  await assert.rejects(forEachRun(["b", "b"], ask), { message: "b cannot" });
});

test("half precision is decoded exactly", () => {
  const halves = new Uint16Array([0x3c00, 0xc000, 0x3555, 0x0001, 0x7c00]);
  assert.deepEqual([...fromHalves(halves.buffer)], [1, -2, 0.333251953125, 2 ** -24, Infinity]);
});

test("a count names its noun in the singular or the plural", () => {
  assert.deepEqual(
    [0, 1, 2, 1234].map(each => count(each, "token")),
    ["0 tokens", "1 token", "2 tokens", "1,234 tokens"],
  );
  assert.equal(count(2, "branch", "branches"), "2 branches");
});

test("the marks of neighbouring colours have different shapes, and each is its colour", () => {
  const shapes = [0, 1, 2, 3, 4].map(number => shape(number, 10, 10, 4));
  assert.equal(new Set(shapes.map(each => each.attributes.points ?? each.tag)).size, 5);
  assert.deepEqual(
    shapes.map(each => each.attributes["style:fill"]),
    [0, 1, 2, 3, 4].map(number => `var(--c${number})`),
  );
});

test("a run keeps its colour, and runs that are shown together get different ones while there are any", () => {
  knowRuns([
    { name: "run a", colour: 3 },
    { name: "run b", colour: 3 },
    { name: "run c", colour: 9 },
  ]);
  assert.deepEqual(
    ["a", "b", "c", "a", "b"].map(each => numberOf(`run ${each}`)),
    [3, 4, 9, 3, 4],
  );
});

test("a smoothed curve begins at its first value and follows a constant exactly", () => {
  const points = [3, 3, 3].map((y, x) => ({ x, y }));
  assert.deepEqual(
    smooth(points, 0.9).map(each => Number(each.y.toFixed(12))),
    [3, 3, 3],
  );
  const [first, second] = smooth(
    [
      { x: 1, y: 0 },
      { x: 2, y: 1 },
    ],
    0.5,
  );
  assert.deepEqual([first.y, Number(second.y.toFixed(12))], [0, Number((2 / 3).toFixed(12))]);
  assert.deepEqual(
    smooth([{ x: 1, y: 5 }], 0).map(each => each.y),
    [5],
  );
});

test("ink on every colour of the scale has a contrast of 4.5 at least", () => {
  for (const sign of [1, -1])
    for (let share = 0; share <= 1; share += 0.01) {
      const [paper, ink] = [diverging(sign * share), inkOn(share, sign)].map(luminance),
        [low, high] = [Math.min(paper, ink), Math.max(paper, ink)];
      assert.ok((high + 0.05) / (low + 0.05) >= 4.5, `${sign * share}`);
    }
});
