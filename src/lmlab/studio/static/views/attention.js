// Attention: all heads of all layers in small, one in large with lines between tokens; tokens can be locked, and hidden
// from the model.

import { h, s, cut, number, percent, visible } from "../dom.js";
import { bytes, post } from "../api.js";
import { choice, runPicker, textField, tick } from "../fields.js";
import { colouredText, legend, table } from "../parts.js";
import { diverging, isDark, scale } from "../colours.js";
import { fromHalves } from "../halves.js";
import { heatMap } from "../heat.js";
import { hasAttention } from "../systems.js";

/** Tokens up to which a head is drawn cell by cell, with names, or with lines. */
const SMALL = 40,
  MOST_LINES = 64;
/** Lines of less weight are not drawn: no eye sees them. */
const LEAST = 0.01;
/** The side of a small picture, at most, as the server makes them. */
const THUMBNAIL = 32;
/** Most weights are small: colours go by their root, so that one in a hundred can be seen. */
const strength = value => Math.sign(value) * Math.sqrt(Math.abs(value));
/** A colour as the bytes of a pixel: red, green, blue and no transparency, lowest byte first. */
const bytesOf = colour =>
  (0xff000000 |
    (parseInt(colour.slice(5, 7), 16) << 16) |
    (parseInt(colour.slice(3, 5), 16) << 8) |
    parseInt(colour.slice(1, 3), 16)) >>>
  0;

/** The colours of the weights from −1 to 1, for each scale and each colour scheme of the page. */
const palettes = new Map();
const paletteOf = signed => {
  const key = `${signed} ${isDark()}`;
  if (!palettes.has(key))
    palettes.set(
      key,
      Uint32Array.from({ length: 511 }, (_, n) =>
        bytesOf(signed ? diverging((n - 255) / 255) : scale(Math.max(0, n - 255) / 255)),
      ),
    );
  return palettes.get(key);
};

/** A head as pixels: one for each weight, drawn as large as there is room. */
const pixels = (weights, rows, columns, size, signed) => {
  const palette = paletteOf(signed);
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

/** All heads as small pictures, a row for each layer; the arrow keys go from one to the next. */
const overview = (page, data, about, chosen) => {
  const { layers, heads } = about,
    [, , rows, columns] = data.small.shape;
  const room = page.width >= 1000 ? page.width * 0.42 : page.width;
  const size = Math.max(22, Math.min(84, Math.floor((room - 30) / heads) - 10, Math.floor(480 / layers) - 8));
  const drawn = `${size} ${isDark()}`;
  if (page.small?.bytes !== data.small.bytes || page.small.drawn !== drawn)
    page.small = { bytes: data.small.bytes, drawn, pictures: [] };
  const { pictures } = page.small; // they stay the same while another layer or head is chosen
  const go = (event, layer, head) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = event.currentTarget
      .closest(".overview")
      .querySelector(`[data-layer="${layer + step[0]}"][data-head="${head + step[1]}"]`);
    next?.focus();
    event.preventDefault();
    event.stopPropagation();
  };
  const thumbnail = (layer, head) => {
    const each = about.does[layer * heads + head],
      start = (layer * heads + head) * rows * columns,
      picked = layer === chosen.layer && head === chosen.head;
    const label = `Layer ${layer}, head ${head}: entropy ${number(each.entropy, 2)} bits, ${does(each)}`;
    const paint = () => {
      const part = data.small.bytes.subarray(start, start + rows * columns);
      return pixels(
        Float32Array.from(part, byte => (byte / 255) ** 2),
        rows,
        columns,
        size,
        false,
      );
    };
    return h(
      "button",
      {
        type: "button",
        class: "head",
        "data-layer": layer,
        "data-head": head,
        tabindex: picked ? 0 : -1,
        "aria-pressed": String(picked),
        "aria-label": label,
        title: label,
        onclick: () => page.set({ layer, head }, { push: true }),
        onfocus: () => page.say(label),
        onpointerenter: () => page.say(label),
        onkeydown: event => go(event, layer, head),
      },
      (pictures[layer * heads + head] ??= paint()),
    );
  };
  return h(
    "figure",
    { class: "overview" },
    h(
      "figcaption",
      {},
      "All heads",
      h("small", {}, `${layers} × ${heads}: a row for each layer; click one to enlarge it`),
    ),
    h(
      "div",
      { class: "scroll" },
      h(
        "div",
        { class: "thumbnails-of-heads", role: "group", "aria-label": "All heads", style: { "--heads": String(heads) } },
        Array.from({ length: layers }, (_, layer) => [
          h("span", { class: "layer" }, String(layer)),
          Array.from({ length: heads }, (_, head) => thumbnail(layer, head)),
        ]),
      ),
    ),
  );
};

