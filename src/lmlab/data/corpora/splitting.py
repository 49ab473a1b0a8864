"""Splits documents into train, valid and test."""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.documents import Documents
from lmlab.data.readers.text import TextWarning

NAMES = ("train", "valid", "test")
FARTHEST = 0.5
"""The largest relative error of the size of a split, before the text is cut by position instead."""
LEAST = 16
"""The least number of bytes of a split."""


def check_fractions(fractions: Sequence[float]) -> dict[str, float]:
    """Return the fraction of each split; two numbers are train and valid."""
    values = [float(fraction) for fraction in fractions]
    if (
        not 1 <= len(values) <= 3
        or any(not 0 <= v <= 1 for v in values)
        or abs(sum(values) - 1) > 1e-6
        or not values[0]
    ):
        raise ValueError(
            f"split {tuple(fractions)} is not allowed; give fractions for train, validation and test that sum to 1, "
            "for instance 0.9, 0.05, 0.05"
        )
    return {name: value for name, value in zip(NAMES, values, strict=False) if value > 0}


def main_fractions(split: Sequence[float], given: Container[str]) -> dict[str, float]:
    """Return the fractions of the splits that come from the main texts, if the splits `given` have their own texts."""
    fractions = check_fractions(split)
    if "valid" in given:
        return {"train": 1.0}
    if "test" in given and "test" in fractions:
        fractions["train"] += fractions.pop("test")
    return fractions


def split_documents(
    documents: Documents, hashes: NDArray[np.uint64], fractions: dict[str, float]
) -> dict[str, Documents]:
    """Return the documents of each split, close to the fractions in bytes, always the same for the same texts.

    Whole documents are assigned in the order of the hashes of their texts, which is as good as random; equal texts stay
    together, so that no test document is also a training document. If the documents are too few or too uneven for that
    (one file, for instance), the text is cut by position, at line ends: first train, then valid, then test.
    """
    if len(fractions) == 1:
        return {next(iter(fractions)): documents}
    fractions = _affordable(documents.size, fractions)
    if len(fractions) == 1:
        return {next(iter(fractions)): documents}
    chosen = deal(documents.ends - documents.starts, hashes, list(fractions.values()))
    if chosen is not None:
        return {name: documents.part(chosen == i) for i, name in enumerate(fractions)}
    return _cut(documents, fractions)


def _affordable(size: int, fractions: dict[str, float]) -> dict[str, float]:
    """Return the fractions that leave enough text in each split; a short text has no test split, or none but train."""
    if size >= LEAST / min(fractions.values()):
        return fractions
    held_out = 1 - fractions["train"]
    fewer = {"train": fractions["train"], "valid": held_out} if size * held_out >= LEAST else {"train": 1.0}
    kept = "its last part is for validation, and none is left for a test" if len(fewer) > 1 else "nothing is held out"
    wanted = ", ".join(f"{name} {fraction:g}" for name, fraction in fractions.items())
    warnings.warn(
        f"the text has {size} bytes, too few to split into {wanted}: {kept} "
        "(more text, or --valid and --test texts, avoid it)",
        TextWarning,
        stacklevel=5,
    )
    return fewer


def deal(sizes: NDArray[np.int64], hashes: NDArray[np.uint64], fractions: list[float]) -> NDArray[np.intp] | None:
    """Return the split of each document; None if a split would be too far from its fraction."""
    unique, group = np.unique(hashes, return_inverse=True)
    totals = np.bincount(group, weights=sizes, minlength=len(unique))
    middles = (np.cumsum(totals) - totals / 2) / totals.sum()
    part: NDArray[np.intp] = np.searchsorted(np.cumsum(fractions)[:-1], middles)
    reached = np.bincount(part, weights=totals, minlength=len(fractions)) / totals.sum()
    if any(abs(reached - fractions) > FARTHEST * np.array(fractions)):
        return None
    return np.asarray(part[group])


def deal_few(hashes: NDArray[np.uint64], fractions: list[float]) -> NDArray[np.intp]:
    """Return the split of each of a few items: at least one different item for each split."""
    unique, group = np.unique(hashes, return_inverse=True)
    counts = [max(1, round(fraction * len(unique))) for fraction in fractions[1:]]
    bounds = np.cumsum([len(unique) - sum(counts), *counts])
    part: NDArray[np.intp] = np.searchsorted(bounds, np.arange(len(unique)), side="right")
    return np.asarray(part[group])


def deal_items(
    sizes: NDArray[np.int64], hashes: NDArray[np.uint64], fractions: Mapping[str, float]
) -> dict[str, list[int]] | None:
    """Return the numbers of the items of each split, equal items together; None if they are too few.

    The sizes of splits are close to their fractions, or, of a few items, each split has at least one.
    """
    part = deal(sizes, hashes, list(fractions.values()))
    if part is None and len(np.unique(hashes)) > len(fractions):
        part = deal_few(hashes, list(fractions.values()))
    if part is None:
        return None
    return {name: np.flatnonzero(part == number).tolist() for number, name in enumerate(fractions)}


def _cut(documents: Documents, fractions: dict[str, float]) -> dict[str, Documents]:
    last = int(documents.ends[-1])
    least = min(fractions.values()) * last
    cuts = [0]
    for target in np.cumsum(list(fractions.values()))[:-1]:
        cuts.append(_line_end(documents, int(target * last), within=int(FARTHEST * least)))
    cuts.append(last)
    return {name: documents.between(cuts[i], cuts[i + 1]) for i, name in enumerate(fractions)}


def _line_end(documents: Documents, target: int, *, within: int) -> int:
    """Return the position after the newline nearest to a byte position; else after a space or a character."""
    within = max(4, min(within, 1 << 20))
    low = max(0, target - within)
    with documents.path.open("rb") as file:
        file.seek(low)
        around = file.read(2 * within)
    for sign in (b"\n", b" "):
        before = around.rfind(sign, 0, target - low) + 1
        after = around.find(sign, target - low) + 1
        near = [position for position in (before, after) if 0 < position < len(around)]
        if near:
            return low + min(near, key=lambda position: abs(position - (target - low)))
    position = target - low
    while position < len(around) and around[position] & 0xC0 == 0x80:
        position += 1
    return low + position
