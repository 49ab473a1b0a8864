// A lecture at the bottom of the page: the address has the number of its view; arrow keys go forward and back.

import { h } from "./dom.js";
import { get } from "./api.js";
import { parse } from "./state.js";

const foot = document.getElementById("lecture");
let lecture = null;

/** The lecture of the folder, or a default one for its runs. */
export const readLecture = async runs => {
  const found = await get("lecture");
  lecture = found.lecture ?? makeDefault(runs);
  return { ...found, lecture, own: found.lecture !== null };
};

const makeDefault = runs => {
  const withAbility = ability => runs.filter(run => run.weights && run.does.includes(ability)).map(run => run.name);
  const link = (view, names, more = {}) =>
    `#/${view}?${new URLSearchParams([...names.map(name => ["run", name]), ...Object.entries(more)])}`;
  const next = withAbility("next token"),
    masked = withAbility("masks"),
    translators = withAbility("target text"),
    attending = runs.filter(run => run.weights && run.heads !== null).map(run => run.name);
  const views = [
    { title: "The runs and their learning curves", link: "#/runs", note: "Which one learns most from the same text?" },
  ];
  if (next.length)
    views.push(
      {
        title: "What comes next?",
        link: link("next", next.slice(0, 3), { text: "Return a new" }),
        note: "Continue the text: which run makes sense?",
      },
      { title: "What surprises them", link: link("surprisal", next.slice(0, 2)), note: "Where do they differ?" },
      {
        title: "The most probable text",
        link: link("write", next.slice(0, 1), { mode: "beams" }),
        note: "Step through the search.",
      },
    );
  if (masked.length) views.push({ title: "Filling masks", link: link("fill", masked.slice(0, 1)), note: "" });
  if (translators.length)
    views.push({ title: "Translating", link: link("translate", translators.slice(0, 1)), note: "" });
  if (attending.length) views.push({ title: "Attention", link: link("attention", attending.slice(0, 1)), note: "" });
  return { title: "A first look", views };
};

/** The address of the n-th view. */
export const address = index => {
  const { link } = lecture.views[index];
  return `${link}${link.includes("?") ? "&" : "?"}slide=${index + 1}`;
};

const go = by => {
  const now = Number(parse(location.hash).query.get("slide")) - 1,
    next = now + by;
  if (lecture?.views[next]) location.hash = address(next);
};

export const leave = () => {
  location.hash = location.hash.replace(/[?&]slide=\d+/, "");
};

/** Show the lecture at the bottom of the page, if the address names one of its views. */
export const showSlide = async (index, runs) => {
  const on = Number.isInteger(index) && index > 0;
  document.documentElement.classList.toggle("large", on);
  foot.hidden = !on;
  if (!on) return;
  if (!lecture) await readLecture(runs);
  const view = lecture.views[index - 1];
  if (!view) return leave();
  foot.replaceChildren(
    h(
      "button",
      { type: "button", "aria-label": "Back", title: "Back (←)", disabled: index === 1, onclick: () => go(-1) },
      "◀",
    ),
    h(
      "p",
      { "aria-live": "polite" },
      h("b", {}, `${index} / ${lecture.views.length} · ${view.title}`),
      view.note && h("small", {}, view.note),
    ),
    h(
      "button",
      {
        type: "button",
        "aria-label": "On",
        title: "On (→)",
        disabled: index === lecture.views.length,
        onclick: () => go(1),
      },
      "▶",
    ),
    h("button", { type: "button", title: "End the lecture (Esc)", onclick: leave }, "End"),
  );
};

addEventListener("keydown", event => {
  if (foot.hidden || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.closest?.(".mark");
  if (event.key === "PageDown" || (event.key === "ArrowRight" && !typing)) go(1);
  else if (event.key === "PageUp" || (event.key === "ArrowLeft" && !typing)) go(-1);
  else if (event.key === "Escape") leave();
  else return;
  event.preventDefault();
});
