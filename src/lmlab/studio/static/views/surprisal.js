// Surprisal: a text coloured by the surprisal of its tokens in each run, and the difference of two runs.

import { h, number, visible } from "../dom.js";
import { post } from "../api.js";
import { runPicker, textField, choice } from "../fields.js";
import { colouredText, legend, swatch, table } from "../parts.js";

const STRONGEST = 12;
const strength = bits => Math.min(1, Math.max(0, bits) / STRONGEST);

/** A token as it is written; line ends and tabs as they are in the text. */
const written = (each, letters) => {
  const own = letters.slice(each.start, each.end).join("");
  return own && !own.trim() ? own : each.token;
};

const about = run =>
  [
    `${number(run.bits, 1)} ${run.pseudo ? "pseudo-" : ""}bits`,
    `${number(run.bits_per_byte)} per byte`,
    run.lossy && "lossy: part of the text is lost",
    run.pseudo && "each token predicted from all others",
  ]
    .filter(Boolean)
    .join(" · ");

export default {
  name: "surprisal",
  title: "Surprisal",
  lead:
    "The stronger the colour, the higher the surprisal of the token, −log₂ P, in bits. The difference of two " +
    "runs is computed word by word, so that runs with different tokenizers can be compared.",
  defaults: {
    run: [],
    text: "Return a new list containing all elements of the sequence.\nThe keeper of the cabinet are old.",
    show: "each",
  },
  saved: ["show"],
  example: ({ sentences }) => ({ text: sentences.slice(0, 3).join("\n") }),
  fits: run => run.does.includes("next token") || run.does.includes("masks"),
  prefers: run => run.does.includes("next token"),
  first: 2,
  controls: page => [
    textField(page, "Text", "text", { wait: 250 }),
    runPicker(page, { fits: page.view.fits, none: "No run here scores texts." }),
    choice(page, "Show", "show", [
      ["each", "every run"],
      ["difference", "the first run minus the second"],
    ]),
  ],
  asks: state => [state.run, state.text],
  ask: async (state, signal) =>
    state.run.length && state.text.trim()
      ? { text: state.text, ...(await post("surprisal", { runs: state.run, text: state.text }, signal)) }
      : null,
  empty: "Choose a run and write a text.",
  draw(page, data, state) {
    const width = page.width,
      letters = [...data.text]; // as Python counts them
    const tables = data.runs.map(run =>
      table(
        `${run.run}: every token`,
        ["token", "bits"],
        run.tokens.map(each => [visible(each.token), each.bits]),
      ),
    );
    const [a, b] = data.runs;
    if (state.show === "difference") {
      if (!b) return { pictures: h("p", { class: "empty" }, "Choose two runs to see their difference."), tables };
      const words = a.words.map((word, index) => ({
        piece: word.word,
        first: word.bits,
        second: b.words[index].bits,
        by: word.bits - b.words[index].bits,
      }));
      const pieces = words.map(({ piece, first, second, by }) => ({
        piece,
        share: strength(Math.abs(by) * 1.5),
        sign: by < 0 ? -1 : 1,
        says:
          `“${piece}”: ${number(first, 2)} bits for ${a.run}, ` +
          `${number(second, 2)} for ${b.run}: ${number(Math.abs(by), 2)} bits ${by > 0 ? "more" : "fewer"}`,
      }));
      return {
        pictures: [
          h(
            "figure",
            {},
            h(
              "figcaption",
              {},
              `${a.run} minus ${b.run}`,
              h("small", {}, `line below: ${a.run} has the higher surprisal; line above: ${b.run}`),
            ),
            legend("bits", [-8, -4, -2, 0, 2, 4, 8], bits => Math.sign(bits) * strength(Math.abs(bits) * 1.5), {
              signed: true,
            }),
            colouredText(pieces, width),
          ),
        ],
        tables: [
          table(
            "Bits of each word",
            ["word", a.run, b.run, "difference"],
            words.map(({ piece, first, second, by }) => [piece, first, second, by]),
          ),
          ...tables,
        ],
      };
    }
    const figures = data.runs.map(run =>
      h(
        "figure",
        {},
        h("figcaption", {}, swatch(run.run), run.run, h("small", {}, about(run))),
        colouredText(
          run.tokens.map(each => ({
            piece: written(each, letters),
            share: strength(each.bits),
            says: `${run.run}: “${visible(written(each, letters))}”, ${number(each.bits, 2)} bits`,
          })),
          width,
        ),
      ),
    );
    return { pictures: [legend("bits", [0.5, 2, 4, 7, 10, 12], strength), ...figures], tables };
  },
};
