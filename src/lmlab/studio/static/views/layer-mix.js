// Layer mix: which layers the head of a fine-tuned run reads.

import { post } from "../api.js";
import { runPicker } from "../fields.js";
import { table } from "../parts.js";
import { drawAnalysis } from "../figures.js";

const NONE = "No run here has learnt a mix of layers: lmlab finetune RUN DATA -o NEW --how mix";

export default {
  name: "layer-mix",
  title: "Layer mix",
  lead:
    "A run that was fine-tuned with --how mix has learnt the weight of each layer for its task: γ Σ " +
    "softmax(s)ⱼ hⱼ (Peters et al. 2018). Layer 0 is the embeddings.",
  defaults: { run: [] },
  fits: run => Boolean(run.task) && run.how === "mix",
  first: 4,
  controls: page => [runPicker(page, { fits: page.view.fits, none: NONE })],
  empty: NONE,
  ask: async (state, signal) => (state.run.length ? post("layer-mix", { runs: state.run }, signal) : null),
  draw: (page, data) => ({
    pictures: drawAnalysis(data.analysis, page.width),
    tables: [table(data.analysis.title, data.analysis.columns, data.analysis.rows)],
  }),
};
