// Pictures: the classes that a run predicts for a picture, and where in it each head attends.

import { h, number, percent, s } from "../dom.js";
import { post } from "../api.js";
import { choice, runPicker } from "../fields.js";
import { table } from "../parts.js";

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

export default {
  name: "pictures",
  title: "Pictures",
  lead:
    "Choose a picture of at most 8 MiB. Each figure shows the weights of its patches from [CLS]: a clear patch has " +
    "the largest weight, a dark one none. Click a patch to see the attention from there. Rollout follows attention " +
    "through all layers. Attention is not an explanation.",
  defaults: { run: "", file: "", layer: -1, patch: -1 },
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
        page.set({ file: `${file.name} ${file.size} ${file.lastModified}`, patch: -1 });
      },
    });
    const layers = choice(page, "Layer", "layer", [[-1, "all"]], { number: true });
    page.fields = data => {
      layers.options([[-1, "all"], ...data.weights.map((_, layer) => [layer, String(layer)])]);
      layers.querySelector("select").value = String(page.state.layer);
    };
    return [
      h("label", { class: "field wide" }, "Picture", input),
      runPicker(page, {
        several: false,
        fits: page.view.fits,
        none: "No run here reads pictures: train vit or clip.",
      }),
      layers,
    ];
  },
  empty: "Choose a run and a picture.",
  asks: state => [state.run, state.file, state.patch],
  ask: async (state, signal, page) => {
    if (!state.run || !page.file) return null;
    const picture = await encode(page.file);
    return post("pictures", { run: state.run, name: page.file.name, picture, patch: state.patch }, signal);
  },
  draw(page, data, state) {
    page.fields(data);
    const layers = data.weights.map((_, layer) => layer).filter(layer => state.layer < 0 || layer === state.layer),
      none = data.rollout.map(() => 1);
    const from = state.patch < 0 ? "[CLS]" : `patch ${state.patch}`;
    return {
      pictures: [
        data.classes.length > 0 &&
          h("p", {}, "Predicted: ", h("strong", {}, data.classes[0].label), ` ${percent(data.classes[0].probability)}`),
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
  },
};
