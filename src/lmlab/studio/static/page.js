// A page shows one view in one state. It requests data when the state changes, draws them, and updates the address.
//
// A view is {name, title, lead, defaults, controls(page), ask?(state, signal), asks?(state), draw(page, data, state),
// start?(page), change?(before, after), example?(examples), prompt?(state), saved?, variants?(state, data)}:
// `ask` returns the data, `asks` the part of the state that they depend on (all of it by default), `draw` returns
// {pictures, tables}, `change` what else must change when the state does, and `example` the fields that begin with
// held-out text of the run. In a lecture, where the form is hidden, `prompt` stands above the result. `saved` names the
// fields that work in a saved lecture, without a model; `variants` are further states whose data are saved with it.

import { h } from "./dom.js";
import { get } from "./api.js";
import { exportBar } from "./exports.js";
import { fitZoom } from "./fit.js";
import { isSaved } from "./recording.js";
import { write } from "./state.js";

const NO_EXAMPLE = {
    prompt: "",
    sentences: [],
    words: [],
    pairs: [],
    word: "",
    uses: [],
    groups: [],
    templates: [],
    tagged: [],
  },
  known = new Map();
/** Sentences, words and pairs from the held-out text of a run; none where it may not be read. */
const examplesOf = run => {
  if (!known.has(run))
    known.set(
      run,
      get("examples", { run }).catch(() => NO_EXAMPLE),
    );
  return known.get(run);
};

export class Page {
  constructor(view, state, runs) {
    Object.assign(this, { view, state, runs, data: null, followers: [], tables: [], closers: [], asked: "" });
    this.pending = new Map(); // what was typed and is not yet in the state: how to read it, by name
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
    this.result = h("section", { class: "result" }, this.wrong, this.stage, this.said, this.numbers, this.bar);
    const all = [view.controls ? view.controls(this) : []].flat(Infinity).filter(Boolean),
      controls = isSaved() ? withoutModel(all, view.saved ?? []) : all;
    const prompt = h("p", { class: "prompt" });
    this.follow(state => {
      prompt.textContent = view.prompt?.(state) ?? "";
    });
    this.element = h(
      "article",
      { "data-view": view.name },
      h("h1", {}, view.title),
      h("p", { class: "lead" }, view.lead),
      controls.length > 0 && h("section", { class: "controls" }, controls),
      prompt,
      this.result,
    );
    reachMarks(this);
    this.bar.hidden = this.numbers.hidden = true;
    this.stage.append(h("p", { class: "empty" }, "One moment …"));
    let size = "";
    const watch = new ResizeObserver(() => {
      const { clientWidth, clientHeight } = this.result,
        now = [clientWidth, this.inLecture ? clientHeight : 0].map(each => Math.round(each / 8)).join(" ");
      const first = !size;
      if (now === size) return;
      size = now;
      if (!first) this.redraw();
    });
    watch.observe(this.result);
    this.closers.push(() => watch.disconnect());
    view.start?.(this);
  }

  get inLecture() {
    return document.documentElement.classList.contains("lecture");
  }

  /** The width that pictures have before they are enlarged. */
  get width() {
    return Math.max(240, Math.floor(this.stage.clientWidth || 800));
  }

  /** Draw again what there is, in a lecture as large as the screen allows. */
  redraw() {
    this.draw();
    fitZoom(this);
  }

  /** Call a function with the state, now and whenever it changes. */
  follow(follower) {
    this.followers.push(follower);
  }

