// A page shows one view in one state. It requests data when the state changes, draws them, and updates the address.
//
// A view is {name, title, lead, defaults, controls(page), ask?(state, signal), asks?(state),
// draw(page, data, state), start?(page)}: `ask` returns the data, `asks` the part of the state that they depend on
// (all of it by default), `draw` returns {pictures, tables}.

import { h } from "./dom.js";
import { exportBar } from "./exports.js";
import { write } from "./state.js";

export class Page {
  constructor(view, state, runs) {
    Object.assign(this, { view, state, runs, data: null, followers: [], tables: [], closers: [], asked: "" });
    this.stage = h("div", { class: "stage" });
    this.said = h("p", { class: "said", "aria-live": "polite" });
    this.wrong = h("p", { class: "wrong", role: "alert", hidden: true });
    this.numbers = h("details", { class: "numbers" }, h("summary", {}, "The numbers as a table"), h("div"));
    this.bar = exportBar(() => ({
      name: view.name,
      title: view.title,
      lead: view.lead,
      link: location.href,
      state: this.state,
      data: this.data,
      stage: this.stage,
      tables: this.tables,
      fail: error => this.fail(error),
    }));
    const controls = view.controls ? view.controls(this) : [];
    this.element = h(
      "article",
      { "data-view": view.name },
      h("h1", {}, view.title),
      h("p", { class: "lead" }, view.lead),
      controls.length > 0 && h("section", { class: "controls" }, controls),
      h("section", { class: "result" }, this.wrong, this.stage, this.said, this.numbers, this.bar),
    );
    reachMarks(this);
    this.bar.hidden = this.numbers.hidden = true;
    this.stage.append(h("p", { class: "empty" }, "One moment …"));
    let width = 0;
    const watch = new ResizeObserver(entries => {
      const now = Math.round(entries[0].contentRect.width);
      if (Math.abs(now - width) > 8) {
        const first = !width;
        width = now;
        if (!first) this.draw();
      }
    });
    watch.observe(this.stage);
    this.closers.push(() => watch.disconnect());
    view.start?.(this);
  }

  /** How much larger pictures are drawn in a lecture, and the width that they have before that. */
  get scale() {
    return document.documentElement.classList.contains("large") ? 1.3 : 1;
  }
  get width() {
    return Math.max(240, Math.floor((this.stage.clientWidth || 800) / this.scale));
  }

  /** Call a function with the state, now and whenever it changes. */
  follow(follower) {
    this.followers.push(follower);
  }

  /** Change the state and the address, and draw what depends on it again. */
  set(changes, { push = false } = {}) {
    this.state = { ...this.state, ...changes };
    const address = write(this.view.name, this.state, this.view.defaults, this.extra);
    if (address !== location.hash) history[push ? "pushState" : "replaceState"](null, "", address);
    return this.refresh();
  }

  /** Request data if needed, and draw; `data-drawn` is the address of what is shown. */
  async refresh() {
    if ((await this.#refresh()) !== "given up") this.element.dataset.drawn = location.hash;
  }

  async #refresh() {
    for (const follower of this.followers) follower(this.state);
    const { view, state } = this;
    if (!view.ask) return this.draw();
    const asks = JSON.stringify(view.asks ? view.asks(state) : state);
    if (asks === this.asked) return this.draw();
    this.asked = asks;
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    this.element.classList.add("busy");
    this.element.setAttribute("aria-busy", "true");
    try {
      const data = await view.ask(state, asking.signal, this);
      if (asking.signal.aborted) return "given up";
      this.data = data;
      this.wrong.hidden = true;
      this.draw();
      if (data?.refused?.length)
        this.fail({ message: data.refused.map(each => `${each.run}: ${each.why}`).join(" · ") });
    } catch (error) {
      if (asking.signal.aborted) return "given up";
      this.asked = "";
      this.fail(error);
    } finally {
      if (this.asking === asking) {
        cancelAnimationFrame(this.coming);
        this.coming = undefined;
        this.element.classList.remove("busy", "coming");
        this.element.removeAttribute("aria-busy");
      }
    }
  }

  /** Draw what there is of an answer that is still coming, once before the next picture of the screen. */
  show(data, signal) {
    this.data = data;
    if (this.coming) return;
    this.coming = requestAnimationFrame(() => {
      this.coming = undefined;
      if (signal.aborted || this.asking?.signal !== signal) return;
      this.element.classList.add("coming");
      this.draw();
    });
  }

  fail(error) {
    this.wrong.textContent = error.message;
    this.wrong.hidden = false;
  }

  draw() {
    if (this.view.ask && this.data === null) {
      this.stage.replaceChildren(h("p", { class: "empty" }, this.view.empty ?? "Choose a run to begin."));
      this.bar.hidden = this.numbers.hidden = true;
      return;
    }
    const reachable = () => [...this.stage.querySelectorAll("a, button, input, .mark")];
    const focused = this.stage.contains(document.activeElement) ? reachable().indexOf(document.activeElement) : -1;
    const { pictures, tables = [] } = this.view.draw(this, this.data, this.state);
    this.stage.replaceChildren(...[pictures].flat().filter(Boolean));
    if (this.scale !== 1)
      for (const each of this.stage.querySelectorAll("svg[viewBox]"))
        for (const side of ["width", "height"])
          each.setAttribute(side, String(this.scale * Number(each.getAttribute(side))));
    this.tables = tables;
    this.numbers.lastChild.replaceChildren(...tables);
    this.numbers.hidden = !tables.length;
    this.bar.hidden = false;
    const marks = this.stage.querySelectorAll(".mark");
    marks[0]?.setAttribute("tabindex", "0");
    if (focused >= 0) {
      const now = reachable();
      now[Math.min(focused, now.length - 1)]?.focus();
    }
  }

  say(...words) {
    this.said.replaceChildren(...words.map(each => (each instanceof Node ? each : document.createTextNode(each))));
  }

  close() {
    this.asking?.abort();
    for (const close of this.closers) close();
  }
}

/** Marks say their numbers when pointed at or focused; arrows go from one to the next, Enter picks. */
const reachMarks = page => {
  const { stage } = page;
  const of = target => target.closest?.(".mark");
  const tell = event => {
    const found = of(event.target);
    if (found && !page.locked) page.say(found.getAttribute("aria-label"));
    if (found) page.view.point?.(page, found);
  };
  stage.addEventListener("pointerover", tell);
  stage.addEventListener("focusin", event => {
    tell(event);
    const found = of(event.target);
    if (!found) return;
    for (const each of stage.querySelectorAll('.mark[tabindex="0"]')) each.setAttribute("tabindex", "-1");
    found.setAttribute("tabindex", "0");
  });
  stage.addEventListener("pointerleave", () => page.view.leave?.(page));
  const pick = found => {
    if (found?.dataset.pick !== undefined) page.view.pick?.(page, found.dataset.pick, found);
  };
  stage.addEventListener("click", event => pick(of(event.target)));
  stage.addEventListener("keydown", event => {
    const found = of(event.target);
    if (!found || event.ctrlKey || event.metaKey || event.altKey) return;
    const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const marks = [...found.ownerSVGElement.querySelectorAll(".mark")].filter(
      each => getComputedStyle(each).visibility !== "hidden",
    );
    if (way) marks[marks.indexOf(found) + way]?.focus();
    else if (event.key === "Home") marks[0].focus();
    else if (event.key === "End") marks.at(-1).focus();
    else if (event.key === "Enter" || event.key === " ") pick(found);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
};