/** Two columns of tokens, and lines from the one to the other, as strong as the weights (as in bertviz). */
export const lines = ({
  queries,
  keys,
  rows,
  columns,
  weights,
  from,
  locked,
  gone,
  signed,
  width,
  weight,
  pickKey,
}) => {
  const high = Math.max(15, Math.min(22, Math.floor(480 / Math.max(rows.length, columns.length)))), // of one token
    left = Math.min(150, Math.floor(width * 0.32)),
    right = width - left,
    tall = high * Math.max(rows.length, columns.length) + 4;
  const middle = index => index * high + high / 2 + 2,
    letters = Math.max(4, Math.floor((left - 14) / 8.6));
  const value = (r, c) => weights[r * columns.length + c];
  const name = (index, at, names, side, extra, marked) =>
    s(
      "g",
      {
        class: `mark ${marked ? "locked" : ""}`,
        tabindex: -1,
        role: side === "query" ? "button" : "img",
        [`data-${side}`]: at,
        ...extra,
      },
      s("rect", {
        class: "shade",
        x: side === "query" ? 0 : right,
        y: at * high + 3,
        width: left - 2,
        height: high - 2,
        rx: 4,
        fill: "transparent",
      }),
      s(
        "text",
        {
          class: `mono${gone.has(index) ? " gone" : ""}`,
          x: side === "query" ? left - 8 : right + 6,
          y: middle(at) + 5,
          "text-anchor": side === "query" ? "end" : "start",
        },
        cut(visible(names[index]), letters - (side === "key" ? 4 : 0)),
      ),
      side === "key" && s("text", { class: "tick", x: width - 6, y: middle(at) + 4, "text-anchor": "end" }),
      s("rect", {
        class: "ring",
        x: (side === "query" ? 0 : right) + 1,
        y: at * high + 3,
        width: left - 4,
        height: high - 3,
        rx: 4,
      }),
    );
  return s(
    "svg",
    {
      class: "lines",
      width,
      height: tall,
      viewBox: `0 0 ${width} ${tall}`,
      role: "group",
      "aria-label": "One head: from the tokens on the left to those on the right",
    },
    rows.map((_, r) =>
      s(
        "g",
        { class: "from", "data-from": r, opacity: from < 0 || r === from ? 1 : 0.06 },
        columns.map((_, c) => {
          const strong = Math.abs(value(r, c));
          return strong < LEAST
            ? null
            : s("line", {
                x1: left,
                y1: middle(r),
                x2: right,
                y2: middle(c),
                class: value(r, c) < 0 ? "fewer" : "more",
                "stroke-opacity": Math.min(1, strong ** 0.7).toFixed(3),
                "stroke-width": (0.8 + 3 * strong).toFixed(2),
                "stroke-dasharray": signed && value(r, c) < 0 ? "4 3" : undefined,
              });
        }),
      ),
    ),
    rows.map((index, r) =>
      name(
        index,
        r,
        queries,
        "query",
        {
          "data-pick": `lock ${index}`,
          "aria-label": `From “${visible(queries[index])}”: most to ${best(
            weights.subarray(r * columns.length, (r + 1) * columns.length),
            columns,
            keys,
          )}`,
        },
        index === locked,
      ),
    ),
    columns.map((index, c) =>
      name(
        index,
        c,
        keys,
        "key",
        {
          "aria-label": weight(Math.max(0, from), c),
          ...(pickKey ? { role: "button", "data-pick": `key ${index}` } : {}),
        },
        false,
      ),
    ),
  );
};

