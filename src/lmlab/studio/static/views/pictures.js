// Pictures: the classes that a run predicts for a picture, where in it each head attends, and pictures for a text.

import { h, number, percent, s } from "../dom.js";
import { post } from "../api.js";
import { choice, runPicker, textField } from "../fields.js";
import { bars, table } from "../parts.js";
import { colourOf } from "../colours.js";

/** Bytes of a file, at most: the same limit as on the server. */
const MOST = 8 * 2 ** 20;
const DARKEST = 0.82;

/** How dark the layer over each patch is: not at all where the weight is largest, darkest where there is none. */
export const darkness = weights => {
  const most = Math.max(...weights) || 1;
  return weights.map(weight => DARKEST * (1 - Math.min(1, Math.max(0, weight / most))));
};

/** The content of a file in base64. */
const encode = file =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });

/** A picture with the weights of its patches; a patch that is clicked becomes the one that attends. */
const overlay = (page, data, weights, title, size) => {
  const [rows, columns] = data.grid,
    dark = darkness(weights);
  return h(
    "figure",
    {},
    s(
      "svg",
      {
        viewBox: `0 0 ${columns} ${rows}`,
        width: size,
        height: (size * rows) / columns,
        role: "img",
        "aria-label": title,
      },
      s("image", {
        href: data.picture,
        width: columns,
        height: rows,
        preserveAspectRatio: "none",
        style: { "image-rendering": "pixelated" },
      }),
      weights.map((weight, place) =>
        s(
          "rect",
          {
            x: place % columns,
            y: Math.floor(place / columns),
            width: 1,
            height: 1,
            fill: "rgb(22, 40, 110)",
            "fill-opacity": dark[place].toFixed(3),
            stroke: place === page.state.patch ? "#ffb000" : "none",
            "stroke-width": 0.08,
            onclick: () => page.set({ patch: place === page.state.patch ? -1 : place }),
            onpointerenter: () =>
              page.say(`row ${Math.floor(place / columns)}, column ${place % columns}: ${percent(weight)}`),
          },
          s("title", {}, percent(weight)),
        ),
      ),
    ),
    h("figcaption", {}, title),
  );
};

/** Small pictures as buttons; one that is pressed becomes the picture that is shown. */
const thumbnails = (page, examples, title) =>
  h(
    "figure",
    { class: "wide" },
    h("figcaption", {}, title),
    h(
      "div",
      { class: "thumbnails" },
      examples.map(each =>
        h(
          "button",
          {
            type: "button",
            title: each.text,
            "aria-pressed": String(each.example === page.state.example),
            "aria-label": each.text || `held-out picture ${each.example}`,
            onclick: () => page.set({ example: each.example, file: "", patch: -1 }),
          },
          h("img", { src: each.picture, alt: "" }),
          each.cosine !== undefined && h("small", {}, number(each.cosine, 3)),
        ),
      ),
    ),
  );

/** The labels of a text with commas between them. */
export const splitLabels = text => [
  ...new Set(
    text
      .split(",")
      .map(each => each.trim())
      .filter(Boolean),
  ),
];

const matches = run => run?.does?.includes("pictures and texts") === true;

const note = unknown =>
  unknown?.length > 0 &&
  h("p", { class: "empty" }, `Not in the vocabulary of this run, so they mean little: ${unknown.join(", ")}.`);

/** The attention over a picture, and its classes. */
const drawLook = (page, data, state) => {
  page.fields(data);
  const layers = data.weights.map((_, layer) => layer).filter(layer => state.layer < 0 || layer === state.layer),
    none = data.rollout.map(() => 1);
  const from = state.patch < 0 ? "[CLS]" : `patch ${state.patch}`;
  return {
    pictures: [
      data.classes.length > 0 &&
        h("p", {}, "Predicted: ", h("strong", {}, data.classes[0].label), ` ${percent(data.classes[0].probability)}`),
      note(data.unknown),
      data.classes.length > 1 &&
        h(
          "figure",
          {},
          bars(
            data.classes.map(each => ({
              piece: each.label,
              share: each.probability,
              number: percent(each.probability),
              says: `${each.label}: ${percent(each.probability)}`,
            })),
            colourOf(page.state.run),
            Math.min(page.width, 480),
          ),
        ),
      h(
        "div",
        { class: "heads" },
        overlay(page, data, none, "Picture", 180),
        overlay(page, data, data.rollout, `Rollout from ${from}`, 180),
      ),
      h(
        "div",
        { class: "heads" },
        layers.flatMap(layer =>
          data.weights[layer].map((weights, head) =>
            overlay(page, data, weights, `Layer ${layer}, head ${head}`, state.layer < 0 ? 110 : 180),
          ),
        ),
      ),
    ].filter(Boolean),
    tables: [
      data.classes.length > 0 &&
        table(
          "Classes",
          ["class", "probability"],
          data.classes.map(each => [each.label, each.probability]),
        ),
      table(
        "Heads",
        ["layer", "head", "entropy in bits", "distance in pixels", "on [CLS]"],
        data.heads.map(each => [each.layer, each.head, number(each.entropy, 2), number(each.distance, 1), each.cls]),
      ),
    ].filter(Boolean),
  };
};

