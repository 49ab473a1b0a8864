// The little of Markdown that model cards use, as elements: headings, lists, tables, code, bold.

import { h } from "./dom.js";

const inline = text =>
  text
    .split(/(`[^`]+`|\*\*[^*]+\*\*)/)
    .map(part =>
      part.startsWith("`") && part.length > 2
        ? h("code", {}, part.slice(1, -1))
        : part.startsWith("**") && part.length > 4
          ? h("b", {}, part.slice(2, -2))
          : part,
    );

/** A card as elements; what is not known is shown as it is written. */
export const markdown = text => {
  const lines = text.replace(/^---\n.*?\n---\n/s, "").split("\n"),
    found = [];
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    if (line.startsWith("```")) {
      const code = [];
      while (++i < lines.length && !lines[i].startsWith("```")) code.push(lines[i]);
      found.push(h("pre", {}, code.join("\n")));
    } else if (/^#{1,6} /.test(line))
      found.push(h(`h${Math.min(6, 2 + line.match(/^#+/)[0].length)}`, {}, inline(line.replace(/^#+ /, ""))));
    else if (/^\s*[-*] /.test(line)) {
      const items = [line];
      while (i + 1 < lines.length && /^\s*([-*] |\S)/.test(lines[i + 1]) && !/^(#|```|\|)/.test(lines[i + 1])) {
        const next = lines[++i];
        /^\s*[-*] /.test(next) ? items.push(next) : (items[items.length - 1] += " " + next.trim());
      }
      found.push(
        h(
          "ul",
          {},
          items.map(each => h("li", {}, inline(each.replace(/^\s*[-*] /, "")))),
        ),
      );
    } else if (line.startsWith("|")) {
      const rows = [line];
      while (i + 1 < lines.length && lines[i + 1].startsWith("|")) rows.push(lines[++i]);
      const cells = row =>
        row
          .replace(/^\||\|\s*$/g, "")
          .split("|")
          .map(each => each.trim());
      found.push(
        h(
          "table",
          {},
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              cells(rows[0]).map(each => h("th", {}, inline(each))),
            ),
          ),
          h(
            "tbody",
            {},
            rows
              .slice(1)
              .filter(row => !/^[|\s:-]+$/.test(row))
              .map(row =>
                h(
                  "tr",
                  {},
                  cells(row).map(each => h("td", {}, inline(each))),
                ),
              ),
          ),
        ),
      );
    } else if (line.trim()) {
      let words = line;
      while (i + 1 < lines.length && lines[i + 1].trim() && !/^(#|```|\||\s*[-*] )/.test(lines[i + 1]))
        words += " " + lines[++i];
      found.push(h("p", {}, inline(words)));
    }
  }
  return found;
};