/** Show the lines of one token alone, and how much it attends to each key; of all tokens without one. */
const point = (page, from) => {
  const { svg, weights, columns, weight } = page.shown;
  page.from = from;
  for (const group of svg.querySelectorAll(".from"))
    group.setAttribute("opacity", from < 0 || Number(group.dataset.from) === from ? "1" : "0.06");
  for (const mark of svg.querySelectorAll("[data-key]")) {
    const at = Number(mark.dataset.key);
    const value = from < 0 ? 0 : weights[from * columns.length + at];
    mark
      .querySelector(".shade")
      .setAttribute("fill", from < 0 ? "transparent" : scale(Math.abs(strength(value)) * 0.55));
    mark.querySelector(".tick").textContent = from < 0 ? "" : number(value, 2);
    if (from >= 0) mark.setAttribute("aria-label", weight(from, at));
  }
  for (const mark of svg.querySelectorAll("[data-query]"))
    mark
      .querySelector(".shade")
      .setAttribute("fill", Number(mark.dataset.query) === from ? "var(--track)" : "transparent");
};

const heads = [
  "layer",
  "head",
  "entropy in bits",
  "distance",
  "on itself",
  "on the token before",
  "after",
  "on the first",
  "on special tokens",
];

export default {
  name: "attention",
  title: "Attention",
  lead:
    "The attention weights of every head in every layer. Choose a head to enlarge it: lines go from each token to " +
    "those that it attends to. Point at a token to see its lines alone, click to lock it, and hide it from the model " +
    "to see what changes. Attention is not an explanation.",
  defaults: {
    run: "",
    text: "The cat sat on the mat, and it was happy.",
    target: "",
    kind: "",
    layer: 0,
    head: 0,
    show: "lines",
    hide: false,
    lock: -1,
    masked: [],
    change: false,
  },
  prompt: state => state.text,
  variants: (state, data) => data.about.kinds[data.kind].does.map(({ layer }) => ({ layer })),
  example: ({ sentences: [text = ""] }) => ({ text }),
  fits: hasAttention,
  // Positions belong to one text and its tokens.
  change: (before, after) =>
    before.run !== after.run || before.text !== after.text ? { lock: -1, masked: [], change: false } : {},
  controls: page => {
    const layers = choice(page, "Layer", "layer", [[0, "0"]], { number: true }),
      kinds = choice(page, "Kind", "kind", [["self", "self"]]),
      heads = choice(page, "Head", "head", [[0, "0"]], { number: true });
    const target = textField(page, "Target (optional: else the run translates)", "target", { rows: 1, wait: 300 });
    page.follow(state => {
      target.hidden = !page.runs.find(run => run.name === state.run)?.does.includes("target text");
    });
    page.fields = data => {
      const about = data.about.kinds[data.kind],
        count = length => Array.from({ length }, (_, n) => [n, String(n)]);
      kinds.options(Object.keys(data.about.kinds));
      kinds.querySelector("select").value = data.kind;
      kinds.hidden = Object.keys(data.about.kinds).length < 2;
      layers.options(count(about.layers));
      layers.querySelector("select").value = String(data.layer);
      heads.options(count(about.heads));
      heads.querySelector("select").value = String(data.head);
    };
    return [
      textField(page, "Text", "text", { rows: 2, wait: 300 }),
      target,
      runPicker(page, { several: false, fits: page.view.fits, none: "No run here has attention: train gpt2 or bert." }),
      kinds,
      layers,
      heads,
      choice(page, "Show", "show", [
        ["lines", "lines"],
        ["matrix", "matrix"],
      ]),
      tick(page, "hide special tokens", "hide"),
      tick(page, "show only what changed", "change"),
    ];
  },
  asks: state => [state.run, state.text, state.target, state.kind, state.layer, state.masked],
  async ask(state, signal, page) {
    if (!state.run || !state.text.trim()) return null;
    const body = { run: state.run, text: state.text, target: state.target.trim() ? state.target : null },
      masked = state.masked.map(Number).filter(Number.isInteger);
    const key = JSON.stringify([body, masked, state.kind]);
    if (page.known?.key !== key) {
      const about = await post("attention", { ...body, masked }, signal),
        kind = about.kinds[state.kind] ? state.kind : (Object.keys(about.kinds).at(-1) ?? "self");
      const { layers, heads, queries, keys } = about.kinds[kind],
        small = new Uint8Array(await bytes("attention/heads", { ...body, masked, kind }, signal));
      const shape = [layers, heads, Math.min(queries.length, THUMBNAIL), Math.min(keys.length, THUMBNAIL)];
      page.known = { key, about, kind, small: { bytes: small, shape } };
    }
    const { about, kind, small } = page.known;
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
      small,
      head: Math.min(Math.max(0, state.head), heads - 1),
      shape: [heads, queries.length, keys.length],
      weights,
      before: before?.length === weights.length ? before : null,
    };
  },
  empty: "Choose a run with attention, and write a text.",
  draw(page, data, given) {
    data = { ...data, head: Math.min(Math.max(0, given.head), data.shape[0] - 1) };
    page.fields(data);
    const state = { ...given, kind: data.kind, head: data.head };
    const about = data.about.kinds[data.kind],
      { rows, columns } = kept(about, state);
    const signed = state.change && data.before !== null;
    const shown = signed ? { ...data, weights: data.weights.map((each, index) => each - data.before[index]) } : data;
    const weights = slice(shown, state.head, { rows, columns }),
      row = index => weights.subarray(index * columns.length, (index + 1) * columns.length);
    const gone = new Set(about.removed),
      locked = rows.indexOf(state.lock),
      beside = page.width >= 1000,
      room = beside ? Math.floor(page.width * 0.56) : page.width;
    const from = locked >= 0 ? locked : -1,
      one = locked >= 0 ? locked : rows.length - 1;
    const weight = (r, c) =>
      `“${visible(about.queries[rows[r]])}” attends to “${visible(about.keys[columns[c]])}” ` +
      `with ${number(row(r)[c])}${signed ? " more than before" : ""}`;
    const short = rows.length <= MOST_LINES && columns.length <= MOST_LINES;
    const tables = [
      table(
        `Layer ${data.layer}, head ${state.head}: from “${visible(about.queries[rows[one]])}”`,
        ["to", signed ? "change" : "weight"],
        columns.map((each, at) => [visible(about.keys[each]), row(one)[at]]),
      ),
      table(
        "All heads",
        heads,
        about.does.map(each => [
          each.layer,
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
    ];
    const figure = h(
      "figure",
      { class: "one-head" },
      h(
        "figcaption",
        {},
        `Layer ${data.layer}, head ${state.head}`,
        h("small", {}, does(about.does[data.layer * about.heads + state.head])),
      ),
      hiddenTokens(page, about, state, data),
      hideButton(page, about, state, data, locked >= 0 ? rows[locked] : -1),
    );
    page.shown = null;
    if (state.show === "lines" && short) {
      const svg = lines({
        queries: about.queries,
        keys: about.keys,
        rows,
        columns,
        weights,
        from,
        locked: state.lock,
        gone,
        signed,
        width: Math.min(room, 560),
        weight,
        pickKey: data.kind === "cross",
      });
      page.shown = { svg, weights, columns, rows, weight };
      figure.append(
        h(
          "p",
          { class: "sides" },
          h("span", {}, data.kind === "cross" ? "Target: from here" : "From here"),
          h("span", {}, "… to here"),
        ),
        svg,
      );
      if (from >= 0) point(page, from);
    } else
      figure.append(
        ...(state.show === "lines"
          ? [h("p", { class: "empty" }, `The text has more than ${MOST_LINES} tokens: the matrix is shown.`)]
          : []),
        colouredText(
          rows.map((index, at) => ({
            piece: about.queries[index],
            share: at === one ? 1 : 0,
            says: `From “${visible(about.queries[index])}”: most to ${best(row(at), columns, about.keys)}`,
            pick: `lock ${index}`,
            class: at === locked ? "locked" : "",
          })),
          room,
        ),
        legend("weight", signed ? [-1, -0.5, -0.1, 0, 0.1, 0.5, 1] : [0, 0.05, 0.2, 0.5, 0.8, 1], strength, { signed }),
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
                says: weight,
              }),
            )
          : large(page, weights, rows, columns, about, signed, room),
      );
    return {
      pictures: h(
        "div",
        { class: beside ? "attention beside" : "attention" },
        overview(page, data, about, { layer: data.layer, head: state.head }),
        figure,
      ),
      tables,
    };
  },
  point(page, mark) {
    if (!page.shown || page.state.lock >= 0) return;
    const { query } = mark.dataset;
    if (query !== undefined && Number(query) !== page.from) point(page, Number(query));
  },
  leave(page) {
    if (page.shown && page.state.lock < 0) point(page, -1);
  },
  pick(page, what) {
    const [kind, at] = what.split(" "),
      { lock, masked } = page.state;
    if (kind === "lock") page.set({ lock: lock === Number(at) ? -1 : Number(at) });
    else page.set({ masked: masked.includes(at) ? masked.filter(each => each !== at) : [...masked, at], lock: -1 });
  },
};

