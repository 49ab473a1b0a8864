"""Lines that begin with a label: fastText's `__label__x text`, and the questions of TREC, `NUM:dist How far …`."""

from __future__ import annotations

import re

from lmlab.config import suggest
from lmlab.data.readers.examples import Example, ExampleReader
from lmlab.data.readers.files import shorten
from lmlab.data.readers.labelled.columns import Columns

PREFIX = "__label__"
TREC = re.compile(r"([A-Z]{2,}):([a-z]\w*) \S")


class FastTextReader(ExampleReader):
    """Reads lines of fastText, `__label__x text`: one label, then the text."""

    task = "classification"
    format = "fastText lines"

    def read(self, source: str, text: str) -> list[Example]:
        """Return the lines of a file; a ValueError names one without a label, or with two."""
        examples: list[Example] = []
        for number, line in enumerate(text.split("\n"), 1):
            words = line.split()
            if not words:
                continue
            labels = [word for word in words if word.startswith(PREFIX)]
            if len(labels) != 1 or len(labels[0]) == len(PREFIX):
                found = f"{len(labels) or 'no'} label{'s' * (len(labels) != 1)}"
                raise ValueError(f"{source}, line {number}: {found} ({shorten(line)}); one {PREFIX}… in each line")
            rest = " ".join(word for word in words if word != labels[0])
            if not rest:
                self.skipped["no text"] += 1
                continue
            examples.append(Example(rest, label=labels[0].removeprefix(PREFIX), source=source, line=number))
        return examples


class TrecReader(ExampleReader):
    """Reads questions of TREC: `NUM:dist How far …`; the label is the coarse class, or the fine one on request."""

    task = "classification"

    def __init__(self, columns: Columns | None = None) -> None:
        super().__init__()
        which = str((columns or {}).get("label", "coarse"))
        which = {"1": "coarse", "2": "fine"}.get(which, which)
        if which not in ("coarse", "fine"):
            raise ValueError(f"--columns label={which}: lines of TREC have two{suggest(which, ('coarse', 'fine'))}")
        self.columns = {"label": which}
        self.format = f"TREC lines ({which} classes)"
        if which == "coarse":
            self.note("the classes before the colon are taken; --columns label=fine for those after it")

    def read(self, source: str, text: str) -> list[Example]:
        """Return the questions of a file."""
        examples: list[Example] = []
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            if TREC.match(line) is None:
                raise ValueError(f"{source}, line {number}: {shorten(line)} does not begin with COARSE:fine")
            label, _, rest = line.partition(" ")
            label = label if self.columns["label"] == "fine" else label.partition(":")[0]
            examples.append(Example(rest.strip(), label=label, source=source, line=number))
        return examples


def is_fasttext(text: str) -> bool:
    """Whether the first line begins with a label of fastText."""
    return text.lstrip().startswith(PREFIX)


def is_trec(text: str) -> bool:
    """Whether all of the first lines begin with two classes."""
    lines = [line for line in text.split("\n", 200)[:200] if line.strip()]
    return bool(lines) and all(TREC.match(line) for line in lines)
