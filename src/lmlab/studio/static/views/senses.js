// Senses: the occurrences of a word, layer by layer.

import { h } from "../dom.js";
import { post } from "../api.js";
import { choice, field, numberField, runPicker, textField } from "../fields.js";
import { runHeading, sideBySide, table } from "../parts.js";
import { drawAnalysis } from "../figures.js";

const LINES = [
  "river | they sat on the bank of the river and watched the water",
  "river | the boat was tied to the bank near the old bridge",
  "river | trees grew along the bank of the stream",
  "river | fish hide under the muddy bank in summer",
  "money | she went to the bank to pay in some money",
  "money | the bank lent him money at a high rate",
  "money | he works as a clerk in a large bank",
  "money | the bank closed its branch in town",
];

const GIVEN = { word: "bank", lines: LINES.join("\n") };

export default {
  name: "senses",
  title: "Senses",
  lead:
    "Each dot is an occurrence of a word, by its contextual vector; uses with the same sense should be close " +
    "together. One sentence per line, with its sense and | before it if you know it. Without sentences, the " +
    "held-out text of the run is searched.",
  defaults: { run: [], ...GIVEN, layer: -1, projection: "pca" },
  example: ({ word, uses }) => (word ? { word, lines: uses.join("\n") } : GIVEN),
  saved: ["layer"],
  variants: (state, { runs }) => Array.from({ length: runs[0].layers }, (_, layer) => ({ layer })),
  fits: run => run.does.includes("vectors"),
  prefers: run => run.does.includes("masks"),
  first: 2,
  controls: page => [
    field(page, "Word", h("input", { type: "text", name: "word", maxlength: 60 }), { name: "word", wait: 400 }),
    numberField(page, "Layer (0 is the embeddings, −1 the last)", "layer", { min: -200, max: 200 }),
    choice(page, "Projection", "projection", [
      ["pca", "PCA"],
      ["tsne", "t-SNE"],
    ]),
    textField(page, "Sentences", "lines", { rows: 6, wait: 500 }),
    runPicker(page, { fits: page.view.fits, none: "No run here gives vectors: train bert, gpt2 or lstm." }),
  ],
  empty: "Choose a run, and a word.",
  ask: async (state, signal) =>
    state.run.length && state.word.trim()
      ? post(
          "senses",
          {
            runs: state.run,
            word: state.word.trim(),
            lines: state.lines,
            layer: state.layer,
            projection: state.projection,
          },
          signal,
        )
      : null,
  draw: (page, data) => ({
    pictures: sideBySide(data.runs, page.width, (run, width) => [
      runHeading(run.run, " ", h("small", {}, `layer ${run.layer} of ${run.layers - 1}`)),
      drawAnalysis(run.analysis, width),
    ]),
    tables: data.runs.flatMap(run => [
      table(`${run.run}: by layer`, run.analysis.columns, run.analysis.rows),
      table(
        `${run.run}: the dots`,
        ["sense", "sentence", "x", "y"],
        run.analysis.figures[0].dots.map(dot => [dot.group, dot.label, dot.x, dot.y]),
      ),
    ]),
  }),
};
