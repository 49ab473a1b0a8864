// Errors: loops, copied, dropped and invented words for unusual input.

import { post } from "../api.js";
import { numberField, runPicker, textField, tick } from "../fields.js";
import { table } from "../parts.js";
import { drawAnalysis } from "../figures.js";
import { colourOf } from "../colours.js";

const loop = found => (found ? `“${found.words.join(" ")}” ${found.times} times` : "");

export default {
  name: "errors",
  title: "Errors",
  lead:
    "What translators, and runs that continue texts, do with unusual input: each text is tried as it is, " +
    "scrambled, doubled and with one word repeated, and “ag ag ag ag” too. It counts loops, words copied from" +
    " the source and, by attention, words that are dropped or invented. It takes some seconds.",
  defaults: {
    run: "",
    lines: "There is a paper jam.\nHe kicked the bucket.\nA man is sitting on a bench.",
    provoked: true,
    tokens: 40,
    seed: 0,
  },
  example: ({ sentences }) => ({ lines: sentences.slice(0, 3).join("\n") }),
  fits: run => run.does.includes("target text") || run.does.includes("next token"),
  prefers: run => run.does.includes("target text"),
  controls: page => [
    textField(page, "Texts, one per line", "lines", { rows: 4, wait: 700 }),
    runPicker(page, { several: false, fits: page.view.fits, none: "No run here translates or continues texts." }),
    numberField(page, "Tokens", "tokens", { min: 1, max: 200 }),
    numberField(page, "Seed", "seed", { min: 0, max: 999999 }),
    tick(page, "scrambled, doubled and repeated, too", "provoked"),
  ],
  empty: "Choose a run, and write texts.",
  ask: async (state, signal) =>
    state.run && state.lines.trim()
      ? post(
          "errors",
          { run: state.run, lines: state.lines, provoked: state.provoked, tokens: state.tokens, seed: state.seed },
          signal,
        )
      : null,
  draw(page, data) {
    const heads = ["", "text", "output", "loop", "copied", ...(data.aligned ? ["dropped", "invented"] : [])];
    const rows = data.outputs.map(each => [
      each.kind,
      each.source,
      each.output,
      loop(each.loop),
      each.copied.join(" "),
      ...(data.aligned ? [each.dropped.join(" "), each.invented.join(" ")] : []),
    ]);
    return {
      pictures: [
        ...drawAnalysis(data.analysis, page.width, { colour: colourOf(page.state.run) }),
        table("Every text", heads, rows),
      ],
      tables: [table("Texts with an error, by kind", data.analysis.columns, data.analysis.rows)],
    };
  },
};
