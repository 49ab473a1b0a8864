// Attention: all heads of a layer in small, one head in large; tokens can be locked, and hidden from the model.

import { h, cut, number, percent, visible } from "../dom.js";
import { bytes, post } from "../api.js";
import { choice, runPicker, textField, tick } from "../fields.js";
import { colouredText, legend, table } from "../parts.js";
import { diverging, scale } from "../colours.js";
import { fromHalves } from "../halves.js";
import { heatMap } from "../heat.js";

const SMALL = 40;
/** Tokens up to which a head is drawn cell by cell, with names. */
/** Most weights are small: colours go by their root, so that one in a hundred can be seen. */
const strength = value => Math.sign(value) * Math.sqrt(Math.abs(value));
/** A colour as the bytes of a pixel: red, green, blue and no transparency, lowest byte first. */
const bytesOf = colour =>
  (0xff000000 |
    (parseInt(colour.slice(5, 7), 16) << 16) |
    (parseInt(colour.slice(3, 5), 16) << 8) |
    parseInt(colour.slice(1, 3), 16)) >>>
  0;

/** A head as pixels: one for each weight, drawn as large as there is room. */
const pixels = (weights, rows, columns, size, signed) => {
  const palette = Uint32Array.from({ length: 511 }, (_, n) =>
    bytesOf(signed ? diverging((n - 255) / 255) : scale(Math.max(0, n - 255) / 255)),
  );
  const canvas = h("canvas", { width: columns, height: rows, role: "img" });
  const image = new ImageData(columns, rows);
  const drawn = new Uint32Array(image.data.buffer);
  for (let i = 0; i < rows * columns; i++)
    drawn[i] = palette[255 + Math.max(-255, Math.min(255, Math.round(255 * strength(weights[i]))))];
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.style.setProperty("width", `${Math.round(size * Math.min(1, columns / rows))}px`);
  canvas.style.setProperty("height", `${Math.round(size * Math.min(1, rows / columns))}px`);
  canvas.style.setProperty("image-rendering", "pixelated");
  return canvas;
};

/** The head that is shown, without the tokens that are not to be. */
const slice = (data, head, keep) => {
  const { rows, columns } = keep,
    [, T, S] = data.shape,
    start = head * T * S;
  if (rows.length === T && columns.length === S) return data.weights.subarray(start, start + T * S);
  const found = new Float32Array(rows.length * columns.length);
  rows.forEach((row, i) =>
    columns.forEach((column, j) => {
      found[i * columns.length + j] = data.weights[start + row * S + column];
    }),
  );
  return found;
};

const kept = (about, state) => {
  const indices = list => list.map((_, index) => index);
  const rows = indices(about.queries),
    columns = indices(about.keys);
  if (!state.hide) return { rows, columns };
  const shown = columns.filter(index => !about.special[index]);
  return { rows: state.kind === "cross" ? rows : rows.filter(index => !about.special[index]), columns: shown };
};

const does = each =>
  [
    ["itself", "itself"],
    ["previous", "the token before"],
    ["following", "the token after"],
    ["first", "the first token"],
    ["special", "special tokens"],
  ]
    .filter(([name]) => each[name] !== null)
    .sort((a, b) => each[b[0]] - each[a[0]])
    .slice(0, 1)
    .map(([name, words]) => `${percent(each[name])} on ${words}`)[0] ?? "";

