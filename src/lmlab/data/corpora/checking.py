"""Checks of labelled examples: sizes, labels, duplicates, leaks, noise, lengths, and unknown words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lmlab.data.corpora.example_splits import name_text
from lmlab.data.readers.examples import Example, Labelled

if TYPE_CHECKING:
    from lmlab.tokenizers import Tokenizer

SAMPLE = 5000
"""The number of examples of each split, evenly spread, whose lengths and words are checked."""
SHOWN = 6
"""The number of labels that the lines name."""
RARE = 10
"""The number of examples below which a class is called rare."""


@dataclass(frozen=True, kw_only=True)
class LabelSummary:
    """What a task says about the labels of its training examples."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """How often each class, tag or kind of span occurs."""
    scores: tuple[float, float, float] | None = None
    """The lowest, the mean and the highest score."""
    unanswered: int = 0
    """Questions without an answer."""
    lines: Sequence[str] = ()
    """The same for people."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """The result of a check; `lines` is a summary, `as_dict` is complete."""

    task: str
    format: str
    scheme: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, int]
    """The number of examples of each split."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """The count of each class, tag or kind of span in train."""
    scores: tuple[float, float, float] | None = None
    """The lowest, the mean and the highest score in train."""
    unanswered: int = 0
    duplicates: Mapping[str, int] = field(default_factory=dict)
    """The number of examples of each split whose text is repeated."""
    leaks: Mapping[str, int] = field(default_factory=dict)
    """The number of examples of valid that are in train, and of test that are in train or valid."""
    noisy: int = 0
    """The number of texts of train with two different labels."""
    noisy_example: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    looked_at: int = 0
    """The number of examples whose lengths and words were checked; 0 without a tokenizer."""
    longest: int = 0
    window: int | None = None
    too_long: int = 0
    words: int = 0
    unreadable: int = 0
    unreadable_words: Sequence[str] = ()
    label_lines: Sequence[str] = ()
    """The labels in words."""
    if_too_long: str = "are cut"
    """What happens to examples that are longer than the window."""

    def lines(self) -> list[str]:
        """Return a summary for the user before training, in a few lines."""
        sizes = ", ".join(f"{name} {number:,}" for name, number in self.examples.items())
        lines = [f"{self.task}: {self.format}"]
        if self.columns:
            names = {"a": "text", "b": "second text"}
            lines.append(
                f"columns: {', '.join(f'{names.get(role, role)} = {name}' for role, name in self.columns.items())}"
            )
        lines.append(f"examples: {sizes}{self._left_out()}")
        lines += self.label_lines
        if repeated := {name: number for name, number in self.duplicates.items() if number}:
            lines.append(f"duplicates: {_listed(repeated, 'within')}")
        lines += [self._describe_leaks(name, number) for name, number in self.leaks.items() if number]
        if self.noisy:
            lines.append(
                f"label noise: {self.noisy:,} text{'s' * (self.noisy != 1)} with two labels, as {self.noisy_example}"
            )
        if self.looked_at:
            lines += self._length_lines()
        return lines + [f"note: {note}" for note in self.notes]

    def require_held_out(self) -> None:
        """Raise a ValueError if all held-out examples are in train."""
        for name, number in self.leaks.items():
            if number and number == self.examples[name]:
                raise ValueError(f"{self._describe_leaks(name, number)}; give others, or leave them out")

    def _describe_leaks(self, name: str, number: int) -> str:
        if number == self.examples[name]:
            return f"leaks: all {number:,} examples of {name} occur in {_seen_in(name)}, too: a score says nothing"
        return (
            f"leaks: {number:,} of {self.examples[name]:,} examples of {name} also occur in {_seen_in(name)}, and are "
            f"scored all the same; --leaks train removes them from {_seen_in(name)}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the complete result, for JSON."""
        words = ("label_lines", "if_too_long")
        return {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in asdict(self).items()
            if name not in words
        }

    def _left_out(self) -> str:
        return (
            f" (left out: {', '.join(f'{n:,} with {why}' for why, n in self.skipped.items())})" if self.skipped else ""
        )

    def _length_lines(self) -> list[str]:
        number = sum(self.examples.values())
        of = f" (of {self.looked_at:,} that were looked at)" if self.looked_at < number else ""
        lines = []
        if self.window is not None and self.too_long:
            lines.append(
                f"lengths: {self.too_long:,} examples ({_percent(self.too_long, self.looked_at)}) are longer than the "
                f"window of {self.window:,} tokens and {self.if_too_long}; the longest has {self.longest:,}{of}"
            )
        else:
            fits = f", the window {self.window:,}" if self.window is not None else ""
            lines.append(f"lengths: the longest has {self.longest:,} tokens{fits}{of}")
        if self.unreadable:
            shown = " ".join(self.unreadable_words)
            lines.append(f"words that the tokenizer cannot read: {_percent(self.unreadable, self.words)}, as {shown}")
        return lines


