// Next token: what several runs predict after the same text; a click appends.

import { h, percent, short, visible } from "../dom.js";
import { post } from "../api.js";
import { isSaved } from "../recording.js";
import { runPicker, slider, textField, numberField } from "../fields.js";
import { bars, count, sideBySide, swatch, table } from "../parts.js";
import { colourOf } from "../colours.js";

export default {
  name: "next",
  title: "Next token",
  lead:
    "Type, and see the next tokens that each run predicts. Full bars: probability after temperature and " +
    "top-p. Dashed outlines: probability of the model. Click a bar, or press Enter on it, to append the " +
    "token.",
  defaults: { run: [], text: "Return a new", temperature: 1, top_p: 1, top: 12 },
  prompt: state => state.text,
  saved: ["temperature", "top_p", "top"],
  example: ({ prompt }) => ({ text: prompt }),
  fits: run => run.does.includes("next token"),
  first: 3,
  controls: page => [
    textField(page, "Text", "text", { rows: 2, wait: 30 }),
    runPicker(page, { fits: page.view.fits, none: "No run here predicts the next token: train ngram, lstm or gpt2." }),
    slider(page, "Temperature", "temperature", { min: 0.1, max: 2.5, step: 0.05 }),
    slider(page, "Top-p", "top_p", { min: 0.05, max: 1, step: 0.05 }),
    numberField(page, "Tokens shown", "top", { min: 1, max: 50 }),
  ],
  ask: async (state, signal) =>
    state.run.length
      ? post(
          "next",
          { runs: state.run, text: state.text, temperature: state.temperature, top_p: state.top_p, top: state.top },
          signal,
        )
      : null,
  draw(page, data) {
    const pictures = sideBySide(
      data.runs,
      page.width,
      (run, width) =>
        h(
          "figure",
          {},
          h(
            "figcaption",
            {},
            swatch(run.run),
            run.run,
            h("small", {}, `perplexity ${short(run.perplexity)} · ${count(run.kept, "token")} can be sampled`),
          ),
          bars(
            run.tokens.map(each => ({
              piece: each.piece,
              share: each.probability,
              kept: each.sampled,
              number: percent(each.sampled),
              says:
                `${run.run}: “${visible(each.piece)}” has probability ${percent(each.probability)}, ` +
                `${percent(each.sampled)} after temperature and top-p`,
              pick: each.adds === "" ? undefined : each.adds,
            })),
            colourOf(run.run),
            width,
            undefined,
            data.runs.flatMap(each => each.tokens.map(token => token.piece)),
          ),
        ),
      { least: 330 },
    );
    return {
      pictures,
      tables: data.runs.map(run =>
        table(
          run.run,
          ["token", "probability", "sampled with"],
          run.tokens.map(each => [visible(each.piece), each.probability, each.sampled]),
        ),
      ),
    };
  },
  pick(page, adds) {
    if (isSaved()) return page.say("A saved lecture has no model that could read the longer text.");
    page.set({ text: page.state.text + adds });
    const area = page.element.querySelector("textarea[name=text]");
    if (document.activeElement !== area) area.value = page.state.text;
  },
};
