"""Tags that mark spans, in the schemes of the shared tasks: IOB1, IOB2, IOBES and BILOU.

IOB1 (Ramshaw and Marcus 1995, CoNLL-2003): `B-` only where a span follows another of its kind. IOB2 (Ratnaparkhi 1998,
CoNLL-2002): every span begins with `B-`. IOBES: the last word of a span is `E-`, a span of one word `S-`; BILOU
says `L-` and `U-` for the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from lmlab.metrics.tagging import Span, spans

SchemeName = Literal["IOB1", "IOB2", "IOBES", "BILOU"]
SCHEMES: tuple[SchemeName, ...] = ("IOB1", "IOB2", "IOBES", "BILOU")
OUTSIDE = "O"
_IOB: tuple[SchemeName, ...] = ("IOB2", "IOB1")
LETTERS = {"IOB1": "IB", "IOB2": "BI", "IOBES": "BIES", "BILOU": "BILU"}
"""The letters with which tags of each scheme begin."""


class Fault(NamedTuple):
    """A tag that is not allowed at its position."""

    position: int
    why: str


def split_tag(tag: str) -> tuple[str, str]:
    """Return the letter and the kind of a tag: `B-PER` is B and PER; `O`, and a bare `B`, have no kind."""
    letter, _, kind = tag.partition("-")
    return letter, kind


def find_scheme(sentences: Iterable[Sequence[str]]) -> SchemeName | None:
    """Return the scheme of tags, by their letters and where spans begin; None if tags do not mark spans.

    If tags fit neither IOB1 nor IOB2, it is the one that they break less often: `find_fault` says where.
    """
    steps = _count_steps(sentences)
    tags = {tag for _, tag in steps if tag is not None}
    if not _marks_spans(tags):
        return None
    letters = {split_tag(tag)[0] for tag in tags}
    if letters & {"L", "U"} and not letters & {"E", "S"}:
        return "BILOU"
    if letters & {"E", "S"}:
        return "IOBES"
    faults = {
        scheme: sum(count for step, count in steps.items() if _complain(*step, scheme) is not None) for scheme in _IOB
    }
    return min(_IOB, key=lambda scheme: faults[scheme])


def resemble_spans(tags: Iterable[str]) -> str | None:
    """Return the first tag if all but `O` have a letter and a kind (`E-PER`, `b-per`); else None."""
    others = sorted({*tags} - {OUTSIDE, OUTSIDE.lower()})
    alike = all(len(tag) > 2 and tag[0].upper() in "BIESLU" and tag[1] in "-_" for tag in others)
    return others[0] if others and alike else None


def are_legal(sentences: Iterable[Sequence[str]], scheme: SchemeName) -> bool:
    """Whether every tag of every sentence is allowed at its position."""
    return all(_complain(*step, scheme) is None for step in _count_steps(sentences))


def find_fault(tags: Sequence[str], scheme: SchemeName) -> Fault | None:
    """Return the first tag that a scheme does not allow at its position, and why; None if all are allowed."""
    for position, step in enumerate(zip((None, *tags), (*tags, None), strict=True)):
        if (why := _complain(*step, scheme)) is not None:
            return Fault(min(position, len(tags) - 1), why)
    return None


def write_tags(marked: Iterable[Span], length: int, *, scheme: SchemeName = "IOB2") -> tuple[str, ...]:
    """Return the tags of spans that do not overlap."""
    tags = [OUTSIDE] * length
    previous: Span | None = None
    for span in sorted(marked, key=lambda span: span.start):
        if not 0 <= span.start < span.end <= length or (previous is not None and span.start < previous.end):
            raise ValueError(f"{span} does not fit: spans must be within the {length} words and do not overlap")
        touches = previous is not None and previous.end == span.start and previous.type == span.type
        for position in range(span.start, span.end):
            letter = _letter(span, position, touches=touches, scheme=scheme)
            tags[position] = f"{letter}-{span.type}" if span.type else letter
        previous = span
    return tuple(tags)


def convert(tags: Sequence[str], *, source: SchemeName, target: SchemeName) -> tuple[str, ...]:
    """Return the tags of one scheme in another."""
    if source == target or not any(tag != OUTSIDE for tag in tags):
        return tuple(tags)
    return write_tags(spans(tags), len(tags), scheme=target)


def _letter(span: Span, position: int, *, touches: bool, scheme: SchemeName) -> str:
    first, last = position == span.start, position == span.end - 1
    if scheme == "IOB1":
        return "B" if first and touches else "I"
    if scheme == "IOB2":
        return "B" if first else "I"
    ending, single = ("E", "S") if scheme == "IOBES" else ("L", "U")
    if first:
        return single if last else "B"
    return ending if last else "I"


def _marks_spans(tags: set[str]) -> bool:
    """Whether tags mark spans: some begin with `B-` or `I-`, or there are no others than the bare letters and `O`."""
    if any(tag.startswith(("B-", "I-", "S-", "U-")) and len(tag) > 2 for tag in tags) and (
        OUTSIDE in tags or all(_form_fits(tag, "BIESLU") for tag in tags)
    ):
        return True
    return OUTSIDE in tags and len(tags) > 1 and tags <= {OUTSIDE, *"BIESLU"}


def _form_fits(tag: str, letters: str) -> bool:
    letter, kind = split_tag(tag)
    return tag == OUTSIDE or (letter in tuple(letters) and (bool(kind) or tag == letter))


def _count_steps(sentences: Iterable[Sequence[str]]) -> Counter[tuple[str | None, str | None]]:
    """Count how often each tag follows each; None is before the first and after the last."""
    steps: Counter[tuple[str | None, str | None]] = Counter()
    for tags in sentences:
        steps.update(zip((None, *tags), (*tags, None), strict=True))
    return steps


def _complain(before: str | None, tag: str | None, scheme: SchemeName) -> str | None:
    """Return why a tag must not follow another; None if it may. Earlier tags never matter."""
    letters = LETTERS[scheme]
    last, kind_before = split_tag(before) if before is not None else (OUTSIDE, "")
    letter, kind = split_tag(tag) if tag is not None else (OUTSIDE, "")
    if tag is not None and not _form_fits(tag, letters):
        return f"it begins with none of {', '.join(f'{one}-' for one in letters)} and is not O"
    after = before if before is not None else "the start of the sentence"
    begins = letter != OUTSIDE and (last == OUTSIDE or kind_before != kind)
    if scheme == "IOB2":
        return f"after {after}, where a span begins, and IOB2 begins it with B-" if begins and letter == "I" else None
    if scheme == "IOB1":
        return f"after {after}, where IOB1 begins a span with I-" if begins and letter == "B" else None
    ending = letters[2]
    opened = kind_before if last in ("B", "I") else None
    if letter in ("I", ending):
        return None if opened == kind else f"after {after}, where no {kind or 'other'} span is open"
    if opened is None:
        return None
    return (
        f"after {after}, whose span has no end ({ending}-)" if tag is not None else f"its span has no end ({ending}-)"
    )