/** The tokens that are hidden from the model, with buttons that show them again. */
const hiddenTokens = (page, about, state, data) =>
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
          "data-do": "unmask",
          onclick: () => page.set({ masked: state.masked.filter(other => other !== each) }),
        },
        `${each}: ${visible(about.keys[Number(each)] ?? "")} ×`,
      ),
    ),
    about.removed.length > 0 && " It reads the text without.",
    data.before === null && " Nothing to compare with: the translation has another length.",
  );

const hideButton = (page, about, state, data, index) => {
  if (data.kind === "cross")
    return h("p", { class: "hint" }, "Click a token on the right, and the run translates without it.");
  if (data.kind === "decoder") return false;
  if (index < 0)
    return h("p", { class: "hint" }, "Click a token on the left to lock it; then it can be hidden from the model.");
  return h(
    "div",
    { class: "choices" },
    h(
      "button",
      {
        type: "button",
        "data-do": "mask",
        onclick: () => page.set({ masked: [...new Set([...state.masked, String(index)])], lock: -1, change: true }),
      },
      `Hide “${cut(visible(about.queries[index]), 14)}” from the model`,
    ),
    h("button", { type: "button", class: "plain", onclick: () => page.set({ lock: -1 }) }, "Unlock"),
  );
};

/** The three keys with the largest weights in a row. */
const best = (row, columns, keys) => {
  const top = [];
  for (let at = 0; at < row.length; at++) {
    let place = top.length;
    while (place > 0 && Math.abs(row[at]) > Math.abs(row[top[place - 1]])) place--;
    if (place < 3) top.splice(place, 0, at);
    if (top.length > 3) top.pop();
  }
  return top.map(at => `“${visible(keys[columns[at]])}” ${number(row[at], 2)}`).join(", ");
};

/** A head of many tokens: pixels that show their values when pointed at. */
const large = (page, weights, rows, columns, about, signed, room) => {
  const canvas = pixels(weights, rows.length, columns.length, Math.min(room, 720), signed);
  canvas.setAttribute("aria-label", `One head, ${rows.length} by ${columns.length} tokens`);
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect();
    const r = Math.min(rows.length - 1, Math.floor(((event.clientY - box.top) / box.height) * rows.length)),
      c = Math.min(columns.length - 1, Math.floor(((event.clientX - box.left) / box.width) * columns.length));
    if (r >= 0 && c >= 0)
      page.say(
        `“${visible(about.queries[rows[r]])}” attends to ` +
          `“${visible(about.keys[columns[c]])}” with ${number(weights[r * columns.length + c])}`,
      );
  });
  return h("div", { class: "scroll" }, canvas);
};
