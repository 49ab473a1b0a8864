// The table of runs: sorted by a column, filtered by words; scores are ranked among runs of the same text only.

import { h, cut, number, percent, short } from "./dom.js";
import { count, swatch } from "./parts.js";
import { hasSteps } from "./systems.js";

const COLUMNS = [
  ["name", "run"],
  ["kind", "model"],
  ["text", "trained on"],
  ["parameters", "parameters"],
  ["score", "validation"],
  ["test", "test"],
];
const NUMBERS = new Set(["parameters", "score", "test"]);
/** Views to open with a run, by what the run can do. */
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

/** A score as it is usually written: accuracy in percent. */
export const writeScore = (value, unit) => (unit === "accuracy" ? percent(value) : number(value));

/** The runs that contain every word of a query in their name, model, text, task, status or note. */
export const filterRuns = (runs, query) => {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return runs.filter(run => {
    const about = [run.name, run.kind, run.task, run.text?.name, run.status, run.note].join(" ").toLowerCase();
    return words.every(word => about.includes(word));
  });
};

const valueOf = {
  name: run => run.name,
  kind: run => run.kind,
  text: run => run.text?.name,
  parameters: run => run.parameters,
  score: run => run.score?.value,
  test: run => run.score?.test,
};
const compare = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));

/** Runs in the order of a column; those without a value come last, in either direction. */
export const sortRuns = (runs, column, down) => {
  const of = valueOf[column] ?? valueOf.name;
  return [...runs].sort((a, b) => {
    const [x, y] = [of(a) ?? null, of(b) ?? null];
    if (x === null || y === null) return (x === null) - (y === null);
    return (down ? -1 : 1) * compare(x, y);
  });
};

/** Runs in groups that may be ranked: the same text and the same score. Runs without a score are in the last. */
export const rankable = runs => {
  const groups = new Map();
  for (const run of runs) {
    const key = run.score ? JSON.stringify([run.score.unit, run.text?.id || run.name]) : "";
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups].sort(([a], [b]) => (a === "") - (b === "")).map(([, group]) => group);
};

const links = run => {
  const all = [
    ...run.does.flatMap(each => USES[each] ?? []),
    ...(hasSteps(run) ? [["how", "How it works"]] : []),
    ...(run.task ? [["predict", "Classify"]] : []),
  ];
  return [...new Map(all)].map(([view, title]) =>
    h("a", { href: `#/${view}?run=${encodeURIComponent(run.name)}` }, title),
  );
};

const heading = (column, title, state, set) => {
  const on = state.sort === column;
  return h(
    "th",
    {
      scope: "col",
      class: NUMBERS.has(column) ? "n" : null,
      "aria-sort": on ? (state.down ? "descending" : "ascending") : "none",
    },
    h(
      "button",
      {
        type: "button",
        class: "plain",
        "data-sort": column,
        onclick: () => set({ sort: column, down: on ? !state.down : false }),
      },
      title,
      on && (state.down ? " ▼" : " ▲"),
    ),
  );
};

const row = (run, { state, set, open }) => {
  const index = state.run.indexOf(run.name);
  const box = h("input", {
    type: "checkbox",
    checked: index >= 0,
    "aria-label": `Show the curve of ${run.name}`,
    onchange: event =>
      set({ run: event.target.checked ? [...state.run, run.name] : state.run.filter(each => each !== run.name) }),
  });
  const score = run.score && [writeScore(run.score.value, run.score.unit), " ", h("small", {}, run.score.unit)];
  const name = h(
    "button",
    { class: "plain", type: "button", "data-card": run.name, onclick: () => open(run.name) },
    run.name,
  );
  return h(
    "tr",
    { class: run.name === state.card ? "on" : null, "data-run": run.name },
    h("td", { class: "box" }, h("span", { class: "choices" }, box, index >= 0 && swatch(run.name))),
    h(
      "td",
      { class: "name" },
      name,
      run.status !== "ready" && h("span", { class: `pill ${run.status}` }, run.status),
      run.note && h("small", { class: "note", title: run.note }, cut(run.note.split("\n")[0], 60)),
    ),
    h(
      "td",
      {},
      run.why ?? (run.task ? `${run.kind}, ${run.task.replaceAll("_", " ")}` : run.kind),
      " ",
      run.year && h("small", {}, run.year),
    ),
    h("td", { class: "trained", "data-label": "trained on" }, run.text?.name ?? "–"),
    h("td", { class: "n", "data-label": "parameters" }, short(run.parameters)),
    h("td", { class: "n", "data-label": "validation" }, score ?? "–"),
    h("td", { class: "n", "data-label": "test" }, number(run.score?.test)),
    h(
      "td",
      { class: "links" },
      links(run).flatMap(each => [each, " "]),
    ),
  );
};

/** The line above runs that may be ranked. */
const groupLine = group => {
  const { score, text } = group[0];
  if (!score) return "No score";
  const better = score.higher ? "higher is better" : "lower is better";
  const where = text?.id ? `Text: ${text.name || text.id}` : `${group[0].name} (its text is not known)`;
  return `${where} · ${score.unit}, ${better} · ${count(group.length, "run")}`;
};

/** The table; `set` changes the state of the page, `open` shows the card of a run. */
export const runTable = (runs, { state, set, open }) => {
  const shown = sortRuns(filterRuns(runs, state.find), state.sort, state.down),
    ranked = state.sort === "score" || state.sort === "test",
    groups = ranked ? rankable(shown) : [shown];
  return h(
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
          h("th", {}, h("span", { class: "unseen" }, "curve")),
          COLUMNS.map(([column, title]) => heading(column, title, state, set)),
          h("th", { scope: "col", class: "links" }, "look at it"),
        ),
      ),
      groups.map(group =>
        h(
          "tbody",
          {},
          ranked &&
            h("tr", { class: "group" }, h("th", { colspan: COLUMNS.length + 2, scope: "rowgroup" }, groupLine(group))),
          group.map(run => row(run, { state, set, open })),
        ),
      ),
    ),
    !shown.length && runs.length > 0 && h("p", { class: "empty" }, `No run contains “${state.find}”.`),
  );
};
