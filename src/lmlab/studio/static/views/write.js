// Write: sampled texts, and a beam search that can be stepped through, pinned and forced.

import { h, number, visible } from "../dom.js";
import { complete, post } from "../api.js";
import { isSaved } from "../recording.js";
import { choice, numberField, runPicker, slider, textField } from "../fields.js";
import { colouredText, legend, table } from "../parts.js";
import { drawTree, joinSearches, wayTo } from "../tree.js";

const alternatives = each => each.instead.map(([piece, bits]) => `${visible(piece)} ${number(bits, 1)}`).join(", ");

const strength = bits => Math.min(1, Math.max(0, bits) / 12);
const ALTERNATIVES = 5;
const only = (page, mode, ...elements) =>
  elements.map(each => {
    page.follow(state => {
      each.hidden = state.mode !== mode;
    });
    return each;
  });

/** Texts as they are written: token by token, with the most probable alternatives. */
const stream = async (state, signal, page) => {
  const samples = Array.from({ length: state.samples }, () => ({ text: "", tokens: [], ended: "" })),
    data = { mode: "samples", samples };
  const asked = {
    model: state.run,
    prompt: state.text,
    max_tokens: state.tokens,
    n: state.samples,
    temperature: state.temperature,
    top_p: state.top_p,
    seed: state.seed,
    logprobs: ALTERNATIVES,
  };
  for await (const { choices } of complete(asked, signal)) {
    for (const { index, text, logprobs, finish_reason: ended } of choices) {
      const one = samples[index];
      one.text += text;
      logprobs.tokens.forEach((piece, place) => {
        const bits = -logprobs.token_logprobs[place] / Math.LN2,
          others = Object.entries(logprobs.top_logprobs[place])
            .map(([name, log]) => [name, -log / Math.LN2])
            .sort((a, b) => a[1] - b[1]);
        one.tokens.push({ piece: ended === "stop" ? "■ end" : piece, bits, instead: others.slice(0, ALTERNATIVES) });
      });
      if (ended) one.ended = ended;
    }
    page.show(data, signal);
  }
  return data;
};

const drawSamples = (page, data) => ({
  pictures: [
    legend("bits", [0.5, 2, 4, 7, 10, 12], strength),
    ...data.samples.map((sample, place) =>
      h(
        "figure",
        {},
        h(
          "figcaption",
          {},
          `Text ${place + 1}`,
          h("small", {}, { stop: "ended by the model", length: "length limit reached" }[sample.ended] ?? "…"),
        ),
        colouredText(
          sample.tokens.map(each => ({
            piece: each.piece,
            share: strength(each.bits),
            says: `“${visible(each.piece)}”, ${number(each.bits, 2)} bits; most probable here: ${alternatives(each)}`,
          })),
          page.width,
        ),
      ),
    ),
  ],
  tables: (data.samples.every(sample => sample.ended) ? data.samples : []).map((sample, place) =>
    table(
      `Text ${place + 1}`,
      ["token", "bits", "most probable there (bits)"],
      sample.tokens.map(each => [
        visible(each.piece),
        each.bits,
        each.instead.map(([piece, bits]) => `${visible(piece)} ${number(bits, 2)}`).join("   "),
      ]),
    ),
  ),
});

/** Buttons and a slider for the steps of a search; they stay in place, so that the slider can be dragged. */
const stepBar = page => {
  let now = 0,
    last = 0;
  const go = step => page.set({ step: step >= last ? -1 : Math.max(0, step) });
  const button = (label, title, target) =>
    h("button", { type: "button", title, "aria-label": title, onclick: () => go(target()), "data-go": title }, label);
  const back = [button("❙◀", "to the beginning", () => 0), button("◀", "one step back", () => now - 1)],
    on = [button("▶", "one step on", () => now + 1), button("▶❙", "to the end", () => last)];
  const place = h("input", {
    type: "range",
    min: 0,
    name: "step",
    "aria-label": "Step of the search",
    oninput: () => go(Number(place.value)),
  });
  const said = h("span", {});
  const show = (step, steps) => {
    [now, last] = [step, steps];
    for (const each of back) each.disabled = now === 0;
    for (const each of on) each.disabled = now === last;
    place.max = last;
    if (Number(place.value) !== now) place.value = now;
    said.textContent = `step ${now} of ${last}`;
  };
  return { element: h("div", { class: "choices" }, back, on, place, said), show };
};

const drawBeams = (page, data, state) => {
  const joined = (page.joined = joinSearches(data.searches));
  const steps = Math.max(0, ...joined.nodes.map(node => node.depth)),
    upto = state.step < 0 ? steps : Math.min(state.step, steps);
  page.steps ??= stepBar(page);
  page.steps.show(upto, steps);
  const rows = joined.results.map(each => [
    each.text.trim(),
    each.total,
    each.tokens,
    each.score,
    each.finished ? "ended by the model" : "length limit reached",
    each.pinned ? "pinned" : "",
  ]);
  return {
    pictures: [
      page.steps.element,
      pins(page, state),
      h(
        "div",
        { class: "scroll", tabindex: -1 },
        drawTree(joined, { prompt: state.text, upto, room: page.inLecture ? Infinity : page.width }),
      ),
      upto === steps && table("The texts that were found", ["text", "log P", "tokens", "score", "end", ""], rows),
      !isSaved() && (!page.inLecture || page.picked) && chosen(page, state),
    ],
    tables: [
      table(
        "Every candidate",
        ["step", "text so far", "log P of the token", "log P of the whole", "fate"],
        joined.nodes.map(node => [
          node.depth,
          wayTo(node)
            .map(each => (each.ends ? "■" : visible(each.piece)))
            .join(""),
          node.log,
          node.total,
          node.forced ? "forced" : node.fate,
        ]),
      ),
    ],
  };
};

