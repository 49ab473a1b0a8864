"""Errors on unusual input: what a model does with sources unlike its training text.

A translator is given sentences as they are, scrambled, doubled, and repeated words ("ag ag ag ag", whose
"translations" were taken for prophecies); a model that continues texts is given prompts likewise, without any chance.
Counted are loops (Holtzman et al. 2020), words copied from the source, words that nothing attends to (dropped) and
words that attend to nothing in particular (invented): the last two by attention, which is a hint and no proof.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from lmlab.analysis.alignment import Alignment, attention_names
from lmlab.analysis.view import Viewed
from lmlab.models.abilities import WritesTarget, ability
from lmlab.pages.figures import Bar, Bars, Figure
from lmlab.pages.views import Table

LONGEST_UNIT = 8
FEWEST_TIMES = 3
LONGEST_PIECE, SHORTEST_STRETCH = 24, 10
"""Characters of a piece that is written over and over within words, and of what it fills, so that "..." is no loop."""
DROPPED, INVENTED = 0.15, 0.25
"""Attention that a source token gets in all, and the most that a target token gives to one source token."""
SYLLABLE = "ag"
SHOWN = 40


class Loop(NamedTuple):
    """Words, or a piece of a word, repeated several times in a row."""

    words: list[str]
    times: int


class CheckedOutput(NamedTuple):
    """What became of one source or prompt."""

    kind: str
    source: str
    output: str
    loop: Loop | None
    copied: list[str]
    dropped: list[str]
    invented: list[str]


class ErrorCount(NamedTuple):
    """How many outputs of a kind have an error, by what it is."""

    kind: str
    outputs: int
    loops: int
    copied: int
    dropped: int | None
    invented: int | None
    """None if there is no attention to detect them with."""
    distinct: float | None
    """The fraction of pairs of neighbouring words that are not repeated in an output; None if there is no pair."""


@dataclass(frozen=True)
class Errors(Viewed):
    """What went wrong, by kind of input, with examples."""

    outputs: list[CheckedOutput]
    aligned: bool
    title: str = field(default="Errors on unusual input", init=False)

    def kinds(self) -> list[ErrorCount]:
        """The counts of each kind of input."""
        found = []
        for kind in dict.fromkeys(each.kind for each in self.outputs):
            own = [each for each in self.outputs if each.kind == kind]
            loops, copied, dropped, invented = (
                sum(bool(getattr(each, name)) for each in own) for name in ("loop", "copied", "dropped", "invented")
            )
            pairs = [list(pairwise(each.output.split())) for each in own]
            total, different = sum(map(len, pairs)), sum(len(set(each)) for each in pairs)
            fraction = different / total if total else None
            by_attention = (dropped, invented) if self.aligned else (None, None)
            found.append(ErrorCount(kind, len(own), loops, copied, by_attention[0], by_attention[1], fraction))
        return found

    def lead(self) -> str:
        loops = sum(each.loop is not None for each in self.outputs)
        return f"{loops} of {len(self.outputs)} outputs fall into a loop."

    def notes(self) -> list[str]:
        notes = [
            "loop: at least three times the same words in a row, or the same letters over ten characters or more; "
            "distinct: fraction of word pairs that are not repeated"
        ]
        if self.aligned:
            notes.append("dropped and invented words are found by attention: a hint, not a proof")
        for each in [each for each in self.outputs if each.loop is not None][:3]:
            assert each.loop is not None
            notes.append(f"{each.kind}: “{_cut(each.source)}” → “{' '.join(each.loop.words)}” {each.loop.times} times")
        return notes

    def table(self) -> Table:
        return Table(ErrorCount._fields, self.kinds(), ("", "d", "d", "d", "d", "d", ".1%"))

    def figures(self) -> list[Figure]:
        bars = [Bar(each.kind, each.loops / each.outputs) for each in self.kinds()]
        return [Bars("Outputs that fall into a loop", bars, most=1.0)]


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def find_loop_in(text: str) -> Loop | None:
    """A loop of words; else one of a piece of a word, which fills ten characters or more ("ssssssssssss")."""
    if (loop := find_loop(text.split())) is not None:
        return loop
    best: Loop | None = None
    for word in text.split():
        loop = find_loop(word, longest=LONGEST_PIECE)
        if loop is not None and (best is None or _length(loop) > _length(best)):
            best = loop
    return None if best is None or _length(best) < SHORTEST_STRETCH else Loop(["".join(best.words)], best.times)


def _length(loop: Loop) -> int:
    return len(loop.words) * loop.times


def find_loop(words: Sequence[str], *, longest: int = LONGEST_UNIT) -> Loop | None:
    """The longest stretch in which up to `longest` words are repeated three times or more, or None."""
    best: tuple[int, Loop] | None = None
    for unit in range(1, longest + 1):
        same = 0
        for position in range(unit, len(words) + 1):
            if position < len(words) and words[position] == words[position - unit]:
                same += 1
                continue
            times = same // unit + 1
            if times >= FEWEST_TIMES and (best is None or unit * times > best[0]):
                start = position - same - unit
                best = unit * times, Loop(list(words[start : start + unit]), times)
            same = 0
    return None if best is None else best[1]


def provoke(sources: Sequence[str], *, seed: int = 0) -> list[tuple[str, str]]:
    """Sources unchanged, scrambled, doubled and with a repeated word, each with its kind."""
    draw = random.Random(seed)
    found = [("as it is", source) for source in sources]
    for source in sources:
        words = source.split()
        shuffled = draw.sample(words, len(words))
        found += [("scrambled", " ".join(shuffled)), ("doubled", f"{source} {source}")]
        found.append(("one word repeated", " ".join([draw.choice(words)] * 10)))
    return [*found, *(("syllable repeated", " ".join([SYLLABLE] * times)) for times in (2, 5, 10, 20))]


def find_errors(
    model: Any, sources: Sequence[str], *, tokens: int = 80, seed: int = 0, provoked: bool = True
) -> Errors:
    """What a LanguageModel makes of sources (a translator) or prompts (a model that continues texts)."""
    given = [source for source in sources if source.strip()]
    if not given:
        raise ValueError("there is no source to try: give texts")
    tried = provoke(given, seed=seed) if provoked else [("as it is", source) for source in given]
    if ability(model.model, WritesTarget) is None:
        return _continue(model, tried, tokens=tokens)
    best = [
        found[0] if found else None for found in model.translator.translate([text for _, text in tried], tokens=tokens)
    ]
    kept = [(kind, text, each) for (kind, text), each in zip(tried, best, strict=True) if each is not None]
    aligned = bool(attention_names(model.model))
    alignments: list[Alignment | None] = [None] * len(kept)
    if aligned:
        alignments = list(model.aligner.align([text for _, text, _ in kept], [each for _, _, each in kept]))
    outputs = []
    for (kind, text, each), alignment in zip(kept, alignments, strict=True):
        dropped, invented = ([], []) if alignment is None else unaligned(alignment)
        outputs.append(_output(kind, text, each.text, dropped, invented))
    return Errors(outputs, aligned)


def _continue(model: Any, tried: Sequence[tuple[str, str]], *, tokens: int) -> Errors:
    """The most probable continuation, found without chance by one beam."""
    window = model.model.window
    outputs = []
    for kind, text in tried:
        length = len(model.text_tokenizer.encode(text))
        room = tokens if window is None else max(1, min(tokens, window - length - 1))
        if window is None or length + 1 < window:
            written = str(model.generate(text, tokens=room, beams=1))
            outputs.append(_output(kind, text, written, [], []))
    if not outputs:
        raise ValueError(f"every prompt is longer than the model's window of {window} tokens: give shorter ones")
    return Errors(outputs, aligned=False)


def _output(kind: str, source: str, output: str, dropped: list[str], invented: list[str]) -> CheckedOutput:
    own = {word for word in source.split() if len(word) > 2 and word.isalpha()}
    copied = sorted({word for word in output.split() if word in own})
    return CheckedOutput(kind, source, output, find_loop_in(output), copied, dropped, invented)


def unaligned(alignment: Alignment) -> tuple[list[str], list[str]]:
    """Source tokens that get next to no attention, and target tokens that give none to any one source token.

    The last token of either side is the boundary and does not count.
    """
    source, target, weights = alignment.source[:-1], alignment.target[:-1], alignment.weights[:-1]
    got = [sum(row[position] for row in weights) for position in range(len(source))]
    dropped = [token.strip() for token, total in zip(source, got, strict=True) if total < DROPPED]
    invented = [
        token.strip()
        for token, row in zip(target, weights, strict=True)
        if max(row[: len(source)], default=0.0) < INVENTED
    ]
    return dropped, invented