  /** What was typed and is not yet in the state. */
  #typed() {
    const found = Object.fromEntries([...this.pending].map(([name, read]) => [name, read()]));
    this.pending.clear();
    return found;
  }

  /** Take what was typed into the state, without drawing. */
  flush() {
    const before = this.state;
    this.state = { ...before, ...this.#typed() };
    this.state = { ...this.state, ...this.view.change?.(before, this.state) };
  }

  /** Show the state of a link instead of the present one. */
  reset(state, extra, given) {
    this.pending.clear();
    Object.assign(this, { state, extra, given, example: undefined, exampleOf: undefined });
  }

  /** Write the state into the address. */
  address({ push = false } = {}) {
    const address = write(this.view.name, this.state, this.view.defaults, this.extra);
    if (address !== location.hash) history[push ? "pushState" : "replaceState"](null, "", address);
  }

  /** Change the state and the address, and draw what depends on it again. What was typed meanwhile is taken, too. */
  set(changes, { push = false } = {}) {
    const before = this.state;
    this.state = { ...before, ...this.#typed(), ...changes };
    this.state = { ...this.state, ...this.view.change?.(before, this.state) };
    this.address({ push });
    return this.refresh();
  }

  /** Whether a value is still the one that the page began with, and not the user's own. */
  isExample(name) {
    return JSON.stringify(this.state[name]) === JSON.stringify((this.example ?? this.view.defaults)[name]);
  }

  /** Fill the fields that nobody has filled from the held-out text of the chosen run. */
  async takeExample() {
    const run = [this.state.run].flat()[0];
    if (!this.view.example || !run || run === this.exampleOf) return;
    this.exampleOf = run;
    const names = Object.keys(this.view.example(NO_EXAMPLE));
    if (names.some(name => this.given?.has(name) || !this.isExample(name))) return;
    const found = await examplesOf(run);
    if (!found.sentences.length || this.exampleOf !== run || !names.every(name => this.isExample(name))) return;
    if (this.pending.size) return;
    this.example = this.view.example(found);
    this.state = { ...this.state, ...this.example };
  }

  /** Request data if needed, and draw; `data-drawn` is the address of what is shown. */
  async refresh() {
    if ((await this.#refresh()) === "given up") return;
    fitZoom(this);
    this.element.dataset.drawn = location.hash;
  }

  async #refresh() {
    await this.takeExample();
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
      this.answered = { state, asked: asks };
      this.draw();
      if (data?.refused?.length)
        this.fail({ message: data.refused.map(each => `${each.run}: ${each.why}`).join(" · ") });
    } catch (error) {
      if (asking.signal.aborted) return "given up";
      if (isSaved() && this.answered) return this.#goBack(error);
      this.asked = "";
      this.data = null; // results of an earlier state must not stand under the message
      this.stage.replaceChildren();
      this.bar.hidden = this.numbers.hidden = true;
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

  /** In a saved lecture, return to the state before a request that it has no answer to. */
  #goBack(error) {
    Object.assign(this, this.answered);
    for (const follower of this.followers) follower(this.state);
    this.draw();
    this.fail(error);
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
    const reachable = () => [...this.stage.querySelectorAll("a, button, input, textarea, .mark")];
    const focused = this.stage.contains(document.activeElement) ? reachable().indexOf(document.activeElement) : -1;
    const written = new Map([...this.stage.querySelectorAll("input[type=text]")].map(each => [each.name, each.value]));
    const { pictures, tables = [] } = this.view.draw(this, this.data, this.state);
    replaceChanged(this.stage, [pictures].flat(Infinity).filter(Boolean));
    for (const each of this.stage.querySelectorAll("input[type=text]")) each.value ||= written.get(each.name) ?? "";
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

/** The controls that a saved lecture can use without a model. */
const withoutModel = (controls, useful) =>
  controls.filter(each => [...each.querySelectorAll("[name]")].some(input => useful.includes(input.name)));

/** Put elements into a stage; those that are there already stay in place, so that a drag or typing in them goes on. */
const replaceChanged = (stage, elements) => {
  for (const old of [...stage.childNodes]) if (!elements.includes(old)) old.remove();
  elements.forEach((each, index) => {
    if (stage.childNodes[index] !== each) stage.insertBefore(each, stage.childNodes[index] ?? null);
  });
};

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