/** The nearest held-out pictures of a text. */
const drawFound = (page, found, text) => ({
  pictures: [
    thumbnails(page, found.hits, `Nearest of ${found.searched} held-out pictures to “${text}”, with their cosines`),
    note(found.unknown),
  ].filter(Boolean),
  tables: [
    table(
      "Nearest pictures",
      ["rank", "picture", "known as", "cosine"],
      found.hits.map((each, rank) => [rank + 1, each.example, each.text, each.cosine]),
    ),
  ],
});

export default {
  name: "pictures",
  title: "Pictures",
  lead:
    "Choose a held-out picture of the run, or a file of at most 8 MiB. Each figure shows the weights of its patches " +
    "from [CLS]: a clear patch has the largest weight, a dark one none. Click a patch to see the attention from " +
    "there. Rollout follows attention through all layers. Attention is not an explanation. A run of clip labels the " +
    "picture without training, and finds held-out pictures for a text.",
  defaults: { run: "", file: "", example: -1, labels: "", template: "{}", text: "", layer: -1, patch: -1 },
  fits: run => run.pictures === true,
  controls: page => {
    const input = h("input", {
      type: "file",
      name: "file",
      accept: "image/png,image/jpeg,image/webp,image/gif",
      onchange: () => {
        const file = input.files[0];
        if (!file) return;
        if (file.size > MOST) return page.fail({ message: `${file.name} is larger than ${MOST / 2 ** 20} MiB` });
        page.file = file;
        page.set({ file: `${file.name} ${file.size} ${file.lastModified}`, example: -1, patch: -1 });
      },
    });
    const layers = choice(page, "Layer", "layer", [[-1, "all"]], { number: true });
    page.fields = data => {
      layers.options([[-1, "all"], ...data.weights.map((_, layer) => [layer, String(layer)])]);
      layers.querySelector("select").value = String(page.state.layer);
    };
    const labels = textField(page, "Labels, with commas between them", "labels", { rows: 1, wait: 400 }),
      template = textField(page, "Text around a label", "template", { rows: 1, wait: 400 }),
      text = textField(page, "Find pictures for a text", "text", { rows: 1, wait: 400 }),
      offered = h("div", { class: "wide" });
    offer(page, offered);
    page.follow(state => {
      const own = matches(page.runs.find(each => each.name === state.run));
      for (const each of [labels, template, text]) each.hidden = !own;
    });
    return [
      runPicker(page, {
        several: false,
        fits: page.view.fits,
        none: "No run here reads pictures: train vit or clip.",
      }),
      offered,
      h("label", { class: "field wide" }, "Or a file", input),
      labels,
      template,
      text,
      layers,
    ];
  },
  empty: "Choose a run and a picture.",
  asks: state => [state.run, state.file, state.example, state.patch, state.labels, state.template, state.text],
  ask: async (state, signal, page) => {
    const own = matches(page.runs.find(each => each.name === state.run)),
      labels = own ? splitLabels(state.labels) : [],
      sent = state.example < 0 && state.file !== "" && page.file;
    if (!state.run) return null;
    const look = (state.example >= 0 || sent) && {
      run: state.run,
      example: state.example,
      patch: state.patch,
      labels: labels.length > 1 ? labels : [],
      template: state.template.includes("{}") ? state.template : "{}",
      ...(sent ? { name: page.file.name, picture: await encode(page.file) } : {}),
    };
    const find = own && state.text.trim() !== "" && { run: state.run, text: state.text };
    if (!look && !find) return null;
    const [shown, found] = await Promise.all([
      look ? post("pictures", look, signal) : null,
      find ? post("pictures/find", find, signal) : null,
    ]);
    return { shown, found };
  },
  draw(page, data, state) {
    const parts = [
      data.found && drawFound(page, data.found, state.text),
      data.shown && drawLook(page, data.shown, state),
    ].filter(Boolean);
    return {
      pictures: parts.flatMap(each => each.pictures),
      tables: parts.flatMap(each => each.tables),
    };
  },
};

/** Show the held-out pictures of the chosen run, as soon as a run is chosen. */
const offer = (page, offered) => {
  let asked = "",
    examples = [];
  const draw = () => offered.replaceChildren(thumbnails(page, examples, "Held-out pictures of the run"));
  page.follow(async state => {
    if (state.run === asked) return examples.length > 0 && draw();
    asked = state.run;
    examples = [];
    offered.replaceChildren();
    if (!asked) return;
    const run = asked;
    try {
      const found = await post("pictures/examples", { run });
      if (run !== asked) return;
      examples = found.examples;
      draw();
    } catch (error) {
      if (run === asked) offered.replaceChildren(h("p", { class: "empty" }, error.message));
    }
  });
};
