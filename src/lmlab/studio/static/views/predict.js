// Predict: classes, scores, tags, answers and choices by a fine-tuned run.

import { h, number, percent } from "../dom.js";
import { postV1 } from "../api.js";
import { runPicker, textField } from "../fields.js";
import { bars, colouredText, table } from "../parts.js";
import { colourOf } from "../colours.js";

const TAG_HUES = new Map();
const index = tag => {
  const name = tag.replace(/^[BIES]-/, "");
  if (!TAG_HUES.has(name)) TAG_HUES.set(name, TAG_HUES.size);
  return TAG_HUES.get(name);
};

const draws = {
  tagging: (page, data) => {
    const tags = data.prediction.value;
    return {
      pictures: [
        h(
          "figure",
          {},
          h("figcaption", {}, "Tags"),
          colouredText(
            data.words.map((word, at) => ({
              piece: `${word}/${tags[at]}`,
              share: tags[at] === "O" ? 0 : 0.35 + 0.12 * (index(tags[at]) % 5),
              says: `${word}: ${tags[at]}`,
            })),
            page.width,
          ),
        ),
      ],
      tables: [
        table(
          "Tags",
          ["word", "tag"],
          data.words.map((word, at) => [word, tags[at]]),
        ),
      ],
    };
  },
  spans: (page, data, state) => {
    const { span, value, probability } = data.prediction;
    const letters = [...state.second],
      cut = (from, to) => letters.slice(from, to).join(""); // as Python counts them
    const pieces = span ? [cut(0, span[0]), cut(...span), cut(span[1])] : [state.second];
    return {
      pictures: [
        h(
          "p",
          {},
          "Answer: ",
          h("b", {}, value || "none in the context"),
          probability !== undefined && ` (${percent(probability)})`,
        ),
        h(
          "p",
          {},
          pieces.map((each, at) => (at === 1 ? h("mark", {}, each) : each)),
        ),
      ],
      tables: [table("Answers", ["answer", "score"], Object.entries(data.prediction.scores))],
    };
  },
};
const byClass = (page, data) => {
  const scores = Object.entries(data.prediction.scores)
    .sort((a, b) => b[1] - a[1])
    .slice(0, 30);
  const { value, probability } = data.prediction;
  return {
    pictures: [
      h(
        "p",
        {},
        "Prediction: ",
        h("b", {}, typeof value === "number" && !Number.isInteger(value) ? number(value) : String(value)),
        probability !== undefined && ` with probability ${percent(probability)}`,
      ),
      scores.length > 0 &&
        h(
          "figure",
          {},
          bars(
            scores.map(([name, share]) => ({
              piece: name,
              share,
              number: percent(share),
              says: `${name}: ${percent(share)}`,
            })),
            colourOf(page.state.run),
            Math.min(page.width, 640),
          ),
        ),
    ],
    tables: [table("Scores", ["class", "probability"], scores)],
  };
};

export default {
  name: "predict",
  title: "Classify",
  lead:
    "The prediction of a fine-tuned run for a text: its class, its score, the tags of its words, the answer " +
    "to a question, or the best of several choices.",
  defaults: { run: "", text: "a lovely and moving film", second: "", choices: "" },
  prompt: state => [state.text, state.second].filter(Boolean).join("\n"),
  example: ({ sentences: [text = ""] }) => ({ text }),
  fits: run => Boolean(run.task),
  controls: page => {
    const second = textField(page, "Second text (or the context of a question)", "second", { rows: 3, wait: 300 }),
      choices = textField(page, "Choices, one per line", "choices", { rows: 3, wait: 300 });
    page.follow(state => {
      const run = page.runs.find(each => each.name === state.run);
      choices.hidden = run?.task !== "choice";
      second.hidden = run?.task === "choice" || run?.task === "tagging";
    });
    return [
      textField(page, "Text (or question)", "text", { rows: 2, wait: 300 }),
      second,
      choices,
      runPicker(page, {
        several: false,
        fits: page.view.fits,
        none: "No run here has learnt a task: lmlab finetune RUN DATA -o NEW.",
      }),
    ];
  },
  empty: "Choose a fine-tuned run, and write a text.",
  async ask(state, signal) {
    if (!state.run || !state.text.trim()) return null;
    const choices = state.choices.split("\n").filter(each => each.trim());
    const input = {
      text: state.text,
      second: state.second.trim() ? state.second : null,
      choices: choices.length ? choices : null,
    };
    const { task, data, warnings } = await postV1("predict", { model: state.run, input }, signal);
    const { words, ...prediction } = data[0];
    return { task, words, prediction, warnings };
  },
  draw: (page, data, state) => (draws[data.task] ?? byClass)(page, data, state),
};
