"""Splits labelled examples into train, valid and test."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

from lmlab.data.corpora.splitting import check_fractions
from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.media import digest_media

FRACTIONS = (0.8, 0.1, 0.1)
FEWEST = 3
"""The least number of different texts that can be split."""
SELECTED = 0.1
"""The fraction of the training examples that chooses the checkpoint, if valid is only scored."""
FEWEST_TO_SELECT = 100
"""The least number of different training texts from which some are held out to choose a checkpoint."""


class ExampleSplits(NamedTuple):
    """Examples by split, each in the order of the file."""

    train: list[Example]
    valid: list[Example]
    test: list[Example]


def name_text(example: Example) -> str:
    """Return what identifies an example: its texts and media, without the label; white space is normalized."""
    texts = example.a if isinstance(example.a, tuple) else (example.a,)
    parts = [*texts, "\x1f", example.b or "", "\x1f", *example.choices]
    if example.media is not None:
        parts.append(digest_media(example.media))
    return " ".join(" ".join(parts).split())


def name_group(example: Example) -> str:
    """Return what must stay in one split: the text; for a question about a context, the context."""
    if isinstance(example.label, tuple) and example.b is not None:
        return " ".join(example.b.split())
    return name_text(example)


def split_examples(
    examples: Sequence[Example],
    *,
    fractions: Sequence[float] = FRACTIONS,
    seed: int = 0,
    stratify: bool = True,
) -> ExampleSplits:
    """Split examples into train, valid and test, always in the same way for the same texts and seed.

    Examples with the same text stay together, and so do questions about the same context, so that no test text is
    trained on. With `stratify` every class is split separately, so that each split has its fraction of each class; a
    class with too few examples for that is in train only. The order of the file does not matter.
    """
    wanted = check_fractions(fractions)
    sizes = [wanted.get(name, 0.0) for name in ExampleSplits._fields]
    groups: dict[str, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        groups[name_group(example)].append(index)
    if len(groups) < max(FEWEST if len(wanted) > 1 else 1, len(wanted)):
        few = f"{len(groups)} different texts are" if len(groups) > 1 else "one text is"
        if len(examples) == 1 and isinstance(words := examples[0].a, tuple):
            few = f"{examples[0].source} is one sentence of {len(words):,} words (an empty line ends a sentence):"
        raise ValueError(f"{few} too few to split; give more, or examples to hold out (--valid, --test)")
    order = sorted(groups, key=lambda name: _hash(name, seed))
    classes = stratify and all(isinstance(example.label, str) for example in examples)
    strata: dict[str, list[str]] = defaultdict(list)
    for name in order:
        strata[_commonest(examples, groups[name]) if classes else ""].append(name)
    part: dict[str, int] = {}
    for label in sorted(strata):
        jitter = int.from_bytes(_hash(f"\x1f{label}", seed)[:4], "big") / 2**32 if classes else 0.5
        part |= _deal(strata[label], groups, sizes, jitter)
    if classes:
        _keep_classes(examples, groups, part)
    _fill_parts(examples, groups, order, sizes, part)
    chosen: list[list[int]] = [[], [], []]
    for name, indices in groups.items():
        chosen[part[name]] += indices
    return ExampleSplits(*([examples[index] for index in sorted(indices)] for indices in chosen))


def complete_splits(
    labelled: Labelled, *, fractions: Sequence[float] = FRACTIONS, seed: int = 0, stratify: bool = True
) -> Labelled:
    """Return the examples with a valid and, if nothing was held out, a test taken from train.

    If there is a valid already, no test is taken: its examples are better trained on (see `hold_out_selection`). If
    there is only a test, valid is taken from train.
    """
    if labelled.valid is not None:
        return labelled
    given = check_fractions(fractions)
    if labelled.test is not None:
        held_out = given.get("valid", 0.0) / (1 - given.get("test", 0.0))
        split = split_examples(labelled.train, fractions=(1 - held_out, held_out), seed=seed, stratify=stratify)
        return replace(labelled, train=split.train, valid=split.valid)
    split = split_examples(labelled.train, fractions=fractions, seed=seed, stratify=stratify)
    return replace(labelled, train=split.train, valid=split.valid or None, test=split.test or None)


def hold_out_selection(labelled: Labelled, *, fraction: float, seed: int = 0) -> Labelled:
    """Return the examples with a fraction of train that chooses the checkpoint, if there is a valid and no test.

    The score of the best checkpoint is too optimistic on the examples that chose it, so valid is only scored. If there
    are too few training texts, or the fraction is 0, nothing is held out and no checkpoint is chosen.
    """
    if labelled.test is not None or labelled.valid is None:
        return labelled
    texts = {name_group(example) for example in labelled.train}
    if not fraction or len(texts) < FEWEST_TO_SELECT:
        return replace(labelled, selection=())
    split = split_examples(labelled.train, fractions=(1 - fraction, fraction), seed=seed)
    return replace(labelled, train=split.train, selection=split.valid)


def _hash(name: str, seed: int) -> bytes:
    return blake2b(
        name.encode(errors="surrogatepass"), digest_size=8, salt=seed.to_bytes(16, "big", signed=True)
    ).digest()


def _commonest(examples: Sequence[Example], indices: Sequence[int]) -> str:
    if len(indices) == 1:
        return str(examples[indices[0]].label)
    counts = Counter(str(examples[index].label) for index in indices)
    return min(counts, key=lambda label: (-counts[label], label))


def _deal(names: Sequence[str], groups: dict[str, list[int]], sizes: Sequence[float], jitter: float) -> dict[str, int]:
    """Return the split of each group, by its position, from 0 to 1, among all of its class."""
    total = sum(len(groups[name]) for name in names)
    part: dict[str, int] = {}
    seen = 0
    for name in names:
        position = (seen + jitter * len(groups[name])) / total
        seen += len(groups[name])
        part[name] = 0 if position < sizes[0] else 1 if position < sizes[0] + sizes[1] or not sizes[2] else 2
    return part


def _keep_classes(examples: Sequence[Example], groups: dict[str, list[int]], part: dict[str, int]) -> None:
    """Move groups to train whose class would otherwise not be there."""
    trained = {examples[index].label for name, indices in groups.items() if not part[name] for index in indices}
    for name, indices in groups.items():
        labels = {examples[index].label for index in indices}
        if not labels <= trained:
            part[name] = 0
            trained |= labels


def _fill_parts(
    examples: Sequence[Example],
    groups: dict[str, list[int]],
    order: Sequence[str],
    sizes: Sequence[float],
    part: dict[str, int],
) -> None:
    """Move a group of train to a split that would be empty, if other groups of train have its class."""
    for wanted in (1, 2):
        if not sizes[wanted] or wanted in part.values():
            continue
        counts = Counter(str(examples[index].label) for name in order if not part[name] for index in groups[name])
        for name in order:
            own = Counter(str(examples[index].label) for index in groups[name])
            alone = isinstance(examples[groups[name][0]].label, str) and any(counts[one] <= own[one] for one in own)
            if not part[name] and not alone:
                part[name] = wanted
                break
