// The shell: it opens the view that the address names, keeps the list of runs, and shows the lecture.

import { h } from "./dom.js";
import { get, hear, watch } from "./api.js";
import { knowRuns, onScheme } from "./colours.js";
import { Page } from "./page.js";
import { parse, read } from "./state.js";
import { loadView, withDefaultRuns } from "./open-view.js";
import { isSaved, replay } from "./recording.js";
import { firstSlide, showSlide } from "./lecture.js";

/** Five groups of views, by name; a view's file is loaded when it is first opened. */
const GROUPS = [
  [
    "Runs",
    [
      ["runs", "All runs"],
      ["train", "Train"],
    ],
  ],
  [
    "Predict",
    [
      ["next", "Next token"],
      ["write", "Write"],
      ["fill", "Fill"],
      ["translate", "Translate"],
      ["predict", "Classify"],
      ["speech", "Speech"],
      ["pictures", "Pictures"],
    ],
  ],
  [
    "Look inside",
    [
      ["how", "How it works"],
      ["attention", "Attention"],
      ["cells", "Cells"],
      ["attribution", "Attribution"],
      ["neighbours", "Neighbours"],
      ["senses", "Senses"],
      ["layer-mix", "Layer mix"],
    ],
  ],
  [
    "Test",
    [
      ["surprisal", "Surprisal"],
      ["minimal-pairs", "Minimal pairs"],
      ["probes", "Probes"],
      ["bias", "Bias"],
      ["errors", "Errors"],
    ],
  ],
  ["Lecture", [["lecture", "Lecture"]]],
];
const recorded = document.getElementById("recorded");
if (recorded) replay(JSON.parse(recorded.textContent)); // this is a saved lecture
const main = document.getElementById("main"),
  nav = document.getElementById("nav");
let page = null,
  runs = [],
  opening = 0;

/** What is carried from view to view: the text and the runs that were chosen last, and the last view of each group. */
const carried = { text: undefined, run: undefined },
  lastOf = new Map();

/** The groups, and under them the views of the group that is open. */
const showMenu = viewName => {
  const [open, views] = GROUPS.find(([, views]) => views.some(([name]) => name === viewName));
  lastOf.set(open, viewName);
  const focused = nav.contains(document.activeElement) ? document.activeElement.textContent : undefined;
  const link = (name, title, current) => h("li", {}, h("a", { href: `#/${name}`, "aria-current": current }, title));
  nav.replaceChildren(
    h(
      "ul",
      { class: "groups" },
      GROUPS.map(([title, each]) => link(lastOf.get(title) ?? each[0][0], title, title === open && "true")),
    ),
    h(
      "ul",
      { class: "views", "aria-label": open },
      views.map(([name, title]) => link(name, title, name === viewName && "page")),
    ),
  );
  [...nav.querySelectorAll("a")].find(each => each.textContent === focused)?.focus();
  const here = nav.querySelector("[aria-current=page]"),
    row = here.closest("ul");
  row.scrollLeft = here.offsetLeft - (row.clientWidth - here.offsetWidth) / 2; // on narrow screens
};

/** Left and right go along a row of the menu. */
nav.addEventListener("keydown", event => {
  const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!way || event.ctrlKey || event.metaKey || event.altKey) return;
  const links = [...(event.target.closest("ul")?.querySelectorAll("a") ?? [])];
  links[links.indexOf(event.target) + way]?.focus();
  event.preventDefault();
  event.stopPropagation();
});

/** Whether a view reads a text that other views may read, too. */
const hasText = view => typeof view.defaults.text === "string" && !view.ownText;

/** The state of a view whose address names none: as it was left, with the text and runs of the view before. */
const carryOver = (view, state) => {
  const before = { ...state, ...view.left };
  const after = { ...before };
  if (carried.text !== undefined && hasText(view)) after.text = carried.text;
  const able = (carried.run ?? []).filter(name =>
    runs.some(run => run.name === name && run.weights && view.fits?.(run) && (view.prefers?.(run) ?? true)),
  );
  if (able.length && "run" in view.defaults && view.name !== "runs")
    after.run = Array.isArray(view.defaults.run) ? able : able[0];
  return { ...after, ...view.change?.(before, after) };
};

/** Remember how a view is left, and what the next one is to begin with. */
const leaveView = () => {
  if (!page) return;
  page.flush();
  const { view, state } = page;
  view.left = state;
  if (hasText(view) && !page.isExample("text")) carried.text = state.text;
  if (view.name !== "runs" && "run" in view.defaults) carried.run = [state.run].flat();
};

const open = async () => {
  const { name, query } = parse(location.hash);
  const known = GROUPS.some(([, views]) => views.some(([each]) => each === name)),
    viewName = known ? name : isSaved() ? "lecture" : "runs";
  showMenu(viewName);
  if (page?.view.name !== viewName) leaveView();
  const turn = ++opening;
  const view = await loadView(viewName);
  if (turn !== opening) return;
  const slide = Number(query.get("slide")) || undefined;
  await showSlide(slide, runs);
  if (turn !== opening) return;
  const bare = ![...query.keys()].length;
  const given = read(query, view.defaults);
  const state = withDefaultRuns(view, bare && page?.view !== view ? carryOver(view, given) : given, runs);
  document.title = `${view.title} · lmlab studio`;
  if (page?.view === view) {
    // A focused field keeps its own text, so it must lose the focus to show the state of the link.
    if (page.element.contains(document.activeElement)) document.activeElement.blur();
    page.reset(state, { slide }, new Set(query.keys()));
    return page.refresh();
  }
  page?.close();
  page = new Page(view, state, runs);
  page.reset(state, { slide }, new Set(query.keys()));
  main.replaceChildren(page.element);
  if (bare) page.address();
  await page.refresh();
};

const updateRuns = found => {
  runs = found;
  knowRuns(runs);
  if (!page) return;
  page.runs = runs;
  page.state = withDefaultRuns(page.view, page.state, runs);
  page.refresh();
};

onScheme(() => page?.draw());
const known = get("runs")
  .then(found => updateRuns(found.runs))
  .catch(error => {
    main.replaceChildren(h("p", { class: "wrong", role: "alert" }, error.message));
  });
await known;
addEventListener("hashchange", open); // not before the runs are known
hear("runs", found => {
  if (JSON.stringify(found.runs) !== JSON.stringify(runs)) updateRuns(found.runs);
});
if (isSaved() && !location.hash) history.replaceState(null, "", await firstSlide(runs));
await open();
watch();
