// Neighbours: the nearest tokens to a word, and analogies, in several runs.

import { h } from "../dom.js";
import { post } from "../api.js";
import { field, numberField, runPicker } from "../fields.js";
import { runHeading, sideBySide, table } from "../parts.js";
import { colourOf } from "../colours.js";
import { drawAnalysis } from "../figures.js";

export default {
  name: "neighbours",
  title: "Neighbours",
  lead:
    "The tokens whose input embeddings have the highest cosine similarity with a word's. For three words a, " +
    "b, c the neighbours of b − a + c: a is to b as c is to what? Small runs have read too little for " +
    "analogies.",
  defaults: { run: [], words: "list", top: 12 },
  example: ({ words: [words = ""] }) => ({ words }),
  fits: run => run.does.includes("vectors"),
  prefers: run => !run.task && !run.does.includes("target text"),
  first: 2,
  controls: page => [
    field(page, "A word, or three", h("input", { type: "text", name: "words", maxlength: 200, size: 26 }), {
      name: "words",
      wait: 400,
    }),
    numberField(page, "Tokens shown", "top", { min: 1, max: 50 }),
    runPicker(page, { fits: page.view.fits, none: "No run here has vectors: train lstm, gpt2, bert or word2vec." }),
  ],
  empty: "Choose a run, and write a word.",
  ask: async (state, signal) =>
    state.run.length && state.words.trim()
      ? post(
          "neighbours",
          {
            runs: state.run,
            words: state.words
              .trim()
              .split(/[\s,]+/)
              .slice(0, 4),
            top: state.top,
          },
          signal,
        )
      : null,
  draw(page, data) {
    const among = data.runs.map(run => run.analysis).filter(Boolean);
    return {
      pictures: sideBySide(data.runs, page.width, (run, width) => [
        runHeading(run.run),
        run.analysis
          ? drawAnalysis(run.analysis, width, { among, colour: colourOf(run.run) })
          : h("p", { class: "empty" }, run.why_not),
      ]),
      tables: data.runs.filter(run => run.analysis).map(run => table(run.run, run.analysis.columns, run.analysis.rows)),
    };
  },
};
