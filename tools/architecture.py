"""docs/images/architecture.svg: the four axes, and the way from data to answers.

`python -m tools.architecture > docs/images/architecture.svg`
"""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from lmlab.pages.figures.svg import element
from tools.drawing import arrow, picture, rectangle, words

TITLE = "Four axes meet in a recipe, a recipe trains a run, and everything else reads the run"
BOX, STEP = 236, 250  # width of a box, and from one box to the next


class Part(NamedTuple):
    """A box: a folder of the code, what is in it, and the page about it."""

    name: str
    folder: str
    lines: tuple[str, ...]
    link: str


AXES = (
    Part("Architecture", "models/", ("one file for each system:", "ngram, lstm, gpt2, vit …"), "lineage"),
    Part("Tokenization", "tokenizers/", ("characters, words, pieces,", "patches, frames, notes"), "guides/tokenizing"),
    Part("Objective", "objectives/", ("next token, masked tokens,", "denoising, contrastive …"), "guides/training"),
    Part("Training", "training/", ("budget, optimizer, rates;", "one loop, exact resuming"), "guides/training"),
)
FLOW = (
    Part(
        "Your data",
        "data/",
        ("text, pictures, sounds,", "music, episodes, labels:", "read, checked, split"),
        "guides/text",
    ),
    Part(
        "Recipe",
        "runs/",
        ("one choice on each axis;", "missing settings are filled", "with the system's defaults"),
        "guides/training",
    ),
    Part(
        "Training loop",
        "training/",
        ("numbered batches, a loss,", "validation, checkpoints,", "costs"),
        "guides/training",
    ),
    Part(
        "Run",
        "runs/",
        ("a directory of open files:", "weights, tokenizer, recipe,", "metrics, model card"),
        "reference/run-directory",
    ),
)
USES = (
    Part("Write", "decoding/", ("sampling, beam search,", "filling, translating"), "guides/scoring-and-generating"),
    Part("Transfer", "transfer/", ("fine-tuning on labels,", "beside baselines"), "guides/fine-tuning"),
    Part("Compare", "comparison/", ("scores with intervals,", "paired tests, costs"), "guides/comparing"),
    Part("Look inside", "analysis/", ("attention, cells, probes,", "surprisal"), "guides/looking-inside"),
)  # fmt: skip


def draw_row(head: str, row: tuple[Part, ...], y: float, height: float) -> list[Markup]:
    """Boxes side by side, below a headline."""
    parts = [words(20, y - 12, head, class_="head soft")]
    for number, part in enumerate(row):
        x = 20 + STEP * number
        box = [rectangle(x, y, BOX, height, class_="box", radius=8), words(x + 14, y + 25, part.name, class_="head")]
        box.append(words(x + BOX - 12, y + 25, part.folder, class_="soft", anchor="end"))
        box += [words(x + 14, y + 49 + 19 * line, text, class_="soft") for line, text in enumerate(part.lines)]
        parts.append(element("a", *box, href=f"../{part.link}.html", target="_top"))
    return parts


def draw_architecture() -> str:
    """The whole picture."""
    centre = [20 + STEP * number + BOX / 2 for number in range(4)]
    parts = draw_row("Four axes: change one and keep the others", AXES, 44, 84)
    parts += [arrow([(x, 128), (x, 146), (centre[1], 146), (centre[1], 200)]) for x in centre]
    parts += draw_row("From data to a model", FLOW, 200, 104)
    parts += [arrow([(x - STEP + BOX / 2, 252), (x - BOX / 2, 252)]) for x in centre[1:]]
    parts += draw_row("Uses of a run", USES, 378, 84)
    parts += [arrow([(centre[3], 304), (centre[3], 330), (x + 96, 330), (x + 96, 378)]) for x in centre]
    note = "Also: studio/ shows it in the browser, serve/ answers OpenAI's API, interop/ reads and writes Hugging Face."
    parts.append(words(20, 490, note, class_="soft"))
    return picture(parts, width=20 + 4 * STEP + 8, height=510, title=TITLE)


if __name__ == "__main__":
    print(draw_architecture(), end="")
