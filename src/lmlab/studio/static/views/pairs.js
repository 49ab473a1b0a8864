// Minimal pairs: which of two sentences each run finds more probable.

import { h, number, percent } from "../dom.js";
import { post } from "../api.js";
import { bars, choice, runPicker, table, textField } from "../parts.js";
import { runColour } from "../colours.js";

export default {
  name: "pairs",
  title: "Minimal pairs",
  lead: "Two sentences that differ in one thing, of which one is right: a run that knows the difference finds it more probable. One pair per line, the right sentence first, with | or a tab between. Ready sets (BLiMP, agreement): lmlab inspect minimal-pairs.",
  defaults: { run: [], pairs: "The keys to the cabinet are old. | The keys to the cabinet is old.\nThe author near the senators laughs. | The author near the senators laugh.\nThe functions return a new list. | The functions returns a new list.", region: "full" },
  fits: run => run.does.includes("next token") || run.does.includes("blanks"),
  prefers: run => run.does.includes("next token"),
  first: 3,
  controls: page => [textField(page, "Pairs", "pairs", { rows: 5, wait: 500 }), runPicker(page, { fits: page.view.fits, none: "No run here scores texts." }), choice(page, "Judged by", "region", [["full", "whole sentences"], ["critical", "the words that differ"]])],
  empty: "Choose a run, and write pairs.",
  ask: async (state, signal) => state.run.length && state.pairs.trim() ? post("pairs", { runs: state.run, pairs: state.pairs, region: state.region }, signal) : null,
  draw(page, data) {
    const rows = data.runs[0].judged.map((pair, place) => [pair.good, pair.bad, ...data.runs.map(run => { const each = run.judged[place], by = (each.good_score - each.bad_score) / Math.LN2; return `${by > 0 ? "✓" : "✗"} ${number(by, 1)}` })]);
    return {
      pictures: [h("figure", {}, h("figcaption", {}, "Share of pairs that are right", h("small", {}, "chance is 50%")), ...data.runs.map((run, place) => bars([{ piece: run.run, share: run.accuracy, number: percent(run.accuracy), says: `${run.run}: ${run.shown.lead}` }], runColour(place), page.width, 1))), table("How many bits the right sentence is more probable", ["right", "wrong", ...data.runs.map(run => run.run)], rows), ...data.runs.flatMap(run => run.shown.notes.map(note => h("p", { class: "lead" }, `${run.run}: ${note}`)))],
      tables: data.runs.map(run => table(run.run, ["right", "wrong", "log P of the right", "log P of the wrong"], run.judged.map(each => [each.good, each.bad, each.good_score, each.bad_score]))),
    };
  },
};
