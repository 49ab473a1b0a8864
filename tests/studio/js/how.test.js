import assert from "node:assert/strict";
import { test } from "node:test";

import "./browser.js";

const { cellAt, cells, layOut, moved } = await import("../../../src/lmlab/studio/static/cells.js");
const { equation } = await import("../../../src/lmlab/studio/static/equation.js");
const { addressOf, cellOf } = await import("../../../src/lmlab/studio/static/views/how.js");

/** An equation as nested tags: msub(a j). */
const written = element =>
  element.children.length && element.tag
    ? element.tag === "mrow" || element.tag === "math"
      ? element.children.map(written).join(" ")
      : ["mi", "mo", "mn"].includes(element.tag)
        ? element.textContent
        : `${element.tag}(${element.children.map(written).join(", ")})`
    : element.textContent;

test("equations have fractions, roots and indices", () => {
  assert.equal(written(equation("a_j = frac{q · k_j}{sqrt{d}}")), "msub(a, j) = mfrac(q · msub(k, j), msqrt(d))");
  assert.equal(written(equation("h_{t−1} + x ^ 2")), "msub(h, t − 1) + msup(x, 2)");
  assert.equal(written(equation("y = W_2 GELU(e)")), "y = msub(W, 2) GELU ( e )");
});

test("an equation that is not closed is shown as it is", () => {
  assert.equal(written(equation("frac{a")), "mfrac(a, )");
  assert.equal(written(equation("")), "");
});

test("a vector is folded into lines, and its cells are found again", () => {
  const place = layOut({ rows: ["the"], columns: [], width: 50, room: 200 });
  assert.ok(place.folds && place.lines > 1);
  const at = index => [
    place.left + ((index % place.across) + 0.5) * place.cell,
    place.top + (Math.floor(index / place.across) + 0.5) * place.high,
  ];
  for (const index of [0, 13, 49]) assert.deepEqual(cellAt(place, 1, 50, ...at(index)), { row: 0, column: index });
  assert.equal(cellAt(place, 1, 50, ...at(place.across * place.lines - 1)), null);
  assert.equal(cellAt(place, 1, 50, -5, 5), null);
});

test("arrow keys move by cells and by lines, and stay inside", () => {
  const folded = layOut({ rows: ["the"], columns: [], width: 50, room: 200 });
  assert.deepEqual(moved(folded, 1, 50, { row: 0, column: 0 }, "ArrowDown"), { row: 0, column: folded.across });
  assert.deepEqual(moved(folded, 1, 50, { row: 0, column: 0 }, "ArrowLeft"), { row: 0, column: 0 });
  const rows = layOut({ rows: ["a", "b"], columns: ["x", "y"], width: 2, room: 200 });
  assert.deepEqual(moved(rows, 2, 2, { row: 0, column: 1 }, "ArrowDown"), { row: 1, column: 1 });
  assert.deepEqual(moved(rows, 2, 2, { row: 1, column: 1 }, "End"), { row: 1, column: 1 });
  assert.equal(moved(rows, 2, 2, { row: 1, column: 1 }, "a"), null);
});

test("a cell below zero has a dash, so that colours are not needed", () => {
  const picture = cells({
    rows: ["a"],
    columns: [],
    values: [[1, -0.5, 0.2]],
    kind: "signed",
    room: 300,
    label: "v",
    says: () => "",
    say: () => {},
    pick: () => {},
  });
  assert.equal(picture.find("path").length, 1);
  assert.equal(picture.find("path")[0].attributes.d.match(/M/g).length, 1);
  assert.match(picture.attributes["aria-label"], /3 numbers/);
});

test("a number has the address that the server understands, and is found again", () => {
  const grid = {
    name: "0.key",
    rows: [
      { label: "a", prefix: [1, 0] },
      { label: "b", prefix: [1, 1] },
    ],
    indices: [],
    values: [
      [1, 2],
      [3, 4],
    ],
  };
  assert.equal(addressOf(grid, 1, 0), "0.key:1,1,0");
  assert.deepEqual(cellOf(grid, "0.key:1,1,0"), { row: 1, column: 0 });
  assert.equal(cellOf(grid, "0.key:0,1,0"), undefined);
  const logits = { name: "logits", rows: [{ label: "", prefix: [] }], indices: [7, 9], values: [[1, 2]] };
  assert.equal(addressOf(logits, 0, 1), "logits:9");
});