export default {
  name: "attention",
  title: "Attention",
  lead:
    "The attention weights of each head: a row for each query token, a column for each key token. Click a " +
    "head to enlarge it. Point at a token to see where it attends, click to lock it, and hide it from the " +
    "model to see what changes. Attention is not an explanation.",
  defaults: {
    run: "",
    text: "The cat sat on the mat, and it was happy.",
    target: "",
    kind: "",
    layer: 0,
    head: -1,
    hide: false,
    lock: -1,
    masked: [],
    change: false,
  },
  fits: run => run.does.includes("vectors") && run.pictures !== true,
  prefers: run => /transformer|attention|bert/i.test(run.summary ?? ""),
  controls: page => {
    const layers = choice(page, "Layer", "layer", [[0, "0"]], { number: true }),
      kinds = choice(page, "Kind", "kind", [["self", "self"]]),
      heads = choice(page, "Head", "head", [[-1, "all"]], { number: true });
    const target = textField(page, "Target (optional: else the run translates)", "target", { rows: 1, wait: 300 });
    page.follow(state => {
      target.hidden = !page.runs.find(run => run.name === state.run)?.does.includes("target text");
    });
    page.fields = data => {
      const about = data.about.kinds[data.kind];
      kinds.options(Object.keys(data.about.kinds));
      kinds.querySelector("select").value = data.kind;
      layers.options(Array.from({ length: about.layers }, (_, n) => [n, String(n)]));
      layers.querySelector("select").value = String(data.layer);
      heads.options([[-1, "all"], ...Array.from({ length: about.heads }, (_, n) => [n, String(n)])]);
    };
    return [
      textField(page, "Text", "text", { rows: 2, wait: 300 }),
      target,
      runPicker(page, { several: false, fits: page.view.fits, none: "No run here has attention: train gpt2 or bert." }),
      kinds,
      layers,
      heads,
      tick(page, "hide special tokens", "hide"),
      tick(page, "show only what changed", "change"),
    ];
  },
  asks: state => [state.run, state.text, state.target, state.kind, state.layer, state.masked],
  async ask(state, signal, page) {
    if (!state.run || !state.text.trim()) return null;
    const body = { run: state.run, text: state.text, target: state.target.trim() ? state.target : null },
      masked = state.masked.map(Number).filter(Number.isInteger);
    const key = JSON.stringify([body, masked]);
    if (page.known?.key !== key) page.known = { key, about: await post("attention", { ...body, masked }, signal) };
    const { about } = page.known,
      kind = about.kinds[state.kind] ? state.kind : Object.keys(about.kinds)[0];
    const { queries, keys, heads, layers } = about.kinds[kind],
      layer = Math.min(Math.max(0, state.layer), layers - 1);
    const read = async hidden =>
      fromHalves(await bytes("attention/layer", { ...body, kind, layer, masked: hidden }, signal));
    const weights = await read(masked),
      before = masked.length ? await read([]) : null;
    return {
      about,
      kind,
      layer,
      shape: [heads, queries.length, keys.length],
      weights,
      before: before?.length === weights.length ? before : null,
    };
  },
  empty: "Choose a run with attention, and write a text.",
  draw(page, data, state) {
    page.fields(data);
    const about = data.about.kinds[data.kind],
      keep = kept(about, { ...state, kind: data.kind }),
      { rows, columns } = keep;
    const signed = state.change && data.before !== null;
    const shown = signed ? { ...data, weights: data.weights.map((each, index) => each - data.before[index]) } : data;
    const ofLayer = about.does.filter(each => each.layer === data.layer);
    const hidden =
      state.masked.length > 0 &&
      h(
        "p",
        {},
        "Hidden from the model: ",
        state.masked.map(each =>
          h(
            "button",
            {
              type: "button",
              title: "Show it again",
              onclick: () => page.set({ masked: state.masked.filter(other => other !== each) }),
            },
            `${each}: ${visible(about.keys[Number(each)] ?? "")} ×`,
          ),
        ),
        data.before === null && " Nothing to compare with: the translation has another length.",
      );
    if (state.head < 0 || state.head >= about.heads) {
      const size = Math.max(110, Math.min(220, Math.floor(page.width / Math.min(about.heads, 6)) - 16));
      const grid = h(
        "div",
        { class: "heads" },
        ofLayer.map(each =>
          h(
            "figure",
            {},
            h(
              "button",
              {
                type: "button",
                class: "head",
                "data-head": each.head,
                "aria-label": `Head ${each.head}: entropy ${number(each.entropy, 2)} bits, ${does(each)}`,
                onclick: () => page.set({ head: each.head }, { push: true }),
                onfocus: event => page.say(event.currentTarget.getAttribute("aria-label")),
                onpointerenter: event => page.say(event.currentTarget.getAttribute("aria-label")),
              },
              pixels(slice(shown, each.head, keep), rows.length, columns.length, size, signed),
            ),
            h("figcaption", {}, `Head ${each.head}`, h("small", {}, does(each))),
          ),
        ),
      );
      return {
        pictures: [hidden, grid],
        tables: [
          table(
            `Heads of layer ${data.layer}`,
            [
              "head",
              "entropy in bits",
              "distance",
              "on itself",
              "on the token before",
              "after",
              "on the first",
              "on special tokens",
            ],
            ofLayer.map(each => [
              each.head,
              each.entropy,
              each.distance,
              each.itself,
              each.previous,
              each.following,
              each.first,
              each.special,
            ]),
          ),
        ],
      };
    }
    const weights = slice(shown, state.head, keep),
      row = index => weights.subarray(index * columns.length, (index + 1) * columns.length);
    const locked = rows.indexOf(state.lock),
      from = (page.from = locked >= 0 ? locked : Math.min(page.from ?? rows.length - 1, rows.length - 1));
    page.locked = false;
    const strip = [
      h(
        "figure",
        {},
        h(
          "figcaption",
          {},
          data.kind === "cross" ? "Target: from here" : "From here",
          h("small", {}, locked >= 0 ? "locked; click it again to free it" : "point at a token, or click to lock it"),
        ),
        colouredText(
          rows.map((index, at) => ({
            piece: about.queries[index],
            share: at === from ? 1 : 0,
            says: `From “${visible(about.queries[index])}”: most to ${best(row(at), columns, about.keys)}`,
            pick: `lock ${index}`,
            class: at === locked ? "locked" : "",
          })),
          page.width,
        ),
      ),
      h(
        "figure",
        {},
        h("figcaption", {}, `“${visible(about.queries[rows[from]])}” looks ${signed ? "(change)" : ""} here`),
        legend("weight", signed ? [-1, -0.5, -0.1, 0, 0.1, 0.5, 1] : [0, 0.05, 0.2, 0.5, 0.8, 1], strength, { signed }),
        colouredText(
          columns.map((index, at) => ({
            piece: about.keys[index],
            share: Math.abs(strength(row(from)[at])),
            ...(signed ? { sign: row(from)[at] < 0 ? -1 : 1 } : {}),
            says:
              `“${visible(about.queries[rows[from]])}” attends to “${visible(about.keys[index])}” ` +
              `with ${number(row(from)[at])}${signed ? " more than before" : ""}`,
          })),
          page.width,
        ),
      ),
    ];
    const matrix =
      rows.length <= SMALL && columns.length <= SMALL
        ? h(
            "div",
            { class: "scroll" },
            heatMap({
              rows: rows.map(index => about.queries[index]),
              columns: columns.map(index => about.keys[index]),
              weights: rows.map((_, at) => [...row(at)]),
              name: "One head",
              share: strength,
              signed,
              says: (r, c, value) =>
                `“${visible(about.queries[rows[r]])}” attends to ` +
                `“${visible(about.keys[columns[c]])}” with ${number(value)}`,
            }),
          )
        : large(page, weights, rows, columns, about, signed);
    const index = rows[from],
      canHide = data.kind !== "cross" && data.kind !== "decoder";
    const bar = h(
      "div",
      { class: "choices" },
      h(
        "button",
        { type: "button", "data-do": "all", onclick: () => page.set({ head: -1 }, { push: true }) },
        "← all heads",
      ),
      canHide &&
        h(
          "button",
          {
            type: "button",
            "data-do": "mask",
            onclick: () => page.set({ masked: [...new Set([...state.masked, String(index)])], lock: -1, change: true }),
          },
          `Hide “${cut(visible(about.queries[index]), 14)}” from the model`,
        ),
    );
    return {
      pictures: [bar, hidden, ...strip, matrix],
      tables: [
        table(
          `Layer ${data.layer}, head ${state.head}: from “${visible(about.queries[index])}”`,
          ["to", signed ? "change" : "weight"],
          columns.map((each, at) => [visible(about.keys[each]), row(from)[at]]),
        ),
      ],
    };
  },
  point(page, mark) {
    const found = /^lock (\d+)$/.exec(mark.dataset.pick ?? "");
    if (!found || page.state.lock >= 0 || page.state.head < 0) return;
    const about = page.data.about.kinds[page.data.kind],
      at = kept(about, { ...page.state, kind: page.data.kind }).rows.indexOf(Number(found[1]));
    if (at >= 0 && at !== page.from) {
      page.from = at;
      page.draw();
    }
  },
  pick(page, what) {
    const index = Number(what.split(" ")[1]);
    page.set({ lock: page.state.lock === index ? -1 : index });
  },
};

const best = (row, columns, keys) =>
  [...row]
    .map((value, at) => [value, keys[columns[at]]])
    .sort((a, b) => Math.abs(b[0]) - Math.abs(a[0]))
    .slice(0, 3)
    .map(([value, key]) => `“${visible(key)}” ${number(value, 2)}`)
    .join(", ");

/** A head of many tokens: pixels that show their values when pointed at. */
const large = (page, weights, rows, columns, about, signed) => {
  const canvas = pixels(weights, rows.length, columns.length, Math.min(page.width, 720), signed);
  canvas.setAttribute("aria-label", `One head, ${rows.length} by ${columns.length} tokens`);
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect();
    const r = Math.min(rows.length - 1, Math.floor(((event.clientY - box.top) / box.height) * rows.length)),
      c = Math.min(columns.length - 1, Math.floor(((event.clientX - box.left) / box.width) * columns.length));
    if (r >= 0 && c >= 0)
      page.say(
        `“${visible(about.queries[rows[r]])}” looks at ` +
          `“${visible(about.keys[columns[c]])}” with ${number(weights[r * columns.length + c])}`,
      );
  });
  return h("div", { class: "scroll" }, canvas);
};
