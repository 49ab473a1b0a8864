// Translate: what a search finds, and which source words each target word was written from.

import { h, number, visible } from "../dom.js";
import { post } from "../api.js";
import { choice, numberField, runPicker, slider, textField } from "../fields.js";
import { table } from "../parts.js";
import { heatMap } from "../heat.js";

/** Target tokens that are drawn at most; the table has all. */
const MOST_ROWS = 32;

export default {
  name: "translate",
  title: "Translate",
  lead:
    "Translations by an encoder–decoder with beam search. Each row of the matrix shows the attention to the " +
    "source when that token was written. You can enter your own translation to see its alignment.",
  defaults: { run: "", text: "a man is sitting on a bench .", target: "", beams: 4, penalty: 0.6, layer: -1, head: -1 },
  ownText: true, // a source in its own language
  prompt: state => state.text,
  example: ({ sentences: [text = ""] }) => ({ text }),
  fits: run => run.does.includes("target text"),
  controls: page => [
    textField(page, "Source", "text", { rows: 2, wait: 300 }),
    textField(page, "A translation of your own (optional)", "target", { rows: 1, wait: 300 }),
    runPicker(page, {
      several: false,
      fits: page.view.fits,
      none: "No run here translates: train transformer, bart or seq2seq on pairs.",
    }),
    numberField(page, "Beams", "beams", { min: 1, max: 10 }),
    slider(page, "Length penalty", "penalty", { min: 0, max: 2, step: 0.1 }),
    numberField(page, "Decoder block (−1 is the last)", "layer", { min: -64, max: 63 }),
    choice(page, "Head", "head", [[-1, "mean of all"], ...Array.from({ length: 16 }, (_, n) => [n, `head ${n}`])], {
      number: true,
    }),
  ],
  empty: "Choose a translator, and write a source.",
  ask: async (state, signal) =>
    state.run && state.text.trim()
      ? post(
          "translate",
          {
            run: state.run,
            text: state.text,
            beams: state.beams,
            length_penalty: state.penalty,
            layer: state.layer,
            head: state.head < 0 ? null : state.head,
            target: state.target.trim() ? state.target : null,
          },
          signal,
        )
      : null,
  draw(page, data) {
    const found = table(
      "Translations, best first",
      ["text", "score", "log P", "end"],
      data.translations.map(each => [
        each.text,
        each.score,
        each.log_probability,
        each.finished ? "ended by the model" : "length limit reached",
      ]),
    );
    const { alignment } = data,
      end = (list, index) => (index === list.length - 1 ? "■" : list[index]);
    const source = alignment?.source.map((_, index) => end(alignment.source, index)),
      target = alignment?.target.map((_, index) => end(alignment.target, index));
    const picture = alignment
      ? h(
          "figure",
          {},
          h(
            "figcaption",
            {},
            "Where it looked",
            h(
              "small",
              {},
              "target from top to bottom, source from left to right",
              target.length > MOST_ROWS && `; the first ${MOST_ROWS} tokens`,
            ),
          ),
          h(
            "div",
            { class: "scroll" },
            heatMap({
              cell: Math.max(
                15,
                Math.min(24, Math.floor(520 / Math.max(source.length, Math.min(MOST_ROWS, target.length)))),
              ),
              rows: target.slice(0, MOST_ROWS),
              columns: source,
              weights: alignment.weights,
              name: "Alignment",
              says: (row, column, value) =>
                `“${visible(target[row])}” looks at “${visible(source[column])}” with ${number(value)}`,
            }),
          ),
        )
      : h("p", { class: "empty" }, data.why_not ?? "Nothing was translated.");
    return {
      pictures: [found, picture],
      tables: alignment
        ? [
            table(
              "Attention of target tokens to source tokens",
              ["", ...source],
              alignment.weights.map((row, index) => [target[index], ...row]),
            ),
          ]
        : [],
    };
  },
};
