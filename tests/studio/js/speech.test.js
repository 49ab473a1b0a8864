import assert from "node:assert/strict";
import { test } from "node:test";

import "./browser.js";

const { soundColour, wordAt } = await import("../../../src/lmlab/studio/static/views/speech.js");

test("the word at a time is the one that is spoken then", () => {
  const words = [
    { text: "And", begin: 0.2, end: 0.5 },
    { text: "so", begin: 0.5, end: 0.8 },
    { text: "my", begin: 1.0, end: 1.4 },
  ];
  assert.deepEqual(
    [0, 0.2, 0.49, 0.5, 0.9, 1.2, 1.4].map(seconds => wordAt(words, seconds)),
    [-1, 0, 0, 1, -1, 2, -1],
  );
  assert.equal(wordAt([], 1), -1);
});

test("colours go from dark to light", () => {
  const light = value => soundColour(value).reduce((sum, each) => sum + each, 0);
  assert.deepEqual(soundColour(0), [13, 8, 40]);
  assert.deepEqual(soundColour(255), [252, 250, 190]);
  for (let value = 1; value < 256; value++) assert.ok(light(value) >= light(value - 1));
});
