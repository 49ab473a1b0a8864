// A lecture as one HTML file: every slide is opened once, and the answers of the server are recorded with the page.

import { get, post } from "./api.js";
import { save } from "./exports.js";
import { readLecture } from "./lecture.js";
import { loadView, withDefaultRuns } from "./open-view.js";
import { Page } from "./page.js";
import { record } from "./recording.js";
import { parse, read } from "./state.js";

/** Characters of a file: up to the first, further states of views are added; above the second it is refused. */
const ENOUGH = 8e6,
  MOST = 40e6;

/** Open the view of a slide unseen, as the lecture will; returns what is wrong with it. */
const visit = async (link, runs, recording) => {
  const { name, query } = parse(link),
    view = await loadView(name),
    state = withDefaultRuns(view, read(query, view.defaults), runs),
    page = new Page(view, state, runs);
  try {
    page.reset(state, {}, new Set(query.keys()));
    await page.refresh();
    if (!page.wrong.hidden) return page.wrong.textContent;
    if (name === "next" && page.data)
      await post("next", { runs: page.state.run, text: page.state.text, top: 50, distribution: true });
    for (const changes of page.data ? (view.variants?.(page.state, page.data) ?? []) : []) {
      if (recording.size() > ENOUGH) break;
      await view.ask({ ...page.state, ...changes }, new AbortController().signal, page).catch(() => {});
    }
  } finally {
    page.close();
  }
  return "";
};

/** Make the file of the lecture; `progress` gets the number of each slide. */
export const makeLecture = async progress => {
  const recording = record(),
    problems = [];
  try {
    const { runs } = await get("runs"),
      { lecture } = await readLecture(runs);
    for (const [index, slide] of lecture.views.entries()) {
      progress(index + 1, lecture.views.length);
      const wrong = await visit(slide.link, runs, recording);
      if (wrong) problems.push(`slide ${index + 1}: ${wrong}`);
    }
    const answers = JSON.stringify(recording.stop()).replaceAll("<", "\\u003c");
    const { before, after } = await get("lecture/page");
    const html = before + answers + after;
    if (html.length > MOST)
      throw new Error(
        `The file would have ${Math.round(html.length / 1e6)} MB, more than ${MOST / 1e6}: leave out slides, or ` +
          "make their texts shorter.",
      );
    return { html, title: lecture.title, problems };
  } finally {
    recording.stop();
  }
};

/** Make the file and hand it to the user; returns its size in bytes and what is wrong with single slides. */
export const saveLecture = async progress => {
  const { html, title, problems } = await makeLecture(progress);
  const file = new Blob([html], { type: "text/html" });
  save(`${title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "lecture"}.html`, file, "text/html");
  return { size: file.size, problems };
};
