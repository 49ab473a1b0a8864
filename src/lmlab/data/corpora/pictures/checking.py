"""Checks of pictures: numbers, sizes, classes, equal pictures within and between splits, and files that are bad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lmlab.data.corpora.checking import format_counts
from lmlab.data.readers.pictures.sources import PictureRow, PictureSource

SHOWN = 4
"""Sizes that the lines name."""


@dataclass(frozen=True, kw_only=True)
class PictureCheck:
    """The result of a check; `lines` is a summary, `as_dict` is complete."""

    pictures: Mapping[str, int]
    """The number of rows of each split."""
    sizes: Mapping[str, int]
    """How many pictures have each size before they are resized: `height × width`."""
    size: str
    """The size of all after that."""
    classes: Mapping[str, int]
    """The count of each class in train; none where pictures have texts."""
    duplicates: Mapping[str, int]
    """The number of rows of each split whose picture, and text if it has one, is repeated."""
    leaks: Mapping[str, int]
    """The number of rows of valid whose picture is in train, and of test whose picture is in train or valid."""
    noisy: int
    """The number of pictures of train with two classes."""
    bad: Sequence[str]
    """A line for each file that was skipped."""

    def lines(self) -> list[str]:
        """Return a summary for the user before training, in a few lines."""
        held = ", ".join(f"{name} {number:,}" for name, number in self.pictures.items())
        skipped = f"; skipped {len(self.bad):,} that cannot be read" if self.bad else ""
        said = [f"pictures: {held}{skipped}", f"sizes: {self._describe_sizes()}"]
        said += format_counts(self.classes, "classes")
        if repeated := {name: number for name, number in self.duplicates.items() if number}:
            said.append("duplicates: " + ", ".join(f"{number:,} within {name}" for name, number in repeated.items()))
        for name, number in self.leaks.items():
            if number:
                other = "train" if name == "valid" else "train or valid"
                said.append(f"leaks: {number:,} of {self.pictures[name]:,} pictures of {name} are also in {other}")
        if self.noisy:
            said.append(f"label noise: {self.noisy:,} picture{'s' * (self.noisy != 1)} of train with two classes")
        return said

    def require_held_out(self) -> None:
        """Raise a ValueError if all held-out pictures are in train."""
        for name, number in self.leaks.items():
            if number and number == self.pictures[name]:
                raise ValueError(f"all {number:,} pictures of {name} are in train, too: give others, or leave them out")

    def _describe_sizes(self) -> str:
        """The most frequent sizes, and what becomes of them."""
        if set(self.sizes) <= {self.size}:
            return f"all {self.size} pixels"
        ordered = sorted(self.sizes.items(), key=lambda each: (-each[1], each[0]))
        total = sum(self.sizes.values())
        shown = ", ".join(f"{name} {number / total:.0%}" for name, number in ordered[:SHOWN])
        more = f", and {len(ordered) - SHOWN:,} more" if len(ordered) > SHOWN else ""
        return f"{shown}{more}; resized to {self.size} pixels"

    def as_dict(self) -> dict[str, Any]:
        """Return the complete result, for JSON."""
        return asdict(self)


def check_pictures(
    parts: Mapping[str, Sequence[PictureRow]],
    digests: Mapping[PictureSource, str],
    *,
    sizes: Mapping[str, int],
    size: str,
    bad: Sequence[str],
) -> PictureCheck:
    """Look at the rows of each split; `digests` are equal for equal pictures."""
    seen: set[str] = set()
    leaks, duplicates = {}, {}
    for name, rows in parts.items():
        own = [digests[row.picture] for row in rows]
        if name != "train":
            leaks[name] = sum(each in seen for each in own)
        seen |= set(own)
        keys = {(each, *row.texts.values()) for each, row in zip(own, rows, strict=True)}
        duplicates[name] = len(rows) - len(keys)
    labels: dict[str, set[str | None]] = {}
    for row in parts["train"]:
        if not row.texts:
            labels.setdefault(digests[row.picture], set()).add(row.label)
    return PictureCheck(
        pictures={name: len(rows) for name, rows in parts.items()},
        sizes=dict(sizes),
        size=size,
        classes=Counter(row.label for row in parts["train"] if row.label is not None and not row.texts),
        duplicates=duplicates,
        leaks=leaks,
        noisy=sum(len(each) > 1 for each in labels.values()),
        bad=list(bad),
    )
