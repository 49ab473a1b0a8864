// Elements by plain calls. Text is always text: nothing here, or anywhere in the studio, parses a string as HTML.

const SVG = "http://www.w3.org/2000/svg";

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name in element && ["value", "checked", "disabled", "hidden", "open", "selected"].includes(name))
      element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
};

/** An HTML element. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** White space that can be seen. */
export const visible = piece =>
  piece
    .replaceAll(" ", "·")
    .replaceAll("\n", "⏎")
    .replaceAll("\t", "⇥")
    .replaceAll("\r", "␍")
    .replace(/[\p{Cc}\p{Cf}\p{Zs}\p{Zl}\p{Zp}]/gu, each => `\\u{${each.codePointAt(0).toString(16)}}`) || "∅";

const pen = document.createElement("canvas").getContext("2d");
/** How wide a text is in the monospaced font of the pictures. */
export const wide = (text, font = "14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace") => {
  pen.font = font;
  return pen.measureText(text).width;
};

/** Cut a text to a number of letters. */
export const cut = (text, most) => {
  const letters = [...text];
  return letters.length <= most ? text : letters.slice(0, most - 1).join("") + "…";
};

/** Numbers as people read them. */
export const number = (value, digits = 3) =>
  value === null || value === undefined || Number.isNaN(value) ? "–" : Number(value).toFixed(digits).replace("-", "−");
export const percent = value =>
  value === null || value === undefined
    ? "–"
    : value >= 0.0995
      ? (100 * value).toFixed(1) + "%"
      : value >= 0.00095
        ? (100 * value).toFixed(2) + "%"
        : (100 * value).toPrecision(2) + "%";
export const short = value => {
  if (value === null || value === undefined) return "–";
  for (const [many, unit] of [
    [1e15, "P"],
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ])
    if (Math.abs(value) >= many) return Number((value / many).toPrecision(3)) + " " + unit;
  return String(Number(Number(value).toPrecision(3)));
};
