// Fill: click words to mask them, and see what masked models predict there, independently or jointly.

import { h, percent, visible } from "../dom.js";
import { forEachRun, postV1 } from "../api.js";
import { choice, numberField, runPicker, textField, tick } from "../fields.js";
import { bars, runHeading, sideBySide, table } from "../parts.js";
import { colourOf } from "../colours.js";

const split = text => text.match(/\s+|[\p{L}\p{N}’'_-]+|[^\s\p{L}\p{N}]/gu) ?? [];

/** The text with [MASK] instead of each hidden piece. */
export const hide = (text, hidden) =>
  split(text)
    .map((piece, index) => (hidden.includes(String(index)) ? "[MASK]" : piece))
    .join("");

/** The masks of a text after it was edited: those before and after the edit stay on their words. */
export const moveMasks = (before, after, hidden) => {
  const old = split(before),
    now = split(after);
  let head = 0,
    tail = 0;
  while (head < Math.min(old.length, now.length) && old[head] === now[head]) head++;
  while (tail < Math.min(old.length, now.length) - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++;
  if (!head && !tail) return middleWord(now);
  return hidden.flatMap(each => {
    const index = Number(each);
    if (index < head) return each;
    return index >= old.length - tail ? String(index + now.length - old.length) : [];
  });
};

const middleWord = pieces => {
  const words = pieces.flatMap((piece, index) => (/[\p{L}\p{N}]/u.test(piece) ? String(index) : []));
  return words.length ? [words[Math.floor(words.length / 2)]] : [];
};

export default {
  name: "fill",
  title: "Fill",
  lead:
    "Click words of the text to mask them. A masked model reads both sides and predicts each masked token. " +
    "Several are filled independently, P(a)·P(b), or jointly, P(a)·P(b | a).",
  defaults: {
    run: [],
    text: "Return a new list of the elements in the sequence.",
    hidden: ["6"],
    jointly: false,
    order: "left-to-right",
    top: 6,
  },
  prompt: state => hide(state.text, state.hidden),
  saved: ["jointly"],
  variants: state => [{ jointly: !state.jointly }],
  example: ({ sentences: [text = ""] }) => ({ text, hidden: middleWord(split(text)) }),
  fits: run => run.does.includes("masks"),
  first: 2,
  change: (before, after) =>
    before.text !== after.text && before.hidden === after.hidden
      ? { hidden: moveMasks(before.text, after.text, after.hidden) }
      : {},
  controls: page => {
    const words = h("div", { class: "words wide", role: "group", "aria-label": "Words: press one to mask it" });
    let before = "";
    page.follow(state => {
      const now = JSON.stringify([state.text, state.hidden]);
      if (now === before) return;
      before = now;
      const focused = [...words.children].indexOf(document.activeElement);
      words.replaceChildren(
        ...split(state.text).map((piece, index) =>
          /\s/.test(piece)
            ? document.createTextNode(piece)
            : h(
                "button",
                {
                  type: "button",
                  "aria-pressed": state.hidden.includes(String(index)) ? "true" : "false",
                  onclick: () =>
                    page.set({
                      hidden: page.state.hidden.includes(String(index))
                        ? page.state.hidden.filter(each => each !== String(index))
                        : [...page.state.hidden, String(index)],
                    }),
                },
                piece,
              ),
        ),
      );
      if (focused >= 0) words.children[focused]?.focus();
    });
    return [
      textField(page, "Text", "text", { rows: 2, wait: 250 }),
      words,
      runPicker(page, {
        fits: page.view.fits,
        none: "No run here fills masks: train bert, roberta, albert or electra.",
      }),
      tick(page, "jointly", "jointly"),
      choice(page, "Order of joint filling", "order", [
        ["left-to-right", "left to right"],
        ["confident", "most confident first"],
      ]),
      numberField(page, "Fillings", "top", { min: 1, max: 20 }),
    ];
  },
  empty: "Choose a run that fills masks, and click a word.",
  ask: async (state, signal) => {
    const { top, jointly, order } = state,
      text = hide(state.text, state.hidden);
    if (!state.run.length || !text.includes("[MASK]")) return null;
    const fill = async model => ({ filled: await postV1("fill", { model, text, top, jointly, order }, signal) });
    return { text, ...(await forEachRun(state.run, fill)) };
  },
  draw(page, data, state) {
    const hidden = state.hidden
      .map(Number)
      .sort((a, b) => a - b)
      .map(index => split(state.text)[index])
      .filter(Boolean);
    const names = data.runs.flatMap(({ filled }) => filled.candidates.flat().map(each => each.token)),
      tables = [];
    const pictures = data.runs.map(({ run, filled }) => {
      const rows = filled.fillings.map(each => [each.text, each.joint, each.independent]);
      tables.push(
        table(
          `${run}: each masked token independently`,
          ["mask", "token", "probability"],
          filled.candidates.flatMap((tokens, number) =>
            tokens.map(each => [`${number + 1} (${hidden[number] ?? ""})`, visible(each.token), each.probability]),
          ),
        ),
      );
      return h(
        "div",
        {},
        runHeading(run, filled.by_generator && h("small", {}, " filled by its generator")),
        sideBySide(
          [...filled.candidates.entries()],
          page.width,
          ([number, tokens], width) =>
            h(
              "figure",
              {},
              h("figcaption", {}, `Mask ${number + 1}`, h("small", {}, `Original: “${hidden[number] ?? ""}”`)),
              bars(
                tokens.map(each => ({
                  piece: each.token,
                  share: each.probability,
                  number: percent(each.probability),
                  says: `${run}, mask ${number + 1}: “${visible(each.token)}” ${percent(each.probability)}`,
                })),
                colourOf(run),
                width,
                undefined,
                names,
              ),
            ),
          { least: 330 },
        ),
        table(
          filled.jointly ? "Whole texts, by joint probability" : "Whole texts, by the product of probabilities",
          ["text", "joint P", "product of P"],
          rows,
        ),
      );
    });
    return { pictures, tables };
  },
};
