import assert from "node:assert/strict";
import { test } from "node:test";

import { parse, read, write } from "../../../src/lmlab/studio/static/state.js";

const DEFAULTS = { run: [], text: "Return", top: 12, jointly: false };

test("a link is parsed into the name of a view and its parameters", () => {
  const { name, query } = parse("#/next?run=demo/lstm&run=gpt2&text=a b?c");
  assert.equal(name, "next");
  assert.deepEqual(query.getAll("run"), ["demo/lstm", "gpt2"]);
  assert.equal(query.get("text"), "a b?c");
  assert.equal(parse("").name, "");
});

test("views are found by the names that they had before version 0.6", () => {
  const names = ["surprise", "pairs", "why", "mix", "blanks"].map(name => parse(`#/${name}?run=a`).name);
  assert.deepEqual(names, ["surprisal", "minimal-pairs", "attribution", "layer-mix", "fill"]);
});

test("parameters get the types of the defaults", () => {
  const query = new URLSearchParams("run=a&run=b&text=x&top=3&jointly=1&other=9");
  assert.deepEqual(read(query, DEFAULTS), { run: ["a", "b"], text: "x", top: 3, jointly: true });
});

test("missing and invalid parameters get the defaults", () => {
  assert.deepEqual(read(new URLSearchParams("top=many&run="), DEFAULTS), { ...DEFAULTS, run: [] });
  assert.deepEqual(read(new URLSearchParams("top="), DEFAULTS), DEFAULTS);
});

test("the address of a state has only what differs from the defaults", () => {
  assert.equal(write("next", DEFAULTS, DEFAULTS), "#/next");
  assert.equal(write("next", { ...DEFAULTS, top: 3, jointly: true }, DEFAULTS), "#/next?top=3&jointly=1");
  assert.equal(write("next", DEFAULTS, DEFAULTS, { slide: 2 }), "#/next?slide=2");
});

test("a state that is written and read is the same", () => {
  const state = { run: ["demo/lstm", "a&b"], text: "käse = 1 + 1?\n#", top: 0.5, jointly: true };
  const { name, query } = parse(write("next", state, DEFAULTS));
  assert.equal(name, "next");
  assert.deepEqual(read(query, DEFAULTS), state);
  const none = { ...DEFAULTS, run: [] };
  assert.deepEqual(read(parse(write("next", none, { ...DEFAULTS, run: ["x"] })).query, { run: ["x"] }), { run: [] });
});
