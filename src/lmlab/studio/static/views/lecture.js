// Lecture: the views that are shown one after the other.

import { h } from "../dom.js";
import { address, begin, readLecture } from "../lecture.js";
import { isSaved } from "../recording.js";
import { saveLecture } from "../save-lecture.js";
import { table } from "../parts.js";

const toml = ({ title, views }) =>
  [
    `title = ${JSON.stringify(title)}`,
    ...views.map(
      view =>
        `\n[[views]]\n` + ["title", "link", "note"].map(key => `${key} = ${JSON.stringify(view[key])}`).join("\n"),
    ),
  ].join("\n");

/** A button that saves the lecture as one file, and says how far it is and how large the file has become. */
const saveButton = page => {
  const say = (...words) => page.say(...words);
  const button = h(
    "button",
    {
      type: "button",
      "data-do": "save",
      title: "One HTML file that students open in a browser, without lmlab",
      onclick: async () => {
        button.disabled = true;
        try {
          const { size, problems } = await saveLecture((index, all) => say(`Slide ${index} of ${all} …`));
          say(`Saved: ${(size / 1e6).toFixed(2)} MB. It opens in any browser, without lmlab and without a network.`);
          if (problems.length) page.fail({ message: problems.join(" · ") });
        } catch (error) {
          page.fail(error);
        } finally {
          button.disabled = false;
        }
      },
    },
    "Save as one HTML file",
  );
  return button;
};

export default {
  name: "lecture",
  title: "Lecture",
  lead:
    "Views in order, each filling the screen: the arrow keys (or PageUp and PageDown) go forward and back, N shows " +
    "your note, F the fields of the view, B a black screen, Esc ends. A lecture is a TOML file of links, " +
    "lecture.toml in the folder of the runs. The address of a view contains its state, so copy it from there.",
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
        h(
          "p",
          { class: "choices" },
          h("a", { class: "main", href: address(0), "data-do": "begin", onclick: begin }, "Begin"),
          !isSaved() && saveButton(page),
        ),
        h(
          "ol",
          {},
          lecture.views.map((view, index) =>
            h("li", {}, h("a", { href: address(index) }, view.title), view.note && [" – ", view.note]),
          ),
        ),
        !isSaved() && h("pre", {}, toml(lecture)),
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
