// Minimal pairs: which of two sentences each run finds more probable.

import { h, number, percent } from "../dom.js";
import { get, post } from "../api.js";
import { choice, numberField, runPicker, textField } from "../fields.js";
import { bars, runHeading, table } from "../parts.js";
import { colourOf } from "../colours.js";
import { drawAnalysis } from "../figures.js";

const MOST = 200;

export default {
  name: "minimal-pairs",
  title: "Minimal pairs",
  lead:
    "Two sentences that differ in one point, one right and one wrong: a run that knows the difference gives " +
    "the right one a higher probability. One pair per line, the right sentence first, with | or a tab " +
    "between. For ready sets (BLiMP, agreement) start the studio with lmlab studio RUNS --data BLiMP.zip.",
  defaults: {
    run: [],
    pairs: [
      "The keys to the cabinet are old. | The keys to the cabinet is old.",
      "The author near the senators laughs. | The author near the senators laugh.",
      "The functions return a new list. | The functions returns a new list.",
    ].join("\n"),
    region: "",
    set: "",
    limit: 10,
  },
  example: ({ pairs }) => ({ pairs: pairs.join("\n") }),
  fits: run => run.does.includes("next token") || run.does.includes("masks"),
  prefers: run => run.does.includes("next token"),
  first: 3,
  controls: page => {
    const sets = choice(page, "Pairs", "set", [["", "those below"]]),
      own = textField(page, "Pairs", "pairs", { rows: 5, wait: 500 }),
      limit = numberField(page, "Pairs of each paradigm, the first", "limit", { min: 1, max: 1000 });
    page.fields = data => sets.options([["", "those below"], ...data.sets]);
    page.follow(state => {
      own.hidden = state.set !== "";
      limit.hidden = state.set === "";
    });
    return [
      sets,
      limit,
      choice(page, "Compare", "region", [
        ["", "as usual for these pairs"],
        ["full", "whole sentences"],
        ["critical", "the words that differ"],
      ]),
      own,
      runPicker(page, { fits: page.view.fits, none: "No run here scores texts." }),
    ];
  },
  empty: "Choose a run, and write pairs.",
  async ask(state, signal) {
    if (!state.run.length || !(state.set || state.pairs.trim())) return null;
    const { sets } = await get("sets", {}, signal),
      asked = state.set ? { set: state.set, limit: state.limit } : { pairs: state.pairs };
    return {
      sets,
      ...(await post("minimal-pairs", { runs: state.run, region: state.region || null, ...asked }, signal)),
    };
  },
  draw(page, data, state) {
    page.fields(data);
    const rows = data.runs[0].scored.slice(0, MOST).map((pair, index) => [
      pair.good,
      pair.bad,
      ...data.runs.map(run => {
        const each = run.scored[index],
          by = (each.good_score - each.bad_score) / Math.LN2;
        return `${by > 0 ? "✓" : "✗"} ${number(by, 1)}`;
      }),
    ]);
    return {
      pictures: [
        h(
          "figure",
          {},
          h("figcaption", {}, "Share of pairs that are right", h("small", {}, "chance is 50%")),
          ...data.runs.map(run =>
            bars(
              [
                {
                  piece: run.run,
                  share: run.accuracy,
                  number: percent(run.accuracy),
                  says: `${run.run}: ${run.analysis.lead}`,
                },
              ],
              colourOf(run.run),
              page.width,
              1,
              data.runs.map(each => each.run),
            ),
          ),
        ),
        state.set &&
          data.runs.flatMap(run => [
            runHeading(run.run),
            ...drawAnalysis({ ...run.analysis, notes: [] }, page.width, {
              among: data.runs.map(each => each.analysis),
              colour: colourOf(run.run),
            }),
          ]),
        table(
          "Bits by which the right sentence is more probable",
          ["right", "wrong", ...data.runs.map(run => run.run)],
          rows,
        ),
        ...data.runs.flatMap(run => run.analysis.notes.map(note => h("p", { class: "lead" }, `${run.run}: ${note}`))),
      ].flat(),
      tables: data.runs.map(run =>
        table(
          run.run,
          ["right", "wrong", "log P of the right", "log P of the wrong"],
          run.scored.slice(0, MOST).map(each => [each.good, each.bad, each.good_score, each.bad_score]),
        ),
      ),
    };
  },
};
