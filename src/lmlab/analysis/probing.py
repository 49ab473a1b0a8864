"""Probing: what can be read off a layer's vectors by a small classifier (Alain & Bengio 2017, Tenney et al. 2019).

A probe that is right may only have learnt the task itself. So each is compared with a control task, in which every type
of word has a random label that can only be learnt by heart: selectivity is the accuracy minus that (Hewitt & Liang
2019); and with the same model with random weights, whose vectors depend on the words but were not trained.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.analysis.layer_vectors import layer_widths, read_sentences
from lmlab.analysis.probing_sets import ProbedSentence
from lmlab.analysis.view import Viewed
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.statistics import estimate, shared_groups
from lmlab.models.model import ReadsLetters
from lmlab.pages.figures import Figure, Lines
from lmlab.pages.views import Table
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers.spellings import Spellings

ProbeKind = Literal["linear", "mlp"]
KINDS: tuple[ProbeKind, ...] = get_args(ProbeKind)
HIDDEN = 64
EPOCHS, BATCH = 12, 128
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Fractions of the data after which the code is learnt again (Voita & Titov 2020, section 3.2)."""


class LabelledVectors(NamedTuple):
    """Vectors [N, D] and the numbers of their classes [N]."""

    vectors: Tensor
    labels: Tensor


class Fitted(NamedTuple):
    """A probe with the mean and the standard deviation by which vectors are scaled for it."""

    network: nn.Module
    mean: Tensor
    std: Tensor

    @torch.no_grad()
    def log_probabilities(self, vectors: Tensor) -> Tensor:
        """[N, D] -> [N, K]."""
        scores: Tensor = self.network((vectors - self.mean) / self.std)
        return scores.log_softmax(-1)


def fit(
    examples: LabelledVectors, *, classes: int, kind: ProbeKind = "linear", decay: float = 1e-3, seed: int = 0
) -> Fitted:
    """A linear probe at its optimum (it is convex), or one with a hidden layer of 64 ReLUs, of the given examples."""
    x, y = examples
    mean, std = x.mean(0), x.std(0, unbiased=False).clamp_min(1e-4)
    x = (x - mean) / std
    generator = torch.Generator().manual_seed(seed)  # its own: several threads may fit at once
    network: nn.Module
    with torch.enable_grad():
        if kind == "mlp":
            parts = _linear(x.shape[1], HIDDEN, generator), nn.ReLU(), _linear(HIDDEN, classes, generator)
            network = nn.Sequential(*parts)
            _descend(network, x, y, decay=decay, generator=generator)
        else:
            network = _linear(x.shape[1], classes)
            _minimise(network, x, y, decay=decay)
    return Fitted(network.eval(), mean, std)


