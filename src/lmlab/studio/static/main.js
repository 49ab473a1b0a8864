// The shell: it opens the view that the address names, keeps the list of runs, and shows the lecture.

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
  ["next", "Next token"],
  ["surprisal", "Surprisal"],
  ["write", "Write"],
  ["fill", "Fill"],
  ["translate", "Translate"],
  ["speech", "Speech"],
  ["pictures", "Pictures"],
  ["predict", "Predict"],
  ["attention", "Attention"],
  ["cells", "Cells"],
  ["attribution", "Attribution"],
  ["senses", "Senses"],
  ["neighbours", "Neighbours"],
  ["probes", "Probes"],
  ["layer-mix", "Layer mix"],
  ["minimal-pairs", "Minimal pairs"],
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

/** The state of a view with its default runs, if the address names none. */
const withDefaultRuns = (view, state) => {
  const capable = runs.filter(view.fits ?? (() => false)).filter(run => run.weights || view.name === "runs");
  const fits = [
    ...capable.filter(view.prefers ?? (() => true)),
    ...capable.filter(run => !(view.prefers?.(run) ?? true)),
  ];
  if (Array.isArray(state.run) && !state.run.length && fits.length)
    state.run = fits.slice(0, view.first ?? 1).map(run => run.name);
  if (state.run === "" && fits.length) state.run = fits[0].name;
  return state;
};

const open = async () => {
  const { name, query } = parse(location.hash);
  const viewName = VIEWS.some(([each]) => each === name) ? name : "runs";
  for (const link of nav.querySelectorAll("a")) link.toggleAttribute("aria-current", link.dataset.name === viewName);
  const here = nav.querySelector("[aria-current]");
  here?.setAttribute("aria-current", "page");
  if (here) nav.scrollLeft = here.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2; // on narrow screens
  const turn = ++opening;
  const { default: view } = await import(`./views/${viewName}.js`);
  if (turn !== opening) return;
  const slide = Number(query.get("slide")) || undefined;
  showSlide(slide, runs);
  const state = withDefaultRuns(view, read(query, view.defaults));
  document.title = `${view.title} · lmlab studio`;
  if (page?.view === view) {
    // A focused field keeps its own text, so it must lose the focus to show the state of the link.
    if (page.element.contains(document.activeElement)) document.activeElement.blur();
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

const updateRuns = found => {
  runs = found;
  if (!page) return;
  page.runs = runs;
  page.state = withDefaultRuns(page.view, page.state);
  page.refresh();
};

addEventListener("hashchange", open);
onScheme(() => page?.draw());
const known = get("runs")
  .then(found => updateRuns(found.runs))
  .catch(error => {
    main.replaceChildren(h("p", { class: "wrong", role: "alert" }, error.message));
  });
await known;
hear("runs", found => {
  if (JSON.stringify(found.runs) !== JSON.stringify(runs)) updateRuns(found.runs);
});
await open();
watch();
