// Cells: one unit over a text; units that are active in a selected span; units that detect a property.

import { h, number, visible } from "../dom.js";
import { post } from "../api.js";
import { choice, numberField, runPicker, textField } from "../fields.js";
import { colouredText, legend, table } from "../parts.js";
import { drawAnalysis } from "../figures.js";

const PROPERTIES = [
  ["", "(choose)"],
  ["quotes", "inside quotes"],
  ["brackets", "inside brackets"],
  ["line", "late in a line"],
  ["capitals", "words in capitals"],
  ["if", "the condition of an if"],
  ["pattern", "a regular expression"],
];

const found = (page, cells, areaOf) =>
  h(
    "div",
    { class: "choices", role: "group", "aria-label": "Units that were found" },
    cells.map(each =>
      h(
        "button",
        {
          type: "button",
          "data-unit": each.unit,
          onclick: () =>
            page.set(
              { layer: each.layer, part: each.part, unit: each.unit, find: "", from: -1, to: -1 },
              { push: true },
            ),
        },
        `layer ${each.layer} ${each.part} ${each.unit} · ${number(areaOf(each), 2)}`,
      ),
    ),
  );

export default {
  name: "cells",
  title: "Cells",
  lead:
    "The activation of one unit while the network reads: blue above zero, orange below. Select a part of the " +
    "text and ask which units are active there; or search the held-out text of the run for units that detect " +
    "a property. They are chosen on one half of it and evaluated on the other, which takes some seconds.",
  defaults: {
    run: "",
    text: 'He said "we sat in the garden" and left. She asked "why (of all things) now?" and then wrote it down.',
    layer: 0,
    part: "",
    unit: 0,
    find: "",
    pattern: "\\d+",
    from: -1,
    to: -1,
  },
  variants: (state, { cell }) =>
    Array.from({ length: 12 }, (_, step) => ({ layer: cell.layer, part: cell.part, unit: cell.unit + step })),
  example: ({ sentences }) => ({ text: sentences.slice(0, 4).join("\n") }),
  fits: run => run.does.includes("vectors") && !run.does.includes("target text"),
  prefers: run => run.window === null,
  controls: page => {
    const part = choice(page, "Part", "part", [["", "–"]]),
      layer = choice(page, "Layer", "layer", [[0, "0"]], { number: true });
    page.fields = data => {
      part.options([...new Set(data.parts.map(each => each.part))]);
      part.querySelector("select").value = data.cell.part;
      layer.options([...new Set(data.parts.map(each => each.layer))].map(each => [each, String(each)]));
      layer.querySelector("select").value = String(data.cell.layer);
    };
    const text = textField(page, "Text", "text", { wait: 300 }),
      area = text.querySelector("textarea");
    const search = h(
      "button",
      {
        type: "button",
        "data-do": "spans",
        onclick: () => page.set({ find: "span", from: area.selectionStart, to: area.selectionEnd }),
      },
      "Which units are active in the selection?",
    );
    const pattern = textField(page, "Regular expression", "pattern", { rows: 1, wait: 500 });
    page.follow(state => {
      pattern.hidden = state.find !== "pattern";
    });
    return [
      text,
      runPicker(page, {
        several: false,
        fits: page.view.fits,
        none: "No run here has cells: train lstm, gru, rnn or a Transformer.",
      }),
      part,
      layer,
      numberField(page, "Unit", "unit", { min: 0, max: 100000 }),
      search,
      choice(page, "Find units that detect", "find", [...PROPERTIES, ["span", "the selection"]]),
      pattern,
    ];
  },
  asks: state => [
    state.run,
    state.text,
    state.layer,
    state.part,
    state.unit,
    state.find,
    state.find === "pattern" && state.pattern,
    state.find === "span" && [state.from, state.to],
  ],
  async ask(state, signal) {
    if (!state.run || !state.text.trim()) return null;
    const one = await post(
      "cells",
      { run: state.run, text: state.text, layer: state.layer, part: state.part, unit: state.unit },
      signal,
    );
    if (state.find === "span" && state.to > state.from && state.from >= 0) {
      const points = [...state.text.slice(0, state.from)].length,
        span = [points, points + [...state.text.slice(state.from, state.to)].length];
      return {
        ...one,
        spans: (await post("cells/spans", { run: state.run, text: state.text, spans: [span] }, signal)).cells,
        span: state.text.slice(state.from, state.to),
      };
    }
    if (state.find && state.find !== "span")
      return {
        ...one,
        property: await post(
          "cells/property",
          { run: state.run, property: state.find, pattern: state.find === "pattern" ? state.pattern : "" },
          signal,
        ),
      };
    return one;
  },
  empty: "Choose a run, and write a text.",
  draw(page, data) {
    page.fields(data);
    const { cell } = data,
      most = Math.max(...cell.pieces.map(([, value]) => Math.abs(value)), 1e-9),
      stops = [-1, -0.5, 0, 0.5, 1].map(each => Number((each * most).toPrecision(2)));
    const parts = data.parts.find(each => each.layer === cell.layer && each.part === cell.part);
    const step = by =>
      h(
        "button",
        {
          type: "button",
          "aria-label": by < 0 ? "Previous unit" : "Next unit",
          onclick: () =>
            page.set({ unit: (cell.unit + by + parts.units) % parts.units, layer: cell.layer, part: cell.part }),
        },
        by < 0 ? "◀" : "▶",
      );
    const picture = h(
      "figure",
      {},
      h("figcaption", {}, step(-1), `Unit ${cell.unit} of ${parts.units} · ${cell.part}, layer ${cell.layer}`, step(1)),
      legend("activation", stops, value => value / most, { signed: true }),
      colouredText(
        cell.pieces.map(([piece, value]) => ({
          piece,
          share: Math.abs(value) / most,
          sign: value < 0 ? -1 : 1,
          says: `“${visible(piece)}”: ${number(value)}`,
        })),
        page.width,
      ),
    );
    const tables = [
      table(
        `Unit ${cell.unit} of ${cell.part}, layer ${cell.layer}`,
        ["token", "activation"],
        cell.pieces.map(([piece, value]) => [visible(piece), value]),
      ),
    ];
    const more = [];
    if (data.spans) {
      more.push(
        h("h2", {}, `Units that are active in “${visible(data.span)}”`),
        h(
          "p",
          { class: "lead" },
          "Most active first, by the area under the ROC curve: 1 means always higher inside than outside. " +
            "Exploratory: too few tokens to conclude.",
        ),
        found(page, data.spans, each => each.area),
      );
      tables.push(
        table(
          "Units by their area",
          ["layer", "part", "unit", "area", "mean inside", "mean outside"],
          data.spans.map(each => [each.layer, each.part, each.unit, each.area, each.inside, each.outside]),
        ),
      );
    }
    if (data.property) {
      more.push(
        h("h2", {}, "Units that detect it"),
        found(page, data.property.cells.slice(0, 12), each => each.held_out),
        ...drawAnalysis(data.property.analysis, page.width),
      );
      tables.push(table(data.property.analysis.title, data.property.analysis.columns, data.property.analysis.rows));
    }
    return { pictures: [picture, ...more], tables };
  },
};
