// Runs: all of them, their curves as they grow, and the card of one.

import { h } from "../dom.js";
import { follow, get } from "../api.js";
import { lineChart, pointSays, smooth } from "../charts.js";
import { choice, field, slider, tick } from "../fields.js";
import { markdown } from "../markdown.js";
import { noteField } from "../notes.js";
import { sideBySide, table } from "../parts.js";
import { runTable } from "../run-table.js";

const AXES = {
  tokens: "tokens read",
  seconds: "seconds of training",
  flops: "training FLOPs",
  joules: "joules of training",
};

/** Curves of runs of the same text and unit are in one chart, because only they may be compared. */
const chartGroups = (runs, curves) => {
  const groups = new Map();
  for (const run of runs)
    for (const unit of new Set((curves.get(run.name) ?? []).map(point => point.unit))) {
      const key = JSON.stringify([unit, run.text?.id || run.name]);
      groups.set(key, { unit, text: run.text?.name, runs: [...(groups.get(key)?.runs ?? []), run.name] });
    }
  return [...groups.values()];
};

/** The curves of a run: training and validation losses against an axis, and the rows of their table. */
const seriesOf = (name, points, { axis, train: withTrain, smoothing, unit }) => {
  const of = (what, label) =>
    points
      .filter(point => point.unit === unit && point[what] !== null && point[what] !== undefined && point[axis])
      .map(point => ({ x: point[axis], y: point[what] }))
      .map(point => ({ ...point, says: pointSays(name, label, point, unit, AXES[axis]) }));
  const train = of("train", "training"),
    valid = of("valid", "validation"),
    shown = withTrain || !valid.length ? train : [];
  return {
    series: {
      name,
      points: shown,
      dots: valid.length ? valid : train,
      ...(smoothing > 0 && shown.length ? { smooth: smooth(shown, smoothing) } : {}),
    },
    rows: [
      ...shown.map(point => [name, "training", point.x, point.y, unit]),
      ...valid.map(point => [name, "validation", point.x, point.y, unit]),
    ],
  };
};

/** Everything known about one run: its note, its card and its settings. It stays the same element while it is shown. */
const drawCard = (page, card) => {
  if (page.cardOf === card) return page.card;
  if (page.cardOf?.name !== card.name)
    page.note = noteField(card.name, card.note, {
      saved: note => {
        page.runs.filter(run => run.name === card.name).forEach(run => (run.note = note));
        page.redraw();
      },
      fail: error => page.fail(error),
    });
  page.cardOf = card;
  page.card = makeCard(card, page.note);
  return page.card;
};

const makeCard = (card, note) =>
  h(
    "section",
    { class: "card" },
    h("h2", {}, card.name),
    card.summary && h("p", { class: "lead" }, `${card.summary} (${card.paper})`),
    note,
    card.card ? markdown(card.card) : h("p", {}, "This run has no model card yet."),
    h(
      "details",
      {},
      h("summary", {}, "Settings"),
      Object.entries(card.settings).map(([group, settings]) => [
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

export default {
  name: "runs",
  title: "Runs",
  lead:
    "All runs in the folder. Curves grow during training. Thin lines: training loss. Marks: validation loss. Runs " +
    "of different texts are neither ranked together nor drawn in one chart. Click a name for its card and your note.",
  defaults: { run: [], axis: "tokens", train: true, smooth: 0, card: "", sort: "name", down: false, find: "" },
  saved: ["find", "axis", "smooth", "train"],
  variants: state => state.run.map(card => ({ card })),
  fits: () => true,
  first: 6,
  controls: page => [
    field(page, "Find runs", h("input", { type: "search", name: "find", maxlength: 100, autocomplete: "off" }), {
      name: "find",
      wait: 60,
    }),
    choice(page, "Curves against", "axis", Object.entries(AXES)),
    slider(page, "Smoothing", "smooth", { min: 0, max: 0.98, step: 0.02 }),
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
      chosen = state.run.map(name => page.runs.find(run => run.name === name)).filter(Boolean);
    const groups = chartGroups(chosen, page.curves);
    const charts = sideBySide(groups, page.width, ({ unit, text, runs }, width) => {
      const curves = runs.map(name =>
        seriesOf(name, page.curves.get(name), { ...state, smoothing: state.smooth, unit }),
      );
      rows.push(...curves.flatMap(each => each.rows));
      const series = curves.map(each => each.series).filter(each => each.points.length || each.dots.length);
      const chart = lineChart(series, { width, xLabel: AXES[state.axis], yLabel: unit });
      return chart && h("figure", { class: "curves" }, text && h("figcaption", {}, `Text: ${text}`), chart);
    });
    page.data = { ...data, curves: Object.fromEntries(page.curves) };
    const show = { state, set: changes => page.set(changes), open: name => open(page, name) };
    return {
      pictures: [
        page.runs.length
          ? runTable(page.inLecture ? chosen : page.runs, show)
          : h(
              "p",
              { class: "empty" },
              "There is no run in this folder yet. Train one: lmlab train gpt2 builtin -o runs/first --budget 1min",
            ),
        data.card && drawCard(page, data.card),
        charts,
        !rows.length &&
          state.run.length > 0 &&
          h("p", { class: "empty" }, "No curve is recorded for these runs along this axis."),
      ],
      tables: rows.length
        ? [table("Learning curves", ["run", "measured on", AXES[state.axis], "value", "unit"], rows)]
        : [],
    };
  },
};

/** Show the card of a run, or hide it again. */
const open = (page, name) => page.set({ card: name === page.state.card ? "" : name }, { push: true });
