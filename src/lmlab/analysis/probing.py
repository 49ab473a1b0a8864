"""Probing: what can be read off a layer's vectors by a small classifier (Alain & Bengio 2017, Tenney et al. 2019).

A probe that is right may only have learnt the task itself. So each stands beside a control task, in which every type of
word has a random label that can only be learnt by heart: selectivity is the accuracy minus that (Hewitt & Liang 2019);
and beside a twin of the model with random weights, whose vectors know the words but have learnt nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmlab.analysis.probe import KINDS, Examples, ProbeKind, accuracy_counts, description_length, fit
from lmlab.analysis.probing_sets import Item
from lmlab.analysis.view import Viewed
from lmlab.analysis.word_vectors import layer_widths, read_sentences
from lmlab.metrics.statistics import wilson
from lmlab.models.model import ReadsLetters
from lmlab.pages.figures import Figure, Lines
from lmlab.pages.inspection import Table
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers.spellings import Spellings

_SEEDING = threading.Lock()


class LayerProbe(NamedTuple):
    """What a probe of one layer comes to; shares of right answers."""

    layer: int
    accuracy: float
    low: float | None
    high: float | None
    control: float | None
    selectivity: float | None
    random: float | None
    """The accuracy on the twin with random weights."""
    bits: float | None = None
    """The minimum description length of the training labels."""
    compression: float | None = None
    """The uniform code's length divided by it."""


@dataclass(frozen=True)
class Probes(Viewed):
    """Probes of every layer, the embeddings first."""

    name: str
    kind: str
    layers: list[LayerProbe]
    majority: float
    classes: list[str]
    examples: tuple[int, int]
    left_out: int = 0
    title: str = field(default="Probes", init=False)

    @property
    def best(self) -> LayerProbe:
        """The layer from which most can be read."""
        return max(self.layers, key=lambda each: each.accuracy)

    def lead(self) -> str:
        best = self.best
        chosen = f", selectivity {best.selectivity:+.1%}" if best.selectivity is not None else ""
        return (
            f"“{self.name}” is read best from layer {best.layer}: {best.accuracy:.1%} right{chosen}; "
            f"the most frequent class alone gives {self.majority:.1%}."
        )

    def notes(self) -> list[str]:
        told = [
            f"{self.kind} probes of {len(self.classes)} classes, {self.examples[0]:,} examples to learn from and "
            f"{self.examples[1]:,} to be judged by; layer 0 are the embeddings",
            "control: each type of word has a random label (Hewitt & Liang 2019); random: a twin with random weights",
        ]
        if self.left_out:
            told.append(f"{self.left_out:,} words are beyond the model's window or of classes never learnt: left out")
        return told

    def table(self) -> Table:
        names = [name for name in LayerProbe._fields if any(getattr(each, name) is not None for each in self.layers)]
        rows = [tuple(getattr(each, name) for name in names) for each in self.layers]
        formats = {"layer": "d", "bits": ",.0f", "compression": ".2f", "selectivity": "+.1%"}
        return Table(tuple(names), rows, tuple(formats.get(name, ".1%") for name in names))

    def figures(self) -> list[Figure]:
        lines = []
        for name, told in (("accuracy", self.name), ("control", "control task"), ("random", "random weights")):
            values = [getattr(each, name) for each in self.layers]
            if all(value is not None for value in values):
                lines.append((told, values))
        lines.append(("most frequent class", [self.majority] * len(self.layers)))
        return [Lines("Right answers by layer", [str(each.layer) for each in self.layers], lines, unit=".0%")]


