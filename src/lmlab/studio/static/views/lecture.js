// Lecture: the views that are shown one after the other.

import { h } from "../dom.js";
import { address, readLecture } from "../lecture.js";
import { table } from "../parts.js";

const toml = ({ title, views }) =>
  [
    `title = ${JSON.stringify(title)}`,
    ...views.map(
      view =>
        `\n[[views]]\n` + ["title", "link", "note"].map(key => `${key} = ${JSON.stringify(view[key])}`).join("\n"),
    ),
  ].join("\n");

export default {
  name: "lecture",
  title: "Lecture",
  lead:
    "Views in order, in large type: the arrow keys (or PageUp and PageDown) go forward and back, Esc ends. A " +
    "lecture is a TOML file of links, lecture.toml in the folder of the runs. The address of a view contains " +
    "its state, so copy it from there.",
  defaults: {},
  controls: () => [],
  ask: (state, signal, page) => readLecture(page.runs),
  asks: () => "once",
  draw(page, data) {
    const { lecture } = data;
    return {
      pictures: [
        h("h2", {}, lecture.title),
        !data.own &&
          h(
            "p",
            { class: "lead" },
            `There is no ${data.file} in this folder, so this one was made for its runs. ` +
              `Save the lines below as ${data.file} to change it.`,
          ),
        data.missing.length > 0 &&
          h("p", { class: "wrong" }, `Runs that it names are not here: ${data.missing.join(", ")}`),
        h("p", {}, h("a", { href: address(0), "data-do": "begin" }, "Begin")),
        h(
          "ol",
          {},
          lecture.views.map((view, index) =>
            h("li", {}, h("a", { href: address(index) }, view.title), view.note && [" – ", view.note]),
          ),
        ),
        h("pre", {}, toml(lecture)),
      ],
      tables: [
        table(
          "Views",
          ["title", "link", "note"],
          lecture.views.map(view => [view.title, view.link, view.note]),
        ),
      ],
    };
  },
};
