"""Is there a cell for brackets or quotes? A character LSTM on Python's own source code, and the search for such cells.

    python benchmarks/quote_cell.py [FOLDER] [--budget 8min] [--size tiny]

The text is the standard library of this Python: modules in the order of their names, three megabytes to learn from.
The two definitions of a single line (`ASKED`) were picked by looking at the 100,000 characters after them, so these are
not judged on: the text to search and judge, half each, is the 100,000 characters of the modules after those. Aim: an
area under the ROC curve of 0.9 or more for quotes or brackets, on the half that had no part in choosing the cell.
About 10 minutes on 2 cores; a second call takes the run that it finds.
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path

from lmlab import load
from lmlab.analysis.cells.properties import PROPERTIES, Property, matches
from lmlab.analysis.cells.search import search_cells
from lmlab.cli.inspect.display import write
from lmlab.cli.progress import TrainingDisplay
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from study import clock

LEARNT, PICKED, HELD_OUT = 3_000_000, 100_000, 100_000
"""Characters to learn from, those after them by which definitions were picked, and those of other modules to judge."""
ASKED: dict[str, Property] = {
    "strings in single quotes": matches(r"(?<!\w)'[^'\n]*(?=')"),
    "round brackets in one line": matches(r"\((?:[^()\n]|\([^()\n]*\))*(?=\))"),
    **{name: PROPERTIES[name] for name in ("brackets", "quotes", "line", "if")},
}
"""Those of one line, which a memory of a few dozen characters can follow, and all of them, over lines too."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/quote-cell"))
    parser.add_argument("--budget", default="8min")
    parser.add_argument("--size", default="tiny")
    given = parser.parse_args()
    text, held_out = source()
    given.folder.mkdir(parents=True, exist_ok=True)
    learnt = given.folder / "source.txt"
    learnt.write_text(text, encoding="utf-8")
    if not (given.folder / "lstm" / "README.md").is_file():
        values = {
            "model": {"kind": "lstm", "size": given.size},
            "tokenizer": {"spec": "characters"},
            "data": {"text": str(learnt)},
            "train": {"budget": given.budget, "window": 128},
        }
        with TrainingDisplay() as display:
            run.start(make_recipe(values), given.folder / "lstm", reporter=display)
    lm = load(given.folder / "lstm")
    print(f"{clock()}, character LSTM ({given.size}, {given.budget}) on {LEARNT:,} characters of Python source")
    for name, asked in ASKED.items():
        found = search_cells(lm, held_out, asked, name=name)
        write(found, given.folder / f"{name.replace(' ', '-')}.html", about="character LSTM")
        best = found.found[0]
        print(
            f"{name}: unit {best.unit} of {best.part}, layer {best.layer}: AUC {best.held_out:.3f} on held-out text "
            f"({found.fraction:.0%} of it has the property; {found.units} units tried)"
        )


def source() -> tuple[str, str]:
    """The text to learn from, and one to search and judge, of modules that were not used yet."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    used, others = [], []
    size = 0
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="ignore").encode("ascii", "ignore").decode()
        (used if size <= LEARNT + PICKED else others).append(text)
        size += len(text)
    learnt, held_out = "\n".join(used)[:LEARNT], "\n".join(others)[:HELD_OUT]
    if len(held_out) < HELD_OUT:
        raise ValueError(
            f"{folder} has {size:,} characters of modules: too few to judge on others than were learnt from"
        )
    return learnt, held_out


if __name__ == "__main__":
    main()