const pins = (page, state) =>
  state.pin.length > 0 &&
  h(
    "div",
    { class: "choices", "aria-label": "Pinned branches" },
    state.pin.map(each => {
      const node = page.joined.nodes.find(other => other.key === each);
      return h(
        "button",
        { type: "button", title: "Unpin", onclick: () => page.set({ pin: state.pin.filter(other => other !== each) }) },
        node
          ? wayTo(node)
              .map(part => visible(part.piece))
              .join("")
          : each,
        " ×",
      );
    }),
  );

/** What can be done with the branch that was clicked. */
const chosen = (page, state) => {
  const node = page.joined.nodes.find(each => each.key === page.picked);
  const text = node
    ? wayTo(node)
        .map(each => each.piece)
        .join("")
    : "";
  const input = h("input", {
    type: "text",
    name: "force",
    size: 18,
    "aria-label": "Word to force",
    placeholder: "word to force, with its space",
  });
  const force = async () => {
    if (!input.value) return;
    try {
      const { tokens } = await post("tokens", { run: state.run, after: state.text + text, text: input.value });
      page.set({
        pin: [
          ...new Set([...state.pin, [...(node ? [node.key] : []), ...tokens.map(each => each.token)].join(",")]),
        ].slice(-6),
      });
    } catch (error) {
      page.fail(error);
    }
  };
  input.addEventListener("keydown", event => {
    if (event.key === "Enter") force();
  });
  return h(
    "div",
    { class: "controls chosen" },
    h(
      "span",
      {},
      node
        ? ["Branch ", h("b", {}, visible(text))]
        : "Click a candidate to pin its branch, or force a word at the beginning.",
    ),
    node &&
      !node.ends &&
      h(
        "button",
        {
          type: "button",
          "data-do": "pin",
          onclick: () => page.set({ pin: [...new Set([...state.pin, node.key])].slice(-6) }),
        },
        "Pin this branch",
      ),
    !node?.ends && input,
    !node?.ends &&
      h("button", { type: "button", "data-do": "force", onclick: force }, node ? "Force it here" : "Force it"),
  );
};

export default {
  name: "write",
  title: "Write",
  lead:
    "Continue a text by sampling or beam search. Step through the tree; pin a branch that the search would " +
    "drop, or force a word, and see where it leads.",
  defaults: {
    run: "",
    mode: "samples",
    text: "Return a new",
    tokens: 40,
    samples: 3,
    temperature: 0.8,
    top_p: 1,
    seed: 0,
    beams: 3,
    steps: 6,
    penalty: 0,
    pin: [],
    step: -1,
  },
  prompt: state => state.text,
  example: ({ prompt }) => ({ text: prompt }),
  fits: run => run.does.includes("next token"),
  // Pins are tokens of one run after one text.
  change: (before, after) =>
    before.run !== after.run || before.text !== after.text
      ? { pin: after.pin === before.pin ? [] : after.pin, step: -1 }
      : {},
  controls: page => [
    textField(page, "Text", "text", { rows: 2, wait: 250 }),
    runPicker(page, { several: false, fits: page.view.fits, none: "No run here predicts the next token." }),
    choice(page, "Method", "mode", [
      ["samples", "sample"],
      ["beams", "beam search"],
    ]),
    ...only(
      page,
      "samples",
      numberField(page, "Texts", "samples", { min: 1, max: 8 }),
      numberField(page, "Tokens", "tokens", { min: 1, max: 200 }),
      slider(page, "Temperature", "temperature", { min: 0, max: 2, step: 0.05 }),
      slider(page, "Top-p", "top_p", { min: 0.05, max: 1, step: 0.05 }),
      numberField(page, "Seed", "seed", { min: 0, max: 999999 }),
    ),
    ...only(
      page,
      "beams",
      numberField(page, "Beams", "beams", { min: 1, max: 10 }),
      numberField(page, "Steps", "steps", { min: 1, max: 40 }),
      slider(page, "Length penalty", "penalty", { min: 0, max: 2, step: 0.1 }),
    ),
  ],
  asks: state =>
    state.mode === "samples"
      ? ["samples", state.run, state.text, state.tokens, state.samples, state.temperature, state.top_p, state.seed]
      : ["beams", state.run, state.text, state.beams, state.steps, state.penalty, state.pin],
  async ask(state, signal, page) {
    if (!state.run) return null;
    if (state.mode === "samples") return stream(state, signal, page);
    const pins = state.pin.map(each => each.split(",").map(Number)).filter(each => each.every(Number.isInteger));
    return {
      mode: "beams",
      ...(await post(
        "search",
        {
          run: state.run,
          text: state.text,
          beams: state.beams,
          tokens: state.steps,
          length_penalty: state.penalty,
          pins,
        },
        signal,
      )),
    };
  },
  draw: (page, data, state) => (data.mode === "samples" ? drawSamples(page, data) : drawBeams(page, data, state)),
  pick(page, key) {
    page.picked = page.picked === key ? undefined : key;
    page.draw();
  },
};
