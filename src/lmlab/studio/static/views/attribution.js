// Attribution: which tokens speak for a prediction, and which against it.

import { h } from "../dom.js";
import { post } from "../api.js";
import { field, runPicker, textField } from "../fields.js";
import { runHeading, table } from "../parts.js";
import { colourOf } from "../colours.js";
import { drawAnalysis } from "../figures.js";

export default {
  name: "attribution",
  title: "Attribution",
  lead:
    "Which tokens speak for a prediction, and which against it: gradient × input, a first-order " +
    "approximation. Write the text before the predicted token (for a masked model, a text with [MASK]) and " +
    "the token; for a classifier the text and a class. Without one, the most probable prediction is " +
    "explained. Credit between redundant tokens is arbitrary.",
  defaults: { run: [], text: "Return a new list of the", target: "" },
  example: ({ prompt }) => ({ text: prompt }),
  fits: run =>
    (run.does.includes("vectors") && run.does.includes("next token")) ||
    run.does.includes("masks") ||
    run.task === "classification",
  prefers: run => run.does.includes("next token"),
  first: 2,
  controls: page => [
    textField(page, "Text", "text", { rows: 2, wait: 300 }),
    field(page, "Predicted token or class", h("input", { type: "text", name: "target", maxlength: 100 }), {
      name: "target",
      wait: 400,
    }),
    runPicker(page, { fits: page.view.fits, none: "No run here has gradients: train lstm, gpt2 or bert." }),
  ],
  empty: "Choose a run, and write a text.",
  ask: async (state, signal) =>
    state.run.length && state.text.trim()
      ? post("attribution", { runs: state.run, text: state.text, target: state.target }, signal)
      : null,
  draw: (page, data, state, among = data.runs.map(run => run.analysis)) => ({
    pictures: data.runs.flatMap(run => [
      runHeading(run.run),
      ...drawAnalysis(run.analysis, page.width, { among, colour: colourOf(run.run) }),
    ]),
    tables: data.runs.map(run => table(run.run, run.analysis.columns, run.analysis.rows)),
  }),
};
