"""The typographic attack: a word is written on a picture, and the zero-shot label may become that word.

Goh et al. 2021, "Multimodal Neurons in Artificial Neural Networks". Two controls say what the word does, and not the
paper that it is written on: the same label without letters, and the picture as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lmlab.analysis.pictures.matching import PLAIN, Matcher, ZeroShot, check_labels
from lmlab.analysis.view import Viewed, plain
from lmlab.data.readers.pictures.decoding import BadPictureError
from lmlab.data.readers.pictures.lettering import write_word
from lmlab.data.readers.pictures.sources import PictureRow
from lmlab.metrics.statistics import Estimate, wilson
from lmlab.pages.figures import Figure, PictureGrid
from lmlab.pages.views import Table
from lmlab.tokenizers.processors.pictures import PixelArray, flatten_alpha, set_channels

SHOWN = 6
"""Pictures on the page, at most."""


class Seen(NamedTuple):
    """The most probable label of a picture, and the probability of the word that is written on it."""

    label: str
    word: float


class Attacked(NamedTuple):
    """One picture: as it is, with an empty label on it, and with the word."""

    name: str
    known: str | None  # its class, if the data have classes
    word: str
    plain: Seen
    blank: Seen
    written: Seen


@dataclass(frozen=True)
class Typographic(Viewed):
    """Zero-shot labels before and after a word was written on pictures."""

    attacked: tuple[Attacked, ...]
    labels: tuple[str, ...]
    templates: tuple[str, ...]
    pixels: tuple[tuple[PixelArray, PixelArray], ...]
    """The first pictures, as they are and with the word."""
    problems: tuple[str, ...] = ()
    title: str = "Typographic attack"

    def rate(self, control: str) -> Estimate:
        """How often the label is the word: with `written`, `blank` or `plain` pictures; with Wilson's interval."""
        right = sum(getattr(each, control).label == each.word for each in self.attacked)
        return wilson(right, len(self.attacked))

    def accuracy(self, control: str) -> float | None:
        """How often the label is the class; None if the data have no classes."""
        if any(each.known is None for each in self.attacked):
            return None
        right = sum(bool(getattr(each, control).label == each.known) for each in self.attacked)
        return right / len(self.attacked)

    @property
    def has_effect(self) -> bool:
        """Whether the word is the label clearly more often than on an empty label: the intervals do not overlap."""
        written, blank = self.rate("written"), self.rate("blank")
        return written.low is not None and blank.high is not None and written.low > blank.high

    def lead(self) -> str:
        written, blank, plain = (self.rate(name) for name in ("written", "blank", "plain"))
        found = (
            f"with the word written on it, the label is that word for {written.value:.1%} of {len(self.attacked):,} "
            f"pictures; with an empty label {blank.value:.1%}, without {plain.value:.1%}"
        )
        if len(self.attacked) == 1:
            one = self.attacked[0]
            return f"{one.plain.label} before, {one.written.label} after {one.word!r} was written on the picture"
        return found if self.has_effect else f"no clear effect: {found}"

    def table(self) -> Table:
        rows = []
        for each in self.attacked:
            seen = (each.plain, each.blank, each.written)
            rows.append((Path(each.name).name, each.word, *(one.label for one in seen), *(one.word for one in seen)))
        names = ("picture", "word", "label", "empty label on it", "word on it", "P(word)", "P, empty", "P, written")
        return Table(names, rows, ("", "", "", "", "", ".1%", ".1%", ".1%"))

    def figures(self) -> Sequence[Figure]:
        pictures = []
        for each, (before, after) in zip(self.attacked, self.pixels, strict=False):
            now = f"{each.written.label} ({each.written.word:.0%} {each.word})"
            pictures += [(each.plain.label, before), (now, after)]
        return [PictureGrid("Zero-shot label before and after", pictures, columns=4)]

    def as_json(self) -> dict[str, Any]:
        rates = {name: self.rate(name) for name in ("plain", "blank", "written")}
        return {
            "pictures": len(self.attacked),
            "labelled_as_word": {name: rate.value for name, rate in rates.items()},
            "intervals": {name: [rate.low, rate.high] for name, rate in rates.items()},
            "accuracy": {name: self.accuracy(name) for name in rates},
            "clear_effect": self.has_effect,
            "labels": list(self.labels),
            "templates": list(self.templates),
            "attacked": plain(self.attacked),
            "skipped": list(self.problems),
        }

    def notes(self) -> Sequence[str]:
        accuracies = [self.accuracy(name) for name in ("plain", "blank", "written")]
        known = [f"{value:.1%}" for value in accuracies if value is not None]
        notes = [f"labels: {', '.join(self.labels)}; templates: {', '.join(self.templates)}"]
        if known:
            notes.append(f"accuracy: {known[0]} as they are, {known[1]} with an empty label, {known[2]} with the word")
        notes.append("a model that has never seen written words cannot read them: an empty label then does as much")
        return [*notes, *(f"skipped: {problem}" for problem in self.problems)]


def attack(
    matcher: Matcher,
    rows: Sequence[PictureRow],
    *,
    word: str | None = None,
    labels: Sequence[str] = (),
    templates: Sequence[str] = PLAIN,
) -> Typographic:
    """Write a word on pictures and compare their zero-shot labels.

    Without `labels` these are the classes of the data; without a `word` each picture gets another label than its own.
    """
    classes = list(labels) or sorted({row.label for row in rows if row.label is not None})
    if word is not None and word not in classes:
        classes.append(word)
    check_labels(classes, templates)
    pictures, problems, kept = [], [], []
    for row in rows:
        try:
            pictures.append(prepare(row.picture.read()))
            kept.append(row)
        except BadPictureError as error:
            problems.append(str(error))
    if not pictures:
        raise ValueError(problems[0] if problems else "there are no pictures")
    before = _classify(matcher, pictures, classes, templates)
    truth = [row.label or label for row, label in zip(kept, before.best, strict=True)]
    words = [word or choose_wrong(true, classes, number) for number, true in enumerate(truth)]
    both = list(zip(pictures, words, strict=True))
    blank = _classify(matcher, [write_word(each, own, blank=True) for each, own in both], classes, templates)
    written = [write_word(each, own) for each, own in both]
    after = _classify(matcher, written, classes, templates)
    attacked = []
    for number, (row, own) in enumerate(zip(kept, words, strict=True)):
        seen = [Seen(found.best[number], dict(found.ranked(number))[own]) for found in (before, blank, after)]
        attacked.append(Attacked(row.picture.name, row.label, own, *seen))
    read = matcher.processor.process
    shown = [(read(each), read(new)) for each, new in zip(pictures[:SHOWN], written[:SHOWN], strict=True)]
    return Typographic(tuple(attacked), tuple(classes), tuple(templates), tuple(shown), tuple(problems))


def choose_wrong(true: str, labels: Sequence[str], number: int) -> str:
    """Another label than the true one, each as often."""
    others = [label for label in labels if label != true]
    return others[number % len(others)]


def prepare(pixels: PixelArray) -> PixelArray:
    """A picture without transparency and in colour, on which a word can be written."""
    return set_channels(flatten_alpha(pixels, 255), 3)


def _classify(
    matcher: Matcher, pictures: Sequence[PixelArray], labels: Sequence[str], templates: Sequence[str]
) -> ZeroShot:
    return matcher.classify(matcher.embed_pixels(pictures), labels, templates)
