// A small double of the browser: as much of the DOM as the studio's modules use without a page.

class Element {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, children: [], listeners: {}, hidden: false, checked: false, value: "" });
    this.style = { setProperty: (name, value) => (this.attributes[`style:${name}`] = value) };
  }

  setAttribute(name, value) {
    this.attributes[name] = value;
  }

  append(...children) {
    this.children.push(...children);
  }

  replaceChildren(...children) {
    this.children = children;
  }

  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }

  contains() {
    return false;
  }

  querySelectorAll(tag) {
    return this.find(tag);
  }

  getContext() {
    return { measureText: text => ({ width: 8 * text.length }) };
  }

  get textContent() {
    return this.children.map(child => child.textContent).join("");
  }

  set textContent(text) {
    this.children = [new Text(text)];
  }

  /** All elements below this one with a tag. */
  find(tag) {
    const below = this.children.filter(child => child instanceof Element);
    return below.flatMap(child => [...(child.tag === tag ? [child] : []), ...child.find(tag)]);
  }
}

class Text {
  constructor(text) {
    this.textContent = text;
  }
}

const kinds = new Map();
globalThis.HTMLElement = Element;
globalThis.Node = class {
  static [Symbol.hasInstance](value) {
    return value instanceof Element || value instanceof Text;
  }
};
globalThis.customElements = { define: (name, kind) => kinds.set(name, kind) };
globalThis.matchMedia = () => ({ matches: false, addEventListener: () => {} });
globalThis.document = {
  activeElement: undefined,
  createElement: tag => new (kinds.get(tag) ?? Element)(tag),
  createElementNS: (space, tag) => new Element(tag),
  createTextNode: text => new Text(text),
};