def probe(
    model: Any,
    train: Sequence[Item],
    test: Sequence[Item],
    *,
    name: str = "",
    kind: str = "linear",
    control: bool = True,
    twin: bool = True,
    length: bool = False,
    seed: int = 0,
    progress: ReportProgress | None = None,
) -> Probes:
    """Probe every layer of a LanguageModel for the answers to questions about sentences.

    `length` asks for the minimum description length as well, which tells how easily they are read and not only
    whether they can be.
    """
    how = next((each for each in KINDS if each == kind), None)
    if how is None:
        raise ValueError(f"probe {kind!r} is not known; allowed: {', '.join(KINDS)}")
    read, judged = _read(model, train), _read(model, test)
    classes = sorted({answer.label for answer in read.answers})
    if len(classes) < 2:
        raise ValueError(
            f"{len(read.answers)} answers of {len(classes)} classes to learn: at least two classes are needed"
        )
    number = {label: place for place, label in enumerate(classes)}
    kept = [i for i, answer in enumerate(judged.answers) if answer.label in number]
    if not kept:
        raise ValueError(
            f"none of the {len(judged.answers)} answers to judge by is of the classes that are learnt "
            f"({', '.join(classes[:5])}{', …' if len(classes) > 5 else ''}): give both parts the same kind of labels"
        )
    left_out = read.left_out + judged.left_out + len(judged.answers) - len(kept)
    judged = judged._replace(answers=[judged.answers[i] for i in kept], layers=[each[kept] for each in judged.layers])
    truth = [torch.tensor([number[answer.label] for answer in part.answers]) for part in (read, judged)]
    guesses = [_control(read, judged, truth[0], seed)] if control and read.answers[0].type is not None else []
    untaught = _twin(model, seed) if twin else None
    random = [_read(untaught, part) for part in (train, test)] if twin else []
    found = []
    for layer, (x, z) in enumerate(zip(read.layers, judged.layers, strict=True)):
        right = _judge(x, truth[0], z, truth[1], classes=len(classes), kind=how, seed=seed)
        learnt = wilson(right, len(z))
        by_heart = [_judge(x, a, z, b, classes=len(classes), kind=how, seed=seed) / len(z) for a, b in guesses]
        untrained = None
        if random:
            pair = random[0].layers[layer], random[1].layers[layer][kept]
            untrained = _judge(pair[0], truth[0], pair[1], truth[1], classes=len(classes), kind=how, seed=seed) / len(z)
        bits = compression = None
        if length:
            bits = description_length(Examples(x, truth[0]), classes=len(classes), kind=how, seed=seed)
            compression = len(x) * float(np.log2(len(classes))) / bits
        guess = by_heart[0] if by_heart else None
        selective = None if guess is None else learnt.value - guess
        found.append(LayerProbe(layer, *learnt, guess, selective, untrained, bits, compression))
        if progress is not None:
            progress(layer + 1, len(read.layers))
    common = int(torch.bincount(truth[0]).argmax())
    majority = float((truth[1] == common).double().mean())
    return Probes(name, how, found, majority, classes, (len(truth[0]), len(truth[1])), left_out)


class Answer(NamedTuple):
    """A label, and the type of word (or pair) that it belongs to; None of a sentence."""

    label: str
    type: str | None


class Features(NamedTuple):
    """For every layer the vectors [N, D] of the questions, with their answers."""

    layers: list[Tensor]
    answers: list[Answer]
    left_out: int


def _read(model: Any, items: Sequence[Item]) -> Features:
    """Vectors of words are the means over their pieces; of a pair a, b it is [a; b; a∘b]; of a sentence the mean."""
    widths = layer_widths(model)
    found: list[list[Tensor]] = [[] for _ in widths]
    answers: list[Answer] = []
    left_out = 0
    for item, sentence in zip(items, read_sentences(model, [item.words for item in items]), strict=True):
        for question in item.questions:
            read = [sentence.of(place) for place in question.places or [None]]
            chosen = [each for each in read if each is not None]
            if len(chosen) < len(read):
                left_out += 1
                continue
            for layer, each in enumerate(zip(*(torch.split(mean, widths) for mean in chosen), strict=True)):
                joined = each[0] if len(each) == 1 else torch.cat([*each, each[0] * each[1]])
                found[layer].append(joined)
            kind = " ".join(item.words[place].lower() for place in question.places[:1]) or None
            answers.append(Answer(question.label, kind))
    if not answers:
        raise ValueError("no question is left to ask: the set is empty, or lies beyond the model's window")
    return Features([torch.stack(each) for each in found], answers, left_out)


def _control(read: Features, judged: Features, truth: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """A label for each type of word, drawn as often as the true ones are; the same in both parts."""
    generator = np.random.default_rng(seed)
    labels: dict[str | None, int] = {}
    for answer in (*read.answers, *judged.answers):
        if answer.type not in labels:
            labels[answer.type] = int(truth[generator.integers(len(truth))])
    first, second = (torch.tensor([labels[answer.type] for answer in part.answers]) for part in (read, judged))
    return first, second


def _twin(model: Any, seed: int) -> Any:
    """The same model with random weights, which knows the letters of the same words.

    Models draw from the one generator that all threads have, so only one of them is made at a time.
    """
    network = model.model
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(network)(network.config)
    if isinstance(fresh, ReadsLetters):
        fresh.spell_by(Spellings(model.text_tokenizer, letters=network.config.letters))
    return replace(model, model=fresh.to(network.device).eval(), own_predictor=None)


def _judge(x: Tensor, y: Tensor, z: Tensor, truth: Tensor, *, classes: int, kind: ProbeKind, seed: int) -> int:
    """How many of the vectors z a probe of the vectors x gets right."""
    check_cancelled()
    return accuracy_counts(fit(Examples(x, y), classes=classes, kind=kind, seed=seed), Examples(z, truth))
