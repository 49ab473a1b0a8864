// How it works: the forward pass of a run on a text, step by step; a click on a number opens the sum it is made of.

import { h, cut, number, percent, visible } from "../dom.js";
import { post } from "../api.js";
import { runPicker, slider, textField } from "../fields.js";
import { bars, table } from "../parts.js";
import { cells } from "../cells.js";
import { colourOf } from "../colours.js";
import { equation } from "../equation.js";
import { hasSteps } from "../systems.js";

/** A number with all the digits that matter. */
const exact = value => (value === null ? "–" : String(Number(value.toPrecision(6))).replace("-", "−"));
/** The same with few digits. */
const few = value => {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const plain = Math.abs(value) >= 0.001 && Math.abs(value) < 1e5;
  return (plain ? String(Number(value.toPrecision(4))) : value.toExponential(2)).replaceAll("-", "−");
};

export const addressOf = (grid, row, column) =>
  `${grid.name}:${[...grid.rows[row].prefix, grid.indices.length ? grid.indices[column] : column].join(",")}`;

/** The cell of a grid that has an address, if it is shown. */
export const cellOf = (grid, address) => {
  for (let row = 0; row < grid.rows.length; row++)
    for (let column = 0; column < grid.values[row].length; column++)
      if (addressOf(grid, row, column) === address) return { row, column };
  return undefined;
};

const open = (page, address) => {
  page.trail = [...(page.trail ?? []).filter(each => each !== address), address].slice(-12);
  return page.set({ number: address }, { push: true });
};

/** The text: a click on a token shows the prediction there. */
const tokenLine = (page, data) =>
  h(
    "div",
    { class: "tokens", role: "group", "aria-label": "Tokens" },
    data.tokens.map((token, index) =>
      h(
        "button",
        {
          type: "button",
          "data-token": index,
          "aria-pressed": String(index === data.position),
          class: !data.masked && index > data.position ? "later" : null,
          title: data.masked ? "Mask this token" : "Show the prediction after this token",
          onclick: () => page.set({ position: index, number: "" }),
        },
        visible(token),
      ),
    ),
  );

/** The line from the token to the prediction: a dot for each step, named by groups. */
const pathLine = (page, data, now) => {
  const groups = [];
  data.outline.forEach((step, index) => {
    if (groups.at(-1)?.name !== step.group) groups.push({ name: step.group, steps: [] });
    groups.at(-1).steps.push({ ...step, index });
  });
  const best = data.candidates[0];
  return h(
    "ol",
    { class: "path", "aria-label": "Steps from the token to the prediction" },
    h("li", { class: "end" }, h("b", {}, cut(visible(data.tokens[data.position]), 12))),
    groups.map(group =>
      h(
        "li",
        {},
        h("span", {}, group.name),
        h(
          "span",
          { class: "dots" },
          group.steps.map(step =>
            h(
              "button",
              {
                type: "button",
                class: step.index < now ? "done" : null,
                "data-step": step.key,
                "aria-label": `Step ${step.index + 1}: ${group.name}, ${step.title}`,
                "aria-current": step.index === now ? "step" : null,
                title: step.title,
                onclick: () => page.set({ step: step.key }),
              },
              "",
            ),
          ),
        ),
      ),
    ),
    h("li", { class: "end" }, h("b", {}, cut(visible(best.text), 12)), h("small", {}, percent(best.probability))),
  );
};

const turn = (page, way) => {
  const { outline, step } = page.data ?? {};
  const next = outline?.[outline.findIndex(each => each.key === step.key) + way];
  if (next) page.set({ step: next.key });
  return Boolean(next);
};

