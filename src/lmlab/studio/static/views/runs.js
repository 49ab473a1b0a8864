// Runs: all of them, their curves as they grow, and the card of one.

import { h, number, short } from "../dom.js";
import { follow, get } from "../api.js";
import { lineChart, pointSays } from "../charts.js";
import { choice, tick } from "../fields.js";
import { table } from "../parts.js";
import { runColour } from "../colours.js";
import { markdown } from "../markdown.js";

const AXES = {
  tokens: "tokens read",
  seconds: "seconds of training",
  flops: "training FLOPs",
  joules: "joules of training",
};

const USES = {
  "next token": [
    ["next", "Next token"],
    ["surprisal", "Surprisal"],
    ["write", "Write"],
  ],
  masks: [
    ["fill", "Fill"],
    ["surprisal", "Surprisal"],
  ],
  "target text": [["translate", "Translate"]],
};
const links = run =>
  [...run.does.flatMap(each => USES[each] ?? []), ...(run.task ? [["predict", "Predict"]] : [])]
    .map(([view, title]) => h("a", { href: `#/${view}?run=${encodeURIComponent(run.name)}` }, title))
    .flatMap(each => [each, " "]);

export default {
  name: "runs",
  title: "Runs",
  lead:
    "All runs in the folder. Curves grow during training. Thin lines: training loss. Dots: validation loss. " +
    "Lower is better.",
  defaults: { run: [], axis: "tokens", train: true, card: "" },
  fits: () => true,
  first: 6,
  controls: page => [
    choice(page, "Against", "axis", Object.entries(AXES)),
    tick(page, "training batches, too", "train"),
  ],
  start(page) {
    page.curves = new Map();
    page.closers.push(() => follow([]));
  },
  asks: state => [state.run, state.card],
  async ask(state, signal, page) {
    const known = state.run.filter(name => page.runs.some(run => run.name === name));
    const followed = JSON.stringify(known);
    if (followed !== page.followed) {
      page.curves = new Map(
        known.length ? (await get("curves", { run: known }, signal)).curves.map(each => [each.run, each.points]) : [],
      );
      page.followed = followed;
      follow(known, ({ run, points, again }) => {
        page.curves.set(run, again ? points : [...(page.curves.get(run) ?? []), ...points]);
        page.draw();
      });
    }
    const card = state.card ? await get("run", { run: state.card }, signal) : null;
    return { card };
  },
  draw(page, data, state) {
    const rows = [],
      units = [...new Set([...page.curves.values()].flat().map(point => point.unit))].sort();
    const series = unit =>
      state.run.map((name, index) => {
        const points = (page.curves.get(name) ?? []).filter(point => point.unit === unit);
        const of = what =>
          points
            .filter(point => point[what] !== null && point[what] !== undefined && point[state.axis])
            .map(point => ({ x: point[state.axis], y: point[what] }));
        const labelled = (list, what) =>
          list.map(point => ({ ...point, says: pointSays(name, what, point, unit, AXES[state.axis]) }));
        const train = state.train ? labelled(of("train"), "training") : [],
          valid = labelled(of("valid"), "validation");
        for (const [what, list] of [
          ["training", train],
          ["validation", valid],
        ])
          for (const point of list) rows.push([name, what, point.x, point.y, unit]);
        return { name, index, points: train, dots: valid.length ? valid : train };
      });
    const charts = units
      .map(unit =>
        lineChart(
          series(unit).filter(each => each.points.length || each.dots.length),
          { width: page.width, xLabel: AXES[state.axis], yLabel: unit },
        ),
      )
      .filter(Boolean);
    const list = h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "runs" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["", "run", "model", "", "parameters", "validation bits per byte", "look at it"].map((each, index) =>
              h("th", { class: index === 4 || index === 5 ? "n" : null }, each),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          page.runs.map(run => {
            const index = state.run.indexOf(run.name);
            const box = h("input", {
              type: "checkbox",
              checked: index >= 0,
              "aria-label": `Show the curve of ${run.name}`,
              onchange: event =>
                page.set({
                  run: event.target.checked ? [...state.run, run.name] : state.run.filter(each => each !== run.name),
                }),
            });
            return h(
              "tr",
              { class: run.name === state.card ? "on" : null },
              h(
                "td",
                {},
                h(
                  "span",
                  { class: "choices" },
                  box,
                  index >= 0 && h("span", { class: "swatch", style: { "--c": runColour(index) } }),
                ),
              ),
              h(
                "td",
                { class: "text" },
                h(
                  "button",
                  {
                    class: "plain",
                    type: "button",
                    "data-card": run.name,
                    onclick: () => page.set({ card: run.name === state.card ? "" : run.name }, { push: true }),
                  },
                  run.name,
                ),
              ),
              h(
                "td",
                {},
                run.why ?? (run.task ? `${run.kind}, ${run.task}` : run.kind),
                " ",
                run.year && h("small", { class: "lead" }, run.year),
              ),
              h("td", {}, h("span", { class: `pill ${run.status}` }, run.status)),
              h("td", { class: "n" }, short(run.parameters)),
              h("td", { class: "n" }, number(run.valid)),
              h("td", {}, links(run)),
            );
          }),
        ),
      ),
    );
    const card =
      data.card &&
      h(
        "section",
        { class: "card" },
        h("h2", {}, data.card.name),
        data.card.summary && h("p", { class: "lead" }, `${data.card.summary} (${data.card.paper})`),
        data.card.card ? markdown(data.card.card) : h("p", {}, "This run has no model card yet."),
        h(
          "details",
          {},
          h("summary", {}, "Settings"),
          Object.entries(data.card.settings).map(([group, settings]) => [
            h("h3", {}, group),
            h(
              "dl",
              {},
              Object.entries(settings).map(([key, value]) => [
                h("dt", {}, key),
                h("dd", {}, value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value)),
              ]),
            ),
          ]),
        ),
      );
    page.data = { ...data, curves: Object.fromEntries(page.curves) };
    return {
      pictures: [].concat(
        page.runs.length
          ? list
          : h(
              "p",
              { class: "empty" },
              "There is no run in this folder yet. Train one: lmlab train gpt2 builtin -o runs/first --budget 1min",
            ),
        charts.length
          ? charts.map(chart => h("figure", { class: "curves" }, chart))
          : state.run.length > 0 && h("p", { class: "empty" }, "No curve is recorded for these runs along this axis."),
        card,
      ),
      tables: rows.length
        ? [table("Learning curves", ["run", "measured on", AXES[state.axis], "value", "unit"], rows)]
        : [],
    };
  },
};
