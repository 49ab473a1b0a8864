"""The labels of examples: their names in order, and whether a model can be trained on them."""

from __future__ import annotations

from collections.abc import Sequence

from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.labelled.tag_schemes import OUTSIDE, split_tag

FEWEST_ALL_DIFFERENT = 20
"""The number of examples from which on it is an error if each has a different class."""


def check_labels(labelled: Labelled) -> Labelled:
    """Return the examples; a ValueError if they cannot be trained on: none, one class, or a class only held out."""
    if not labelled.train:
        raise ValueError(f"there is no example to learn from{_left_out(labelled)}; give a file that has some")
    if labelled.task not in ("classification", "tagging"):
        return labelled
    known = find_labels(labelled.train, scheme=labelled.scheme)
    what = "class" if labelled.task == "classification" else "tag"
    if len(there := find_labels(labelled.train)) < 2:
        first = labelled.train[0]
        raise ValueError(
            f"{first.source} has one {what} only, {there[0]!r}, in all {len(labelled.train):,} "
            f"examples{_left_out(labelled)}: there is nothing to distinguish; give a file with two or more, or name "
            f"another column with --columns label=…"
        )
    if labelled.task == "classification" and len(known) == len(labelled.train) >= FEWEST_ALL_DIFFERENT:
        raise ValueError(
            f"{labelled.train[0].source}: each of its {len(known):,} examples has a different class, as {known[0]!r}: "
            f"there is nothing to learn; name the right column with --columns label=…"
        )
    for split, examples in (("valid", labelled.valid), ("test", labelled.test)):
        check_known(examples or (), known, split=split)
    return labelled


def check_known(examples: Sequence[Example], known: Sequence[str], *, split: str) -> None:
    """Raise a ValueError that names the first held-out example with a class or a tag that training does not have."""
    names = set(known)
    for example in examples:
        strange = [name for name in _names(example) if name not in names]
        if strange:
            what = "tag" if isinstance(example.label, tuple) else "class"
            raise ValueError(
                f"{example.where}: the {what} {strange[0]!r} of {split} is not known from training (known: "
                f"{', '.join(known[:10])}{', …' * (len(known) > 10)}); leave it out, or train with some like it"
            )


def find_labels(examples: Sequence[Example], *, scheme: str | None = None) -> tuple[str, ...]:
    """Return the classes or tags of examples: numbers by size, names by alphabet, O before all other tags.

    If tags mark spans, each kind of span has its `B-` and its `I-`, though one of them may not occur: CoNLL-2000 has
    lists of one word in the training text, and of two in the test.
    """
    names = {name for example in examples for name in _names(example)}
    if scheme is not None:
        kinds = {split_tag(name)[1] for name in names - {OUTSIDE}}
        names |= {f"{letter}-{kind}" if kind else letter for kind in kinds for letter in "BI"}
    if all(name.lstrip("-").isdigit() for name in names):
        return tuple(sorted(names, key=int))
    return tuple(sorted(names, key=lambda name: (name != "O", name)))


def _left_out(labelled: Labelled) -> str:
    why = ", ".join(f"{count:,} with {reason}" for reason, count in labelled.skipped.items())
    return f" (left out: {why})" if why else ""


def _names(example: Example) -> tuple[str, ...]:
    return example.label if isinstance(example.label, tuple) else (example.label,)
