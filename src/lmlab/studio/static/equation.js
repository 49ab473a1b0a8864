// Equations as MathML, from a short notation: "a_j = frac{exp(s_j)}{∑ exp(s)}", "sqrt{d}", "h_{t−1}", "x ^ 2".

const MATHML = "http://www.w3.org/1998/Math/MathML";
const WORDS = /^(exp|ln|softmax|tanh|σ|GELU|ReLU|SiLU|LN|cos|sin|mean|count|discount|total|last|tokens)$/;

const m = (tag, attributes, ...children) => {
  const element = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map(each => (typeof each === "string" ? document.createTextNode(each) : each)));
  return element;
};

/** The pieces of the notation: braces, _ and ^, words, numbers and single signs. */
const split = text => text.match(/frac|sqrt|[{}_^]|[A-Za-zΑ-ωσγβεμθ~']+|\d+|\S/gu) ?? [];

const leaf = word => {
  if (/^\d/.test(word)) return m("mn", {}, word);
  if (/^[\p{L}~']/u.test(word)) {
    const shown = word === "h~" ? "h̃" : word;
    return m("mi", WORDS.test(word) || [...shown].length > 2 ? { mathvariant: "normal" } : {}, shown);
  }
  return m("mo", /^[()[\]|]$/.test(word) ? { stretchy: "false" } : {}, word);
};

/** An equation in the notation above; what is not understood is shown as it is written. */
export const equation = text => {
  const words = split(text);
  let next = 0;
  const group = () => {
    if (words[next] !== "{") return atom();
    next++;
    const found = row("}");
    next++;
    return found;
  };
  const atom = () => {
    const word = words[next++];
    if (word === "frac") return m("mfrac", {}, group(), group());
    if (word === "sqrt") return m("msqrt", {}, group());
    return leaf(word ?? "");
  };
  const row = end => {
    const found = [];
    while (next < words.length && words[next] !== end) {
      let one = group();
      while (words[next] === "_" || words[next] === "^")
        one = m(words[next++] === "_" ? "msub" : "msup", {}, one, group());
      found.push(one);
    }
    return m("mrow", {}, ...found);
  };
  return m("math", { display: "block", "aria-label": text }, row());
};