const steps = (page, data, now) =>
  h(
    "div",
    { class: "steps" },
    h("button", { type: "button", "data-do": "back", disabled: now === 0, onclick: () => turn(page, -1) }, "← Back"),
    h(
      "button",
      {
        type: "button",
        class: "main",
        "data-do": "next",
        disabled: now === data.outline.length - 1,
        onclick: () => turn(page, 1),
      },
      "Next step →",
    ),
    h("span", { class: "count" }, `Step ${now + 1} of ${data.outline.length}`),
    data.step.heads > 1 &&
      h(
        "span",
        { class: "choose", role: "group", "aria-label": "Head" },
        h("span", {}, "Head"),
        Array.from({ length: data.step.heads }, (_, head) =>
          h(
            "button",
            {
              type: "button",
              "data-head": head,
              "aria-pressed": String(head === data.step.head),
              onclick: () => page.set({ head }),
            },
            String(head),
          ),
        ),
      ),
  );

/** One array as coloured cells. */
const gridFigure = (page, grid, room, index) => {
  const names = grid.rows.map(row => row.label),
    hidden = grid.width - grid.values[0].length;
  const says = (row, column) =>
    [
      grid.label,
      names.length > 1 || !grid.columns.length ? `, “${visible(names[row])}”` : "",
      grid.columns.length ? `, “${visible(grid.columns[column])}”` : `, number ${column}`,
      `: ${exact(grid.values[row][column])}`,
    ].join("");
  const tip = h("div", { class: "tip", hidden: true });
  const say = (words, picture, at) => {
    tip.hidden = words === null;
    if (words === null) return;
    tip.textContent = words;
    tip.style.setProperty("left", `${Math.max(0, Math.min(at[0] - 40, room - 190))}px`);
    tip.style.setProperty("top", `${picture.offsetTop + at[1] - 34}px`);
    page.say(words);
  };
  const picture = cells({
    rows: names,
    columns: grid.columns,
    values: grid.values,
    kind: grid.kind,
    room,
    label: grid.label,
    says,
    say,
    chosen: page.state.number ? cellOf(grid, page.state.number) : undefined,
    pick: (row, column) => {
      page.grid = index;
      const candidate = grid.name === "logits" ? { candidate: grid.indices[column] } : {};
      if (candidate.candidate !== undefined) page.state = { ...page.state, ...candidate };
      open(page, addressOf(grid, row, column));
    },
  });
  picture.dataset.grid = String(index);
  return h(
    "figure",
    { class: "grid-of-numbers" },
    h(
      "figcaption",
      {},
      grid.label,
      h(
        "small",
        {},
        names.length > 1 || grid.columns.length ? "" : `“${visible(names[0])}” · `,
        grid.rows.length > 1 ? `${names.length} × ${grid.width} numbers` : `${grid.width.toLocaleString("en")} numbers`,
      ),
    ),
    h("div", { class: "scroll" }, picture),
    tip,
    hidden > 0 &&
      h(
        "button",
        { type: "button", class: "plain", "data-do": "whole", onclick: () => page.set({ whole: true }) },
        `Show ${hidden.toLocaleString("en")} more`,
      ),
  );
};

/** A number that can be opened. */
const link = (page, value, at, words = few(value)) =>
  at
    ? h(
        "button",
        { type: "button", class: "number", "data-at": at, title: exact(value), onclick: () => open(page, at) },
        words,
      )
    : h("span", { title: typeof value === "number" ? exact(value) : null }, words);

/** Rows of a long and narrow table stand in several columns. */
const PER_COLUMN = 8,
  COLUMN = 190;

const factsFigure = (page, facts, room) => {
  const rows = facts.rows.map(row =>
      row.map((cell, column) => {
        if (cell !== null && typeof cell === "object") return link(page, cell.value, cell.at);
        if (typeof cell === "number") return h("span", { class: "n", title: exact(cell) }, few(cell));
        return cell === null ? "–" : facts.columns[column] === "token" ? visible(cell) : cell;
      }),
    ),
    most = facts.columns.length > 3 ? 1 : Math.max(1, Math.floor(room / COLUMN)),
    columns = Math.min(most, Math.ceil(rows.length / PER_COLUMN)),
    each = Math.ceil(rows.length / columns);
  return h(
    "figure",
    { class: "facts" },
    h("figcaption", {}, facts.label),
    h(
      "div",
      { class: "columns", style: { "--columns": columns } },
      Array.from({ length: columns }, (_, n) => table("", facts.columns, rows.slice(n * each, (n + 1) * each))),
    ),
  );
};

