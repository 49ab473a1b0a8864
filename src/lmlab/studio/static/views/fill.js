// Blanks: click words to hide them, and see what masked models put there, each by itself or several jointly.

import { h, percent, visible } from "../dom.js";
import { post } from "../api.js";
import { bars, choice, numberField, runPicker, table, textField, tick } from "../parts.js";
import { runColour } from "../colours.js";

const split = text => text.match(/\s+|[\p{L}\p{N}’'_-]+|[^\s\p{L}\p{N}]/gu) ?? [];

/** The text with a blank in place of each hidden piece. */
export const hide = (text, hidden) =>
  split(text)
    .map((piece, place) => (hidden.includes(String(place)) ? "[MASK]" : piece))
    .join("");

export default {
  name: "blanks",
  title: "Blanks",
  lead: "Click words of the text to hide them. A masked model reads both sides and says what might stand there; several blanks are filled each by itself, P(a)·P(b), or jointly, P(a)·P(b | a), so that they suit each other.",
  defaults: {
    run: [],
    text: "Return a new list of the elements in the sequence.",
    hidden: ["6"],
    jointly: false,
    order: "left-to-right",
    top: 6,
  },
  fits: run => run.does.includes("blanks"),
  first: 2,
  controls: page => {
    const words = h("div", { class: "words wide", role: "group", "aria-label": "Words: press one to hide it" });
    let before = "";
    page.follow(state => {
      const now = JSON.stringify([state.text, state.hidden]);
      if (now === before) return;
      before = now;
      const focused = [...words.children].indexOf(document.activeElement);
      words.replaceChildren(
        ...split(state.text).map((piece, place) =>
          /\s/.test(piece)
            ? document.createTextNode(piece)
            : h(
                "button",
                {
                  type: "button",
                  "aria-pressed": state.hidden.includes(String(place)) ? "true" : "false",
                  onclick: () =>
                    page.set({
                      hidden: page.state.hidden.includes(String(place))
                        ? page.state.hidden.filter(each => each !== String(place))
                        : [...page.state.hidden, String(place)],
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
        none: "No run here fills blanks: train bert, roberta, albert or electra.",
      }),
      tick(page, "jointly", "jointly"),
      choice(page, "Order of joint filling", "order", [
        ["left-to-right", "from left to right"],
        ["confident", "the surest first"],
      ]),
      numberField(page, "Fillings", "top", { min: 1, max: 20 }),
    ];
  },
  empty: "Choose a run that fills blanks, and click a word.",
  ask: async (state, signal) => {
    const text = hide(state.text, state.hidden);
    return state.run.length && text.includes("[MASK]")
      ? {
          text,
          ...(await post(
            "blanks",
            { runs: state.run, text, top: state.top, jointly: state.jointly, order: state.order },
            signal,
          )),
        }
      : null;
  },
  draw(page, data, state) {
    const hidden = state.hidden
      .map(Number)
      .sort((a, b) => a - b)
      .map(place => split(state.text)[place])
      .filter(Boolean);
    const tables = [];
    const pictures = data.runs.map(({ run, filled }) => {
      const columns = Math.max(1, Math.min(filled.blanks.length, Math.floor((page.width + 24) / 354))),
        width = Math.floor((page.width - 24 * (columns - 1)) / columns);
      const rows = filled.fillings.map(each => [each.text, each.joint, each.independent]);
      tables.push(
        table(
          `${run}: each blank by itself`,
          ["blank", "token", "probability"],
          filled.blanks.flatMap((blank, number) =>
            blank.map(each => [`${number + 1} (${hidden[number] ?? ""})`, visible(each.token), each.probability]),
          ),
        ),
      );
      return h(
        "div",
        {},
        h(
          "h2",
          {},
          h("span", { class: "swatch", style: { "--c": runColour(page.state.run.indexOf(run)) } }),
          " ",
          run,
          filled.by_generator && h("small", {}, " its generator fills"),
        ),
        h(
          "div",
          { class: "columns" },
          filled.blanks.map((blank, number) =>
            h(
              "figure",
              {},
              h("figcaption", {}, `Blank ${number + 1}`, h("small", {}, `there stood “${hidden[number] ?? ""}”`)),
              bars(
                blank.map(each => ({
                  piece: each.token,
                  share: each.probability,
                  number: percent(each.probability),
                  says: `${run}, blank ${number + 1}: “${visible(each.token)}” ${percent(each.probability)}`,
                })),
                runColour(page.state.run.indexOf(run)),
                width,
              ),
            ),
          ),
        ),
        table(
          filled.jointly ? "Whole texts, by joint probability" : "Whole texts, by the product",
          ["text", "P jointly", "P by the product"],
          rows,
        ),
      );
    });
    return { pictures, tables };
  },
};
