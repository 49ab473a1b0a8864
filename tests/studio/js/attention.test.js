import assert from "node:assert/strict";
import { test } from "node:test";

import "./browser.js";

const { lines } = await import("../../../src/lmlab/studio/static/views/attention.js");

const drawn = more =>
  lines({
    queries: ["a", "b", "c"],
    keys: ["a", "b", "c"],
    rows: [0, 2],
    columns: [0, 2],
    weights: Float32Array.from([1, 0, 0.75, 0.25]),
    from: -1,
    locked: -1,
    gone: new Set(),
    signed: false,
    width: 400,
    weight: (r, c) => `${r} to ${c}`,
    ...more,
  });
const marks = picture => picture.find("g").filter(each => each.attributes["data-query"] !== undefined);

test("there is a line for each weight that can be seen, the stronger the larger", () => {
  const found = drawn().find("line");
  assert.equal(found.length, 3);
  const [one, most, least] = found.map(each => Number(each.attributes["stroke-opacity"]));
  assert.equal(one, 1);
  assert.ok(most > least);
});

test("tokens that are left out have no lines and no mark", () => {
  assert.deepEqual(
    marks(drawn()).map(each => each.attributes["data-pick"]),
    ["lock 0", "lock 2"],
  );
});

test("the lines of a locked token stand out", () => {
  const groups = drawn({ from: 1, locked: 2 })
    .find("g")
    .filter(each => each.attributes["data-from"] !== undefined);
  assert.deepEqual(
    groups.map(each => each.attributes.opacity),
    ["0.06", "1"],
  );
});

test("a change below zero is dashed, so that colours are not needed", () => {
  const found = drawn({ signed: true, weights: Float32Array.from([0.5, 0, -0.5, 0.25]) }).find("line");
  assert.deepEqual(
    found.map(each => each.attributes["stroke-dasharray"]),
    [undefined, "4 3", undefined],
  );
});

test("source tokens are buttons where they can be hidden", () => {
  const keys = picture => picture.find("g").filter(each => each.attributes["data-key"] !== undefined);
  assert.equal(keys(drawn())[0].attributes.role, "img");
  assert.equal(keys(drawn({ pickKey: true }))[1].attributes["data-pick"], "key 2");
});