/** The candidates as bars: the prediction. */
const prediction = (page, data, room, colour) =>
  h(
    "figure",
    {},
    h(
      "figcaption",
      {},
      data.masked ? "At the mask" : "Next token",
      h("small", {}, `temperature ${page.state.temperature} · click a token to see its sum`),
    ),
    bars(
      data.candidates.map(each => ({
        piece: each.text,
        share: each.probability,
        number: percent(each.probability),
        says: `“${visible(each.text)}”: logit ${number(each.logit)}, probability ${exact(each.probability)}`,
        pick: String(each.token),
      })),
      colour,
      room,
    ),
  );

/** Where a number comes from: its sum, the largest terms first, each with the numbers in it. */
const originPanel = (page, data) => {
  const origin = data.number;
  if (!origin)
    return h(
      "aside",
      { class: "origin", "aria-label": "Where a number comes from" },
      h("h2", {}, "Where a number comes from"),
      h(
        "p",
        { class: "empty" },
        "Click any number, or go to it with the arrow keys and press Enter: the sum that it is made of opens here. " +
          "The numbers in the sum can be opened in turn.",
      ),
    );
  const trail = page.trail ?? [],
    before = trail[trail.indexOf(origin.at) - 1];
  const most = Math.max(...origin.terms.map(term => Math.abs(term.value)), 1e-12);
  const row = (term, content) =>
    h(
      "li",
      {},
      h(
        "span",
        { class: "bar" },
        h("i", {
          class: term.value < 0 ? "below" : null,
          style: { "--w": `${Math.min(50, (50 * Math.abs(term.value)) / most)}%` },
        }),
      ),
      h("span", { class: "product" }, content),
      h("span", { class: "value" }, few(term.value)),
    );
  return h(
    "aside",
    { class: "origin open", "aria-label": "Where a number comes from", "aria-live": "polite" },
    h(
      "div",
      { class: "steps" },
      before &&
        h(
          "button",
          {
            type: "button",
            "data-do": "undo",
            onclick: () => {
              page.trail = trail.slice(0, trail.indexOf(origin.at));
              page.set({ number: before });
            },
          },
          "← number before",
        ),
      h(
        "button",
        { type: "button", class: "plain", "data-do": "close", onclick: () => page.set({ number: "" }) },
        "Close",
      ),
    ),
    h("h2", {}, origin.label),
    h("p", { class: "big", title: exact(origin.value) }, exact(origin.value)),
    origin.terms.length ? equation(origin.equation) : h("p", {}, "Learnt in training: it comes from no other number."),
    origin.terms.length > 0 &&
      h(
        "ol",
        { class: "terms" },
        origin.terms.map(term =>
          row(
            term,
            term.factors.length === 1 && term.factors[0].at
              ? link(page, term.value, term.factors[0].at, term.factors[0].label)
              : term.factors.map((factor, index) => [
                  index > 0 && h("span", { class: "times" }, " × "),
                  h("span", { class: "factor" }, factor.label, " ", link(page, factor.value, factor.at)),
                ]),
          ),
        ),
        origin.others > 0 && row({ value: origin.rest }, `${origin.others.toLocaleString("en")} others together`),
      ),
    origin.terms.length > 0 &&
      h(
        "p",
        { class: "result" },
        `Sum: ${exact(origin.total)}`,
        origin.function && [h("br"), `${origin.function}: ${exact(origin.result)}`],
      ),
  );
};