def _linear(width: int, outputs: int, generator: torch.Generator | None = None) -> nn.Linear:
    """A linear layer of zeros, or with the weights that torch would draw."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, width, outputs)  # type: ignore[no-untyped-call]
    for parameter in (layer.weight, layer.bias):
        if generator is None:
            nn.init.zeros_(parameter)
        else:
            nn.init.uniform_(parameter, -1 / math.sqrt(width), 1 / math.sqrt(width), generator=generator)
    return layer


def _minimise(network: nn.Module, x: Tensor, y: Tensor, *, decay: float) -> None:
    weights = list(network.parameters())
    optimizer = torch.optim.LBFGS(weights, max_iter=60, history_size=12, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = F.cross_entropy(network(x), y) + decay * sum((w * w).sum() for w in weights if w.dim() > 1)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]


def _descend(network: nn.Module, x: Tensor, y: Tensor, *, decay: float, generator: torch.Generator) -> None:
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=decay)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(x), generator=generator), BATCH):
            optimizer.zero_grad()
            F.cross_entropy(network(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def predict_right(fitted: Fitted, examples: LabelledVectors) -> Tensor:
    """Which examples the probe predicts right: [N]."""
    return fitted.log_probabilities(examples.vectors).argmax(-1) == examples.labels


def description_length(examples: LabelledVectors, *, classes: int, kind: ProbeKind = "linear", seed: int = 0) -> float:
    """Bits in which the labels can be sent to somebody who has the vectors: online code (Voita & Titov 2020, eq. 3).

    The first portion is sent by the uniform code, each later one by a probe fitted to all before it.
    """
    order = torch.randperm(len(examples.labels), generator=torch.Generator().manual_seed(seed))
    x, y = examples.vectors[order], examples.labels[order]
    sizes = {max(classes, round(portion * len(y))) for portion in PORTIONS}
    ends = sorted({size for size in sizes if size < len(y)} | {len(y)})
    bits = ends[0] * math.log2(classes)
    for first, last in pairwise(ends):
        fitted = fit(LabelledVectors(x[:first], y[:first]), classes=classes, kind=kind, seed=seed)
        chosen = fitted.log_probabilities(x[first:last]).gather(1, y[first:last, None])
        bits -= float(chosen.double().sum()) / math.log(2)
    return bits


_SEEDING = threading.Lock()


class LayerProbe(NamedTuple):
    """What a probe of one layer comes to; fractions of right answers."""

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
    pixels: float | None = None
    """Of pictures: the accuracy of a probe of the pixels."""
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
            f"the most frequent class alone gives {self.majority:.1%}"
            + ("." if self.pixels is None else f", the pixels {self.pixels:.1%}.")
        )

    def notes(self) -> list[str]:
        notes = [
            f"{self.kind} probes of {len(self.classes)} classes, {self.examples[0]:,} examples to learn from and "
            f"{self.examples[1]:,} for testing; layer 0 are the embeddings",
            "control: each type of word has a random label (Hewitt & Liang 2019); random: a twin with random weights"
            if self.pixels is None
            else "of each layer the mean over the patches; random: the same model with random weights",
        ]
        if self.left_out:
            notes.append(f"{self.left_out:,} words are beyond the model's window or of classes never learnt: left out")
        return notes

    def table(self) -> Table:
        names = [name for name in LayerProbe._fields if any(getattr(each, name) is not None for each in self.layers)]
        rows = [tuple(getattr(each, name) for name in names) for each in self.layers]
        formats = {"layer": "d", "bits": ",.0f", "compression": ".2f", "selectivity": "+.1%"}
        return Table(tuple(names), rows, tuple(formats.get(name, ".1%") for name in names))

    def figures(self) -> list[Figure]:
        lines = []
        for name, label in (("accuracy", self.name), ("control", "control task"), ("random", "random weights")):
            values = [getattr(each, name) for each in self.layers]
            if all(value is not None for value in values):
                lines.append((label, values))
        lines.append(("most frequent class", [self.majority] * len(self.layers)))
        if self.pixels is not None:
            lines.append(("pixels", [self.pixels] * len(self.layers)))
        return [Lines("Right answers by layer", [str(each.layer) for each in self.layers], lines, unit=".0%")]


def probe(
    model: Any,
    train: Sequence[ProbedSentence],
    test: Sequence[ProbedSentence],
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

    `length` adds the minimum description length, which measures how easily they can be extracted and not only
    whether they can be.
    """
    how = find_kind(kind)
    read, judged = _read(model, train), _read(model, test)
    untaught = make_twin(model, seed) if twin else None
    random = [] if untaught is None else [_read(untaught, part) for part in (train, test)]
    return compare_layers(
        read, judged, random, name=name, kind=how, control=control, length=length, seed=seed, progress=progress
    )


def find_kind(kind: str) -> ProbeKind:
    """The kind of a probe by its name; a ValueError says what is allowed."""
    found = next((each for each in KINDS if each == kind), None)
    if found is None:
        raise ValueError(f"probe {kind!r} is not known; allowed: {', '.join(KINDS)}")
    return found


