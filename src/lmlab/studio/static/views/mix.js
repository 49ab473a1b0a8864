// Layer mix: which layers the head of a fine-tuned run reads.

import { h, percent } from "../dom.js";
import { post } from "../api.js";
import { bars, runPicker, table } from "../parts.js";
import { runColour } from "../colours.js";

export default {
  name: "mix",
  title: "Layer mix",
  lead: "A run that was fine-tuned with --how mix has learnt how much of each layer its task needs: γ Σ softmax(s)ⱼ hⱼ (Peters et al. 2018). Layer 0 is the embeddings.",
  defaults: { run: [] },
  fits: run => Boolean(run.task) && run.how === "mix",
  first: 4,
  controls: page => [runPicker(page, { fits: page.view.fits, none: "No run here has learnt a mix of layers: lmlab finetune RUN DATA -o NEW --how mix." })],
  empty: "No run here has learnt a mix of layers: lmlab finetune RUN DATA -o NEW --how mix",
  ask: async (state, signal) => state.run.length ? post("mix", { runs: state.run }, signal) : null,
  draw: (page, data) => ({
    pictures: h("div", { class: "columns" }, data.runs.map((run, place) => h("figure", {}, h("figcaption", {}, run.run, h("small", {}, run.task)), bars(run.shares.map((share, layer) => ({ piece: `layer ${layer}`, share, number: percent(share), says: `${run.run}, layer ${layer}: ${percent(share)}` })), runColour(place), Math.floor((page.width - 24) / 2))))),
    tables: data.runs.map(run => table(run.run, ["layer", "share"], run.shares.map((share, layer) => [layer, share]))),
  }),
};