export default {
  name: "how",
  title: "How it works",
  lead:
    "The forward pass of a run on your text, step by step, with its own numbers: from the tokens to the prediction. " +
    "Go on with the button or the arrow keys. Click any number to see the sum it is made of.",
  defaults: {
    run: "",
    text: "The cat sat on the",
    position: -1,
    step: "",
    head: 0,
    candidate: -1,
    temperature: 1,
    number: "",
    whole: false,
  },
  /** In a saved lecture all steps and heads can be gone through, and the number of the slide be closed. */
  variants: (state, data) =>
    data.outline.flatMap(({ key }) =>
      [...new Set([state.number, ""])].flatMap(number => [
        { step: key, number },
        ...Array.from({ length: data.heads }, (_, head) => ({ step: key, head, number })),
      ]),
    ),
  example: ({ prompt }) => ({ text: prompt }),
  fits: hasSteps,
  change: (before, after) =>
    before.run !== after.run || before.text !== after.text ? { position: -1, candidate: -1, number: "", head: 0 } : {},
  controls: page => [
    textField(page, "Text", "text", { rows: 2, wait: 250 }),
    runPicker(page, {
      several: false,
      fits: page.view.fits,
      none: "No run here predicts tokens: train ngram, lstm or gpt2.",
    }),
    slider(page, "Temperature", "temperature", { min: 0.1, max: 3, step: 0.05 }),
  ],
  start(page) {
    const step = event => {
      const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!way || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (
        /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) ||
        event.target.closest?.(".mark, .cells, nav, summary")
      )
        return;
      if (!turn(page, way)) return;
      event.preventDefault();
      event.stopPropagation(); // in a lecture, the keys go on to the next slide after the last step
    };
    document.addEventListener("keydown", step);
    page.closers.push(() => document.removeEventListener("keydown", step));
  },
  ask: async (state, signal) =>
    state.run
      ? post(
          "how",
          {
            run: state.run,
            text: state.text,
            position: state.position < 0 ? null : state.position,
            step: state.step,
            head: Math.max(0, state.head),
            candidate: state.candidate < 0 ? null : state.candidate,
            temperature: state.temperature,
            number: state.number,
            whole: state.whole,
          },
          signal,
        )
      : null,
  empty: "Choose a run, and write a text.",
  draw(page, data, state) {
    const now = data.outline.findIndex(each => each.key === data.step.key),
      beside = page.width >= 900,
      room = (beside ? Math.floor((page.width - 24) * 0.62) : page.width) - 4;
    const { step } = data,
      held = document.activeElement?.closest?.("svg.cells")?.dataset.grid;
    const article = h(
      "section",
      { class: "step", "aria-live": "polite" },
      h("h2", {}, `${step.group === step.title ? "" : `${step.group}: `}${step.title}`),
      h("p", { class: "says" }, step.says),
      equation(step.equation),
      step.grids.map((grid, index) =>
        grid.kind === "facts" ? factsFigure(page, grid, room) : gridFigure(page, grid, room, index),
      ),
      step.key === "softmax" && prediction(page, data, Math.min(room, 560), colourOf(state.run)),
    );
    const pictures = [
      tokenLine(page, data),
      data.cut > 0 &&
        h(
          "p",
          { class: "cut" },
          `The text is long: its first ${data.cut.toLocaleString("en")} tokens are not read here.`,
        ),
      steps(page, data, now),
      pathLine(page, data, now),
      h("div", { class: beside ? "how beside" : "how" }, article, originPanel(page, data)),
    ];
    queueMicrotask(() => {
      const current = page.stage.querySelector(".path [aria-current]"),
        path = current?.closest(".path");
      if (path) path.scrollLeft = current.offsetLeft - path.clientWidth / 2;
      if (held !== undefined) page.stage.querySelector(`svg.cells[data-grid="${held}"]`)?.focus();
    });
    return {
      pictures,
      tables: [
        ...step.grids
          .filter(grid => grid.kind !== "facts")
          .map(grid =>
            table(
              grid.label,
              ["", ...(grid.columns.length ? grid.columns.map(visible) : grid.values[0].map((_, n) => String(n)))],
              grid.rows.map((row, index) => [visible(row.label), ...grid.values[index]]),
            ),
          ),
        table(
          data.masked ? "At the mask" : "Next token",
          ["token", "logit", "probability"],
          data.candidates.map(each => [visible(each.text), each.logit, each.probability]),
        ),
      ],
    };
  },
  pick(page, token) {
    page.state = { ...page.state, candidate: Number(token) };
    open(page, `probability:${token}`);
  },
};
