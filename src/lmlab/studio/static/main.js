// The shell: which view the address names, the list of runs, and the lecture at the foot of the page.

import { h } from "./dom.js";
import { get, hear, watch } from "./api.js";
import { onScheme } from "./colours.js";
import { Page } from "./page.js";
import { parse, read } from "./state.js";
import { showSlide } from "./lecture.js";

/** Views by name; a view's file is loaded when it is first opened. */
const VIEWS = [
  ["runs", "Runs"],
  ["train", "Train"],
  ["next", "Next word"],
  ["surprise", "Surprise"],
  ["write", "Write"],
  ["blanks", "Blanks"],
  ["translate", "Translate"],
  ["predict", "Predict"],
  ["attention", "Attention"],
  ["cells", "Cells"],
  ["why", "Why"],
  ["senses", "Senses"],
  ["neighbours", "Neighbours"],
  ["probes", "Probes"],
  ["mix", "Layer mix"],
  ["pairs", "Minimal pairs"],
  ["bias", "Bias"],
  ["errors", "Errors"],
  ["lecture", "Lecture"],
];
const main = document.getElementById("main"),
  nav = document.getElementById("nav");
let page = null,
  runs = [],
  opening = 0;

nav.append(
  h(
    "ul",
    {},
    VIEWS.map(([name, title]) => h("li", {}, h("a", { href: `#/${name}`, "data-name": name }, title))),
  ),
);

/** Runs that a view begins with, where the address names none. */
const begin = (view, state) => {
  const able = runs.filter(view.fits ?? (() => false)).filter(run => run.weights || view.name === "runs");
  const fits = [...able.filter(view.prefers ?? (() => true)), ...able.filter(run => !(view.prefers?.(run) ?? true))];
  if (Array.isArray(state.run) && !state.run.length && fits.length)
    state.run = fits.slice(0, view.first ?? 1).map(run => run.name);
  if (state.run === "" && fits.length) state.run = fits[0].name;
  return state;
};

const open = async () => {
  const { name, query } = parse(location.hash);
  const wanted = VIEWS.some(([each]) => each === name) ? name : "runs";
  for (const link of nav.querySelectorAll("a")) link.toggleAttribute("aria-current", link.dataset.name === wanted);
  const here = nav.querySelector("[aria-current]");
  here?.setAttribute("aria-current", "page");
  if (here) nav.scrollLeft = here.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2; // where the list is one long line
  const turn = ++opening;
  const { default: view } = await import(`./views/${wanted}.js`);
  if (turn !== opening) return;
  const slide = Number(query.get("slide")) || undefined;
  showSlide(slide, runs);
  const state = begin(view, read(query, view.defaults));
  document.title = `${view.title} · lmlab studio`;
  if (page?.view === view) {
    if (page.element.contains(document.activeElement)) document.activeElement.blur(); // so that its field shows what the link says
    page.state = state;
    page.extra = { slide };
    return page.refresh();
  }
  page?.close();
  page = new Page(view, state, runs);
  page.extra = { slide };
  main.replaceChildren(page.element);
  await page.refresh();
};

const know = found => {
  runs = found;
  if (!page) return;
  page.runs = runs;
  page.state = begin(page.view, page.state);
  page.refresh();
};

addEventListener("hashchange", open);
onScheme(() => page?.draw());
const known = get("runs")
  .then(found => know(found.runs))
  .catch(error => {
    main.replaceChildren(h("p", { class: "wrong", role: "alert" }, error.message));
  });
await known;
hear("runs", found => {
  if (JSON.stringify(found.runs) !== JSON.stringify(runs)) know(found.runs);
});
await open();
watch();