def format_counts(counts: Mapping[str, int], what: str) -> list[str]:
    """A line with the most frequent labels; none where there are no labels."""
    total = sum(counts.values())
    if not total:
        return []
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} {_percent(number, total)}" for name, number in ordered[:SHOWN])
    more = f", and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    rare = sum(number < RARE for number in counts.values())
    few = f"; {rare} with fewer than {RARE} examples" if rare and total > RARE * len(ordered) else ""
    return [f"{len(ordered)} {what}: {shown}{more}{few}"]


def check(
    labelled: Labelled,
    *,
    labels: LabelSummary | None = None,
    if_too_long: str = "are cut",
    tokenizer: Tokenizer | None = None,
    frame_overhead: int = 0,
    window: int | None = None,
) -> Check:
    """Look at labelled examples; those of valid and test that are in training, too, are counted as leaks.

    `labels` and `if_too_long` are what the task says about its labels, and about long examples.
    `frame_overhead` are the tokens that a model's frame adds to a text, `window` the most that it reads. Lengths and
    words are looked at in a sample, spread evenly, where there are many.
    """
    splits = _splits(labelled)
    names = {split: [name_text(example) for example in examples] for split, examples in splits.items()}
    noisy = _find_noise(splits["train"], names["train"])
    summary = labels or LabelSummary()
    return Check(
        task=labelled.task,
        format=labelled.format,
        scheme=labelled.scheme,
        columns=dict(labelled.columns),
        examples={split: len(examples) for split, examples in splits.items()},
        labels=dict(summary.counts),
        scores=summary.scores,
        unanswered=summary.unanswered,
        label_lines=summary.lines,
        if_too_long=if_too_long,
        duplicates={split: len(texts) - len(set(texts)) for split, texts in names.items()},
        leaks={split: sum(found) for split, found in _find_leaks(names).items()},
        noisy=len(noisy),
        noisy_example=noisy[0] if noisy else "",
        skipped=dict(labelled.skipped),
        notes=tuple(labelled.notes),
        window=window,
        **(_look_at_tokens(splits, tokenizer, frame_overhead, window) if tokenizer is not None else {}),
    )


def remove_leaks(labelled: Labelled) -> tuple[Labelled, dict[str, int]]:
    """Return the examples without those of valid that are in train, and of test that are in train or valid; and counts.

    A split that would be empty is None after that.
    """
    splits = _splits(labelled)
    names = {split: [name_text(example) for example in examples] for split, examples in splits.items()}
    leaks = _find_leaks(names)
    kept = {
        split: [example for example, leaked in zip(splits[split], found, strict=True) if not leaked] or None
        for split, found in leaks.items()
        if any(found)
    }
    counts = {split: sum(found) for split, found in leaks.items()}
    return (replace(labelled, **kept) if kept else labelled), counts  # type: ignore[arg-type]


def remove_trained(labelled: Labelled) -> tuple[Labelled, dict[str, int]]:
    """The examples without those of train that occur in valid or test, and those of valid that occur in test.

    The test examples stay as they are. The second value is the number of removed examples by split.
    """
    held_out = {name_text(example) for example in labelled.test or ()}
    valid = None if labelled.valid is None else [each for each in labelled.valid if name_text(each) not in held_out]
    held_out |= {name_text(example) for example in valid or ()}
    train = [example for example in labelled.train if name_text(example) not in held_out]
    counts = {"train": len(labelled.train) - len(train), "valid": len(labelled.valid or ()) - len(valid or ())}
    return replace(labelled, train=train, valid=valid), counts