def compare_layers(
    read: ProbeFeatures,
    judged: ProbeFeatures,
    random: Sequence[ProbeFeatures],
    *,
    name: str,
    kind: ProbeKind,
    control: bool,
    length: bool,
    seed: int,
    pixels: Sequence[ProbeFeatures] = (),
    progress: ReportProgress | None = None,
) -> Probes:
    """Fit a probe of each layer to `read` and score it on `judged`; `random` are those of the twin, `pixels` of both.

    With `control`, answers with a type of word get a control task.
    """
    classes = sorted({answer.label for answer in read.answers})
    if len(classes) < 2:
        raise ValueError(
            f"{len(read.answers)} answers of {len(classes)} classes to learn: at least two classes are needed"
        )
    number = {label: position for position, label in enumerate(classes)}
    kept = [i for i, answer in enumerate(judged.answers) if answer.label in number]
    if not kept:
        raise ValueError(
            f"none of the {len(judged.answers)} test labels is among the training classes "
            f"({', '.join(classes[:5])}{', …' if len(classes) > 5 else ''}): give both parts the same kind of labels"
        )
    left_out = read.left_out + judged.left_out + len(judged.answers) - len(kept)
    judged = judged._replace(answers=[judged.answers[i] for i in kept], layers=[each[kept] for each in judged.layers])
    truth = [torch.tensor([number[answer.label] for answer in part.answers]) for part in (read, judged)]
    guesses = [_control(read, judged, truth[0], seed)] if control and read.answers[0].type is not None else []
    sentences = shared_groups([answer.sentence for answer in judged.answers])

    def evaluate(x: Tensor, z: Tensor, known: Tensor = truth[0], asked: Tensor = truth[1]) -> Tensor:
        return _judge(x, known, z, asked, classes=len(classes), kind=kind, seed=seed)

    found = []
    for layer, (x, z) in enumerate(zip(read.layers, judged.layers, strict=True)):
        right = evaluate(x, z)
        learnt = estimate(Accuracy(), right.tolist(), [True] * len(z), groups=sentences)
        by_heart = [_accuracy(evaluate(x, z, *guess)) for guess in guesses]
        untrained = _accuracy(evaluate(random[0].layers[layer], random[1].layers[layer][kept])) if random else None
        bits = compression = None
        if length:
            bits = description_length(LabelledVectors(x, truth[0]), classes=len(classes), kind=kind, seed=seed)
            compression = len(x) * float(np.log2(len(classes))) / bits
        guess = by_heart[0] if by_heart else None
        selective = None if guess is None else learnt.value - guess
        found.append(LayerProbe(layer, *learnt, guess, selective, untrained, bits, compression))
        if progress is not None:
            progress(layer + 1, len(read.layers))
    common = int(torch.bincount(truth[0]).argmax())
    majority = float((truth[1] == common).double().mean())
    raw = _accuracy(evaluate(pixels[0].layers[0], pixels[1].layers[0][kept])) if pixels else None
    return Probes(name, kind, found, majority, classes, (len(truth[0]), len(truth[1])), left_out, raw)


class ProbeTarget(NamedTuple):
    """A label, and the type of word (or pair) that it belongs to; None for a label of the whole sentence."""

    label: str
    type: str | None
    sentence: int  # its number: answers of one sentence are not independent


class ProbeFeatures(NamedTuple):
    """For every layer the vectors [N, D] of the questions, with their answers."""

    layers: list[Tensor]
    answers: list[ProbeTarget]
    left_out: int


def _read(model: Any, items: Sequence[ProbedSentence]) -> ProbeFeatures:
    """Vectors of words are the means over their pieces; of a pair a, b it is [a; b; a∘b]; of a sentence the mean."""
    widths = layer_widths(model)
    found: list[list[Tensor]] = [[] for _ in widths]
    answers: list[ProbeTarget] = []
    left_out = 0
    sentences = read_sentences(model, [item.words for item in items])
    for number, (item, sentence) in enumerate(zip(items, sentences, strict=True)):
        for question in item.questions:
            read = [sentence.of(position) for position in question.positions or [None]]
            chosen = [each for each in read if each is not None]
            if len(chosen) < len(read):
                left_out += 1
                continue
            for layer, each in enumerate(zip(*(torch.split(mean, widths) for mean in chosen), strict=True)):
                joined = each[0] if len(each) == 1 else torch.cat([*each, each[0] * each[1]])
                found[layer].append(joined)
            kind = " ".join(item.words[position].lower() for position in question.positions[:1]) or None
            answers.append(ProbeTarget(question.label, kind, number))
    if not answers:
        raise ValueError("no question is left to ask: the set is empty, or lies beyond the model's window")
    return ProbeFeatures([torch.stack(each) for each in found], answers, left_out)


def _control(read: ProbeFeatures, judged: ProbeFeatures, truth: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """A label for each type of word, drawn as often as the true ones are; the same in both parts."""
    generator = np.random.default_rng(seed)
    labels: dict[str | None, int] = {}
    for answer in (*read.answers, *judged.answers):
        if answer.type not in labels:
            labels[answer.type] = int(truth[generator.integers(len(truth))])
    first, second = (torch.tensor([labels[answer.type] for answer in part.answers]) for part in (read, judged))
    return first, second


def make_twin(model: Any, seed: int) -> Any:
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


def _judge(x: Tensor, y: Tensor, z: Tensor, truth: Tensor, *, classes: int, kind: ProbeKind, seed: int) -> Tensor:
    """Which of the vectors z a probe of the vectors x predicts right."""
    check_cancelled()
    return predict_right(fit(LabelledVectors(x, y), classes=classes, kind=kind, seed=seed), LabelledVectors(z, truth))


def _accuracy(right: Tensor) -> float:
    return float(right.double().mean())
