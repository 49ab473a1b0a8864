// Train: a run or a comparison from the browser, with its command line.

import { h } from "../dom.js";
import { get, post } from "../api.js";
import { choice, field, numberField } from "../fields.js";
import { table } from "../parts.js";

const input = (page, label, name, attributes = {}) =>
  field(page, label, h("input", { type: "text", name, ...attributes }), { name, wait: 200 });

const wanted = state => ({
  what: state.what,
  name: state.name,
  models: state.model,
  text: state.text,
  budget: state.budget,
  size: state.size,
  tokenizer: state.tokenizer,
  seed: state.seed,
});

/** How a job ended; of one that an earlier studio started, it is not known. */
const ended = job => (job.status === 0 ? "done" : job.status === null ? "ended" : `ended with ${job.status}`);

export default {
  name: "train",
  title: "Train",
  lead:
    "Start a training run, or a comparison of several models on the same text and budget, and watch it under " +
    "Runs. It is a separate process; when you stop it, it finishes its step and saves. The command below does" +
    " the same in a terminal.",
  defaults: {
    what: "train",
    name: "new",
    model: ["lstm"],
    text: 0,
    budget: "30s",
    size: "tiny",
    tokenizer: "bpe:1024",
    seed: 0,
  },
  controls: page => {
    const models = h("fieldset", { class: "wide" }, h("legend", {}, "Models"), h("div", { class: "choices" })),
      texts = choice(page, "Text", "text", [[0, "builtin"]], { number: true });
    let before = "";
    page.fields = data => {
      const now = JSON.stringify([data.models, page.state.what, page.state.model]);
      if (now !== before) {
        before = now;
        const one = page.state.what === "train";
        models.lastChild.replaceChildren(
          ...data.models.map(name =>
            h(
              "label",
              {},
              h("input", {
                type: one ? "radio" : "checkbox",
                name: "model",
                value: name,
                checked: page.state.model.includes(name),
                onchange: event =>
                  page.set({
                    model: one
                      ? [name]
                      : event.target.checked
                        ? [...page.state.model, name]
                        : page.state.model.filter(each => each !== name),
                  }),
              }),
              name,
            ),
          ),
        );
      }
      texts.options(data.texts.map((name, index) => [index, name]));
    };
    return [
      choice(page, "What", "what", [
        ["train", "train one"],
        ["compare", "compare several"],
      ]),
      input(page, "Name of its folder", "name", { maxlength: 60 }),
      texts,
      input(page, "Budget (30s, 2min, 300steps, 1Mtokens)", "budget", { size: 10 }),
      choice(page, "Size", "size", ["tiny", "small", "base"]),
      input(page, "Tokenizer", "tokenizer", { size: 12 }),
      numberField(page, "Seed", "seed", { min: 0, max: 999999 }),
      models,
    ];
  },
  start(page) {
    const timer = setInterval(async () => {
      if (!page.data?.jobs.some(job => job.running)) return;
      try {
        page.data = { ...page.data, ...(await get("jobs")) };
        page.draw();
      } catch {
        /* the next time, perhaps */
      }
    }, 1500);
    page.closers.push(() => clearInterval(timer));
  },
  asks: wanted,
  async ask(state, signal) {
    const list = await get("jobs", {}, signal),
      models = state.what === "train" ? state.model.slice(0, 1) : state.model;
    if (!models.length) return { ...list, command: "", why: "Choose a model." };
    try {
      return { ...list, ...(await post("jobs/command", { ...wanted(state), models }, signal)), why: "" };
    } catch (error) {
      if (signal.aborted) throw error;
      return { ...list, command: "", why: error.message };
    }
  },
  draw(page, data, state) {
    page.fields(data);
    const act = (path, body) => async () => {
      try {
        await post(path, body);
        page.wrong.hidden = true;
      } catch (error) {
        page.fail(error);
      }
      page.data = { ...page.data, ...(await get("jobs")) };
      page.draw();
    };
    const models = state.what === "train" ? state.model.slice(0, 1) : state.model;
    const copy = h(
      "button",
      {
        type: "button",
        onclick: event => {
          navigator.clipboard?.writeText(data.command).catch(() => {});
          event.currentTarget.textContent = "Copied";
        },
      },
      "Copy",
    );
    return {
      pictures: [
        data.command
          ? [
              h("pre", { class: "command" }, data.command),
              h(
                "div",
                { class: "choices" },
                copy,
                h(
                  "button",
                  {
                    type: "button",
                    class: "main",
                    "data-do": "start",
                    onclick: act("jobs", { ...wanted(state), models }),
                  },
                  "Start",
                ),
              ),
            ]
          : h("p", { class: "empty" }, data.why),
        data.texts.length === 1 &&
          h("p", { class: "lead" }, "To train on texts of your own: lmlab studio RUNS --training-text FILE"),
        data.jobs.map(job =>
          h(
            "section",
            { class: "job" },
            h(
              "h2",
              {},
              job.name,
              " ",
              h("span", { class: `pill ${job.running ? "training" : ""}` }, job.running ? "running" : ended(job)),
            ),
            h("p", {}, h("code", {}, job.command)),
            h(
              "div",
              { class: "choices" },
              job.running &&
                h(
                  "button",
                  { type: "button", "data-do": "stop", onclick: act("jobs/stop", { number: job.number }) },
                  "Stop",
                ),
              h(
                "a",
                { href: job.what === "train" ? `#/runs?run=${encodeURIComponent(job.name)}` : "#/runs" },
                "Its curve",
              ),
            ),
            h("pre", {}, job.output || "…"),
          ),
        ),
      ]
        .flat(Infinity)
        .filter(Boolean),
      tables: data.jobs.length
        ? [
            table(
              "Jobs",
              ["name", "command", "state"],
              data.jobs.map(job => [job.name, job.command, job.running ? "running" : ended(job)]),
            ),
          ]
        : [],
    };
  },
};
