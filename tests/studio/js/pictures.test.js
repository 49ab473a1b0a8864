import assert from "node:assert/strict";
import { test } from "node:test";

import "./browser.js";

const { darkness, splitLabels } = await import("../../../src/lmlab/studio/static/views/pictures.js");

test("the patch with the largest weight is clear, one without weight is dark", () => {
  assert.deepEqual(darkness([0, 0.25, 0.5]), [0.82, 0.41, 0]);
  assert.deepEqual(darkness([0, 0]), [0.82, 0.82]);
});

test("labels are separated by commas, each once", () => {
  assert.deepEqual(splitLabels(" cat, dog ,,cat, red square"), ["cat", "dog", "red square"]);
  assert.deepEqual(splitLabels(""), []);
});
