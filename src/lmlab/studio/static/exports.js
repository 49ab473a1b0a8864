// What is seen, as a file: SVG and PNG of the pictures, JSON of the numbers, and one HTML page that needs nothing else.

import { h, s } from "./dom.js";
import { isSaved } from "./recording.js";

const STYLES = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "fill-opacity",
  "stroke-opacity",
  "font-family",
  "font-size",
  "font-weight",
  "font-style",
  "visibility",
  "text-anchor",
];

/** A copy of a picture whose colours and fonts are its own. */
export const standAlone = picture => {
  const copy = picture.cloneNode(true);
  const from = [picture, ...picture.querySelectorAll("*")],
    to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((each, index) => {
    const computed = getComputedStyle(each),
      target = to[index];
    for (const name of STYLES) {
      const value = computed.getPropertyValue(name);
      if (value && !(name === "visibility" && value === "visible"))
        target.setAttribute(name, value.replaceAll('"', "'"));
    }
    for (const name of ["class", "tabindex", "style", "data-pick"]) target.removeAttribute(name);
  });
  const box = picture.getBoundingClientRect();
  copy.setAttribute("width", String(box.width));
  copy.setAttribute("height", String(box.height));
  return copy;
};

/** All pictures of a stage in one, at their positions on the page; a canvas becomes an image in it. */
export const together = stage => {
  const pictures = [...stage.querySelectorAll("svg, canvas")].filter(
    each => !each.parentElement.closest("svg") && each.getClientRects().length && !each.closest("[data-small]"),
  );
  if (!pictures.length) return null;
  const scrolls = each => {
    let x = 0;
    for (let up = each.parentElement; up && up !== stage.parentElement; up = up.parentElement) x += up.scrollLeft;
    return x;
  };
  const origin = stage.getBoundingClientRect();
  const boxes = pictures.map(each => {
    const box = each.getBoundingClientRect();
    return { x: box.left - origin.left + scrolls(each), y: box.top - origin.top, width: box.width, height: box.height };
  });
  const captions = [...stage.querySelectorAll("figcaption")].map(each => {
    const box = each.getBoundingClientRect();
    return s(
      "text",
      {
        x: box.left - origin.left,
        y: box.top - origin.top + 15,
        "font-weight": 600,
        "font-family": "system-ui, sans-serif",
        "font-size": 14,
        fill: getComputedStyle(each).color,
      },
      each.innerText.replaceAll("\n", " "),
    );
  });
  const width = Math.ceil(Math.max(...boxes.map(box => box.x + box.width)) + 12),
    height = Math.ceil(Math.max(...boxes.map(box => box.y + box.height)) + 12);
  const whole = s(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    s("rect", { width, height, fill: getComputedStyle(document.documentElement).getPropertyValue("--card").trim() }),
  );
  pictures.forEach((each, index) => {
    const { x, y, width: wide, height: high } = boxes[index];
    if (each instanceof HTMLCanvasElement)
      return whole.append(s("image", { x, y, width: wide, height: high, href: each.toDataURL() }));
    const copy = standAlone(each);
    copy.setAttribute("x", String(x));
    copy.setAttribute("y", String(y));
    whole.append(copy);
  });
  whole.append(...captions);
  return whole;
};

export const toText = node => new XMLSerializer().serializeToString(node);

/** Hand a file to the user. */
export const save = (name, content, type) => {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = h("a", { href: address, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 4000);
};

const toPng = async svg => {
  const address = URL.createObjectURL(new Blob([toText(svg)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = h("canvas", {
      width: 2 * Number(svg.getAttribute("width")),
      height: 2 * Number(svg.getAttribute("height")),
    });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob(
        blob => (blob ? resolve(blob) : reject(new Error("the picture is too large for PNG"))),
        "image/png",
      ),
    );
  } finally {
    URL.revokeObjectURL(address);
  }
};

/** The whole view as one page, with its pictures, tables and numbers in it. */
const toPage = async ({ title, lead, stage, tables, data, link }) => {
  const style = await (await fetch("/studio/static/studio.css")).text();
  const picture = together(stage);
  const words = picture ? [] : [...stage.childNodes].map(each => each.cloneNode(true));
  const json = h("script", { type: "application/json", id: "data" });
  json.textContent = JSON.stringify(data).replaceAll("<", "\\u003c");
  const main = h(
    "main",
    {},
    h("h1", {}, title),
    h("p", { class: "lead" }, lead),
    h("section", {}, h("div", { class: "scroll" }, picture ?? words)),
    h(
      "section",
      {},
      tables.map(each => each.cloneNode(true)),
    ),
    h("p", { class: "lead" }, `Made with lmlab studio: ${link}`),
    json,
  );
  for (const each of main.querySelectorAll("button, input, select, textarea")) each.setAttribute("disabled", "");
  const head = [
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
    h("title", {}, title).outerHTML,
    `<style>${style}</style>`,
  ].join("");
  return `<!doctype html>\n<html lang="en"><head>${head}</head><body>${main.outerHTML}</body></html>\n`;
};

/** The row of buttons under a picture; `view()` gives what is to be written. */
export const exportBar = view => {
  const run = kind => async () => {
    const given = view(),
      name = `lmlab-${given.name}`;
    try {
      if (kind === "json")
        return save(
          `${name}.json`,
          JSON.stringify({ view: given.name, link: given.link, state: given.state, data: given.data }, null, 2),
          "application/json",
        );
      if (kind === "html") return save(`${name}.html`, await toPage(given), "text/html");
      const svg = together(given.stage);
      if (!svg) throw new Error("there is no picture to save yet");
      if (kind === "svg") return save(`${name}.svg`, toText(svg), "image/svg+xml");
      return save(`${name}.png`, await toPng(svg), "image/png");
    } catch (error) {
      given.fail(error);
    }
  };
  const kinds = {
    svg: "The pictures as vectors",
    png: "The pictures as pixels",
    json: "The numbers",
    ...(isSaved() ? {} : { html: "The whole view in one file" }),
  };
  const copy = h(
    "button",
    {
      type: "button",
      "data-export": "link",
      title: "The address of this view",
      onclick: async event => {
        const button = event.currentTarget;
        await navigator.clipboard?.writeText(location.href).catch(() => {});
        button.textContent = "Link copied";
        setTimeout(() => {
          button.textContent = "Link";
        }, 1500);
      },
    },
    "Link",
  );
  return h(
    "div",
    { class: "exports", role: "group", "aria-label": "Save this view" },
    "Save as",
    Object.entries(kinds).map(([kind, title]) =>
      h("button", { type: "button", title, "data-export": kind, onclick: run(kind) }, kind.toUpperCase()),
    ),
    !isSaved() && copy,
  );
};
