// Probes: what a small classifier can read from each layer, with controls.

import { post } from "../api.js";
import { choice, runPicker, textField } from "../fields.js";
import { table } from "../parts.js";
import { drawAnalysis } from "../figures.js";

const LINES = [
  "The/DET cat/NOUN sat/VERB on/ADP the/DET mat/NOUN",
  "A/DET dog/NOUN ran/VERB to/ADP the/DET house/NOUN",
  "The/DET old/ADJ man/NOUN saw/VERB a/DET small/ADJ bird/NOUN",
  "A/DET child/NOUN found/VERB the/DET red/ADJ ball/NOUN",
  "The/DET teacher/NOUN reads/VERB a/DET long/ADJ book/NOUN",
  "A/DET new/ADJ list/NOUN holds/VERB the/DET names/NOUN",
  "The/DET function/NOUN returns/VERB a/DET new/ADJ value/NOUN",
  "A/DET string/NOUN follows/VERB the/DET first/ADJ word/NOUN",
];

export default {
  name: "probes",
  title: "Probes",
  lead:
    "A small classifier learns to predict tags from the vectors of each layer. A probe can learn the task by " +
    "itself, so three controls are shown: random labels per word (control task), the same network with random" +
    " weights, and the most frequent class. Half of the sentences are for testing. Ready sets from treebanks:" +
    " lmlab inspect probing.",
  defaults: { run: "", lines: LINES.join("\n"), kind: "linear" },
  example: ({ tagged }) => ({ lines: (tagged.length >= 4 ? tagged : LINES).join("\n") }),
  fits: run => run.does.includes("vectors") && !run.does.includes("target text"),
  prefers: run => run.does.includes("masks"),
  controls: page => [
    textField(page, "Sentences with a tag behind each word", "lines", { rows: 6, wait: 700 }),
    runPicker(page, { several: false, fits: page.view.fits, none: "No run here gives vectors." }),
    choice(page, "Probe", "kind", [
      ["linear", "linear"],
      ["mlp", "with a hidden layer"],
    ]),
  ],
  empty: "Choose a run, and write sentences.",
  ask: async (state, signal) =>
    state.run && state.lines.trim()
      ? post("probes", { run: state.run, lines: state.lines, kind: state.kind }, signal)
      : null,
  draw: (page, data) => ({
    pictures: drawAnalysis(data.analysis, page.width),
    tables: [table(data.analysis.title, data.analysis.columns, data.analysis.rows)],
  }),
};
