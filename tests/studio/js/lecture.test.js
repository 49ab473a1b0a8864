import assert from "node:assert/strict";
import { test } from "node:test";

import "./browser.js";

const { readLogs, sampled, sampleFrom } = await import("../../../src/lmlab/studio/static/sampling.js");
const { answer, decode, encode, record, replay } = await import("../../../src/lmlab/studio/static/recording.js");
const { searchZoom } = await import("../../../src/lmlab/studio/static/fit.js");

const near = (found, expected) => {
  assert.equal(found.length, expected.length);
  found.forEach((each, index) =>
    assert.ok(Math.abs(each - expected[index]) < 1e-9, `${each} is not ${expected[index]}`),
  );
};
const LOGS = [0.5, 0.25, 0.125, 0.125].map(Math.log);
const inBase64 = numbers => Buffer.from(new Float32Array(numbers).buffer).toString("base64");

test("temperature raises probabilities to a power", () => {
  near(sampled(LOGS, { temperature: 1, top_p: 1 }).probabilities, [0.5, 0.25, 0.125, 0.125]);
  const squares = [0.25, 0.0625, 0.015625, 0.015625],
    sum = squares.reduce((a, b) => a + b);
  near(
    sampled(LOGS, { temperature: 0.5, top_p: 1 }).probabilities,
    squares.map(each => each / sum),
  );
});

test("top-p keeps the best tokens that reach it, and those as probable as the last of them", () => {
  const half = sampled(LOGS, { temperature: 1, top_p: 0.5 });
  assert.equal(half.kept, 1);
  near(half.probabilities, [1, 0, 0, 0]);
  assert.equal(sampled(LOGS, { temperature: 1, top_p: 0.6 }).kept, 2);
  assert.equal(sampled(LOGS, { temperature: 1, top_p: 0.8 }).kept, 4);
});

test("a token without probability stays without", () => {
  near(sampled([0, -Infinity], { temperature: 2, top_p: 1 }).probabilities, [1, 0]);
});

test("an answer is computed again for other options, for as many tokens as are shown", () => {
  const tokens = [{ piece: "a" }, { piece: "b" }, { piece: "c" }];
  const found = {
    runs: [
      { run: "x", tokens, distribution: inBase64(LOGS) },
      { run: "old", tokens },
    ],
  };
  const [first, second] = sampleFrom(found, { temperature: 1, top_p: 0.5, top: 2 }).runs;
  assert.deepEqual(
    first.tokens.map(each => each.sampled),
    [1, 0],
  );
  assert.equal(first.kept, 1);
  assert.equal(second.tokens.length, 3);
});

test("bytes survive being written as text", () => {
  const bytes = Uint8Array.from({ length: 70_000 }, (_, n) => n % 251);
  assert.deepEqual(new Uint8Array(decode(encode(bytes.buffer))), bytes);
  assert.deepEqual(readLogs(inBase64([1.5, -2])), [1.5, -2]);
});

test("the largest zoom that fits is found, and set last", () => {
  for (const limit of [0.5, 0.7, 1.234, 2.59, 9]) {
    const tried = [],
      zoom = searchZoom(each => (tried.push(each), each <= limit), { largest: 2.6, smallest: 0.6 });
    assert.equal(tried.at(-1), zoom);
    assert.ok(zoom <= Math.max(limit, 0.6));
    assert.ok(zoom * 1.08 > Math.min(limit, 2.6 / 1.08));
    assert.ok(tried.length <= 7);
  }
});

test("recorded answers are given again, and others are refused", async () => {
  const recording = record();
  const ask = (body, value) => answer("/studio/api/search", body, async () => value);
  assert.equal(await ask({ run: "a" }, 1), 1);
  await ask({ run: "b" }, { list: [1] });
  const answers = recording.stop();
  replay(answers);
  assert.equal(await ask({ run: "a" }, 9), 1);
  const given = await ask({ run: "b" }, 9);
  given.list.push(2);
  assert.deepEqual(await ask({ run: "b" }, 9), { list: [1] });
  await assert.rejects(ask({ run: "c" }, 9), /no answer to that/);
});