def _seen_in(split: str) -> str:
    return "train" if split == "valid" else "train or valid"


def _splits(labelled: Labelled) -> dict[str, Sequence[Example]]:
    given = {"train": labelled.train, "valid": labelled.valid, "test": labelled.test}
    return {split: examples for split, examples in given.items() if examples is not None}


def _find_leaks(names: Mapping[str, Sequence[str]]) -> dict[str, list[bool]]:
    seen = set(names["train"])
    leaks: dict[str, list[bool]] = {}
    for split in ("valid", "test"):
        if split in names:
            leaks[split] = [name in seen for name in names[split]]
            seen |= set(names[split])
    return leaks


def _find_noise(examples: Sequence[Example], names: Sequence[str]) -> list[str]:
    """Return descriptions of texts with two labels."""
    first: dict[str, Example] = {}
    noisy: dict[str, str] = {}
    for name, example in zip(names, examples, strict=True):
        other = first.setdefault(name, example)
        if other.label != example.label and name not in noisy:
            text = other.a if isinstance(other.a, str) else " ".join(other.a)
            labels = f"{other.label} and {example.label}: " if isinstance(other.label, (str, float)) else ""
            noisy[name] = f"{labels}{text if len(text) <= 50 else f'{text[:49]}…'}"
    return list(noisy.values())


def _look_at_tokens(
    splits: Mapping[str, Sequence[Example]], tokenizer: Tokenizer, overhead: int, window: int | None
) -> dict[str, Any]:
    sample = [example for examples in splits.values() for example in _spread(examples)]
    texts: list[str] = []
    owners: list[int] = []
    for owner, example in enumerate(sample):
        for text in _texts(example):
            texts.append(text)
            owners.append(owner)
    lengths = [overhead] * len(sample)
    extra = [0] * len(sample)
    seen = [0] * len(sample)
    different = list(dict.fromkeys(texts))  # many questions are about one context
    length_of = dict(zip(different, map(len, tokenizer.encode_batch(different)), strict=True))
    for owner, text in zip(owners, texts, strict=True):
        fixed = 1 if sample[owner].b is None else 2
        if seen[owner] < fixed:
            lengths[owner] += length_of[text]
        else:
            extra[owner] = max(extra[owner], length_of[text])  # only one choice is read at a time
        seen[owner] += 1
    lengths = [length + more for length, more in zip(lengths, extra, strict=True)]
    words = Counter(word for text in texts for word in text.split())
    unread = _find_unread(words, tokenizer)
    return {
        "looked_at": len(sample),
        "longest": max(lengths),
        "too_long": sum(length > window for length in lengths) if window is not None else 0,
        "words": sum(words.values()),
        "unreadable": sum(words[word] for word in unread),
        "unreadable_words": tuple(sorted(unread, key=lambda word: (-words[word], word))[:3]),
    }


def _find_unread(words: Mapping[str, int], tokenizer: Tokenizer) -> list[str]:
    unknown = tokenizer.unknown
    if unknown is None:
        return []
    different = list(words)
    encoded = tokenizer.encode_batch(different)
    return [word for word, ids in zip(different, encoded, strict=True) if not len(ids) or (ids == unknown).any()]


def _texts(example: Example) -> Iterable[str]:
    yield example.a if isinstance(example.a, str) else " ".join(example.a)
    if example.b is not None:
        yield example.b
    yield from example.choices


def _spread(examples: Sequence[Example]) -> Sequence[Example]:
    if len(examples) <= SAMPLE:
        return examples
    return [examples[index * len(examples) // SAMPLE] for index in range(SAMPLE)]


def _percent(number: int, total: int) -> str:
    fraction = 100 * number / total
    return f"{fraction:.0f}%" if fraction >= 10 else f"{fraction:.1f}%" if fraction >= 0.1 else "less than 0.1%"


def _listed(numbers: Mapping[str, int], how: str) -> str:
    return ", ".join(f"{number:,} {how} {name}" for name, number in numbers.items())
