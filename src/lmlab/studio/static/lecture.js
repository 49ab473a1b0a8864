// A lecture fills the screen: the title of a slide above its view, its number below. The address has the number.

import { h } from "./dom.js";
import { get } from "./api.js";
import { largestGroup } from "./open-view.js";
import { isSaved } from "./recording.js";
import { parse } from "./state.js";
import { hasAttention, hasSteps } from "./systems.js";

const foot = document.getElementById("lecture"),
  head = document.getElementById("slide-title"),
  root = document.documentElement;
let lecture = null,
  withNotes = false;

/** The lecture of the folder, or a default one for its runs. */
export const readLecture = async runs => {
  const found = await get("lecture");
  lecture = found.lecture ?? makeDefault(runs);
  return { ...found, lecture, own: found.lecture !== null };
};

/** The runs of the text that most runs were trained on, one of each kind, oldest systems first. */
const comparable = runs => {
  const most = largestGroup(runs.filter(each => each.weights && !each.task));
  const once = [...new Map(most.toReversed().map(run => [run.kind, run])).values()];
  return once.sort((a, b) => (a.year ?? 0) - (b.year ?? 0));
};

/** Systems with cells that keep a state from token to token. */
const RECURRENT = new Set(["rnn", "lstm", "gru", "awd-lstm"]);

/** A first lecture about the runs of a folder: a slide for each thing that they can do. */
const makeDefault = all => {
  const runs = comparable(all);
  const withAbility = (ability, among = runs) =>
    among.filter(run => run.weights && run.does.includes(ability)).map(run => run.name);
  const link = (view, names, more = {}) =>
    `#/${view}?${new URLSearchParams([...names.map(name => ["run", name]), ...Object.entries(more)])}`;
  const next = withAbility("next token"),
    masked = withAbility("masks"),
    translators = withAbility(
      "target text",
      [...all].sort((a, b) => (a.kind === "bart") - (b.kind === "bart")),
    ),
    stepped = runs.filter(hasSteps),
    attending = runs.filter(hasAttention).sort((a, b) => hasSteps(b) - hasSteps(a) || b.heads - a.heads),
    recurrent = runs.filter(run => RECURRENT.has(run.kind)).map(run => run.name);
  const views = [
    {
      title: "The runs and their learning curves",
      link: link(
        "runs",
        runs.slice(0, 6).map(run => run.name),
      ),
      note: "Which one learns most from the same text?",
    },
  ];
  if (next.length)
    views.push(
      {
        title: "What comes next?",
        link: link("next", next.slice(0, 3)),
        note: "Continue the text: which run makes sense?",
      },
      { title: "What surprises them", link: link("surprisal", next.slice(0, 2)), note: "Where do they differ?" },
      {
        title: "The most probable text",
        link: link("write", next.slice(0, 1), { mode: "beams" }),
        note: "Step through the search.",
      },
    );
  if (masked.length)
    views.push({
      title: "Filling masks",
      link: link("fill", masked.slice(0, 1)),
      note: "Which words would you have written?",
    });
  if (translators.length)
    views.push({
      title: "Translating",
      link: link("translate", translators.slice(0, 1)),
      note: "Which words did it look at?",
    });
  if (attending.length)
    views.push({
      title: "Attention",
      link: link("attention", [attending[0].name]),
      note: "Enlarge a head, lock a token, and hide it from the model.",
    });
  if (recurrent.length)
    views.push({ title: "One cell", link: link("cells", recurrent.slice(-1)), note: "What does it react to?" });
  for (const { name, kind, heads } of new Set([stepped[0], stepped.at(-1)].filter(Boolean)))
    views.push({
      title: `How ${name} predicts`,
      link: link("how", [name], { step: kind === "ngram" ? "order2" : heads ? "0.weights" : "0.gates" }),
      note: "Step through it with the button, and click any number.",
    });
  return { title: "A first look", views };
};

/** The address of the n-th view. */
export const address = index => {
  const { link } = lecture.views[index];
  return `${link}${link.includes("?") ? "&" : "?"}slide=${index + 1}`;
};

export const firstSlide = async runs => {
  await readLecture(runs);
  return address(0);
};

const current = () => Number(parse(location.hash).query.get("slide")) - 1;
const goTo = index => {
  if (lecture?.views[index]) location.hash = address(index);
};

/** Fill the screen, where the browser allows it. */
export const begin = () => {
  root.requestFullscreen?.().catch(() => {});
};

export const leave = () => {
  if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
  root.classList.remove("form", "blank");
  location.hash = "#/lecture";
};

const toggle = name => () => {
  if (name === "notes") withNotes = !withNotes;
  else root.classList.toggle(name);
  showFoot(current());
};

const button = (label, title, act, more = {}) =>
  h("button", { type: "button", title, "aria-label": title, onclick: act, ...more }, label);

const showFoot = index => {
  const view = lecture.views[index],
    last = lecture.views.length - 1;
  head.textContent = view.title;
  const parts = [
    button("◀", "Back (←)", () => goTo(index - 1), { disabled: index === 0, "data-do": "back" }),
    h("b", { class: "number" }, `${index + 1} / ${last + 1}`),
    button("▶", "On (→)", () => goTo(index + 1), { disabled: index === last, "data-do": "on" }),
    h("p", { class: "notes", "aria-live": "polite" }, withNotes ? view.note : ""),
    view.note &&
      button("Note", "Show the note for the speaker (N)", toggle("notes"), { "aria-pressed": String(withNotes) }),
    !isSaved() &&
      button("Form", "Show the fields of the view (F)", toggle("form"), {
        "aria-pressed": String(root.classList.contains("form")),
      }),
    button("End", "End the lecture (Esc)", leave),
  ];
  foot.replaceChildren(...parts.filter(Boolean));
};

/** Show a slide of the lecture, if the address names one. */
export const showSlide = async (index, runs) => {
  const on = Number.isInteger(index) && index > 0;
  if (on && !lecture) await readLecture(runs);
  const known = on && lecture.views[index - 1];
  root.classList.toggle("lecture", Boolean(known));
  foot.hidden = head.hidden = !known;
  if (known) showFoot(index - 1);
  else if (on) leave();
};

const KEYS = {
  PageDown: () => goTo(current() + 1),
  PageUp: () => goTo(current() - 1),
  ArrowRight: () => goTo(current() + 1),
  ArrowLeft: () => goTo(current() - 1),
  Home: () => goTo(0),
  End: () => goTo(lecture.views.length - 1),
  Escape: leave,
  f: toggle("form"),
  n: toggle("notes"),
  b: () => root.classList.toggle("blank"),
};
/** Keys that mean a slide even in a field or on a mark of a picture. */
const ALWAYS = new Set(["PageDown", "PageUp", "Escape"]);

addEventListener("keydown", event => {
  const act = KEYS[event.key];
  if (!act || foot.hidden || event.ctrlKey || event.metaKey || event.altKey) return;
  const busy = event.target.closest?.("input, textarea, select, .mark, [contenteditable]");
  if (busy && !ALWAYS.has(event.key)) return;
  act();
  event.preventDefault();
});

document.addEventListener("fullscreenchange", () => {
  if (!document.fullscreenElement && !foot.hidden) leave(); // Escape ends both
});
