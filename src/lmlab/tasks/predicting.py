"""Predictions of fine-tuned models: of one run or the average of several, as objects and as JSON."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from lmlab.data.loaders.bucketing import in_batches
from lmlab.data.readers.examples import Answer, Example
from lmlab.data.readers.files import shorten
from lmlab.layers.layer_mix import Mix
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch, Loss
from lmlab.progress import ReportProgress
from lmlab.tasks.records import Item, Prediction
from lmlab.tasks.task import Task
from lmlab.tasks.text_task import TextTask
from lmlab.training.evaluation import Evaluation, evaluating
from lmlab.training.learner import Learner

BATCH_TOKENS = 4096
"""Tokens of a batch that is only predicted."""


class Predicts(Protocol):
    """What makes predictions for examples of a task: a model with its head, or several."""

    @property
    def task(self) -> Task: ...

    def predict(self, examples: Sequence[Example]) -> list[Prediction]: ...


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """A model with the head of its task."""

    task: Task
    model: Model
    heads: Mapping[str, nn.Module]
    batch_tokens: int = BATCH_TOKENS
    progress: ReportProgress | None = None

    @property
    def mix(self) -> Mix | None:
        """The mix of layers that was learnt: of the layers of the model, or of the states that a tagger reads."""
        found = dict(self.heads).get("mix", getattr(self.model, "mix", None))
        return found if isinstance(found, Mix) else None

    def predict(self, examples: Sequence[Example]) -> list[Prediction]:
        """What the task says of each example; labels are not looked at. A ValueError names one of another form.

        Of a text that is longer than the window only what fits is read; `left_out` says how much is not.
        """
        check_examples(self.task, examples)
        items = self.task.items([example._replace(label=None) for example in examples])
        left_out: Counter[int] = Counter()
        for item in items:
            left_out[item.number] += self.task.left_out(item)
        decoded: list[Any] = [None] * len(items)
        done = 0
        with torch.inference_mode():
            for numbers, chosen, batch in batches_by_length(self.task, items, tokens=self.batch_tokens):
                scores = self.task.scores(self.model, self.heads, batch.to(self.model.device))
                for number, result in zip(numbers, self.task.decode(self.heads, scores, chosen), strict=True):
                    decoded[number] = result
                done += len(numbers)
                if self.progress is not None:
                    self.progress(done, len(items))
        found = self.task.predictions(examples, items, decoded)
        return [
            each._replace(left_out=left_out[number]) if left_out[number] else each for number, each in enumerate(found)
        ]

    def classify(self, text: Any, second: Any = None) -> Any:
        """The prediction for a text, or for two; a list of them for lists of texts."""
        if not self.task.averages:
            raise ValueError(f"this run does {self.task.name}, not classification: use predict with examples")
        if not isinstance(text, (str, Sequence)):
            raise ValueError(f"text = {text!r}: give a str, or a list of them")
        several = not isinstance(text, str)
        texts: list[Any] = list(text) if several else [text]
        others = [None] * len(texts) if second is None else list(second) if several else [second]
        if len(others) != len(texts):
            raise ValueError(f"{len(texts)} texts and {len(others)} second ones: give as many of both")
        for each in (*texts, *(other for other in others if other is not None)):
            if not isinstance(each, str):
                raise ValueError(f"text = {each!r}: give a str, or a list of them")
        found = self.predict([Example(a, b) for a, b in zip(texts, others, strict=True)])
        if note := describe_left_out(self.task, found):
            warnings.warn(note, stacklevel=2)
        return found if several else found[0]

    def tag(self, words: str | Sequence[str]) -> Prediction:
        """The tags of the words of a sentence; of a str, punctuation is split off first, as `lmlab predict` does."""
        return self.predict([Example(self.task.to_input(words))])[0]

    def answer(self, question: str, context: str) -> Prediction:
        """The answer to a question, as a span of the context."""
        return self.predict([Example(question, context)])[0]

    def choose(self, question: str, choices: Sequence[str]) -> Prediction:
        """Which of several choices goes best with a question, by its number from 0."""
        if isinstance(choices, str) or len(choices) < 2:
            raise ValueError(f"choices = {choices!r}: give two or more")
        found = self.predict([Example(question, choices=tuple(choices))])
        if note := describe_left_out(self.task, found):
            warnings.warn(note, stacklevel=2)
        return found[0]

    def score_classes(self, texts: Sequence[str]) -> tuple[Tensor, Batch]:
        """The scores of the classes of a text, or of a pair [C], through which gradients flow, and what was read."""
        (item,) = self.task.items([self.task.make_example(texts)])
        batch = self.task.batch([item]).to(self.model.device)
        return self.task.scores(self.model, self.heads, batch)[0], batch


def batches_by_length(
    task: Task, items: Sequence[Item], *, tokens: int
) -> Iterator[tuple[Sequence[int], list[Item], Batch]]:
    """Yield batches of items of similar length: the numbers of the items, the items, and their batch."""
    for numbers in in_batches([task.length_of(item) for item in items], tokens=tokens):
        chosen = [items[number] for number in numbers]
        yield numbers, chosen, task.batch(chosen)


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """Several runs of one task, whose probabilities (or scores) are averaged.

    Howard & Ruder 2018, section 3.3: the average of a classifier that reads forwards and one that reads backwards.
    """

    predictors: Sequence[Predictor]
    progress: ReportProgress | None = None

    def __post_init__(self) -> None:
        first, *others = (predictor.task for predictor in self.predictors)
        if not first.averages:
            raise ValueError(f"these runs do {first.name}, whose predictions cannot be averaged: give one run")
        for other in others:
            if other.name != first.name or other.config.labels != first.config.labels:
                raise ValueError(
                    f"runs of different tasks cannot be averaged: {_name_labels(first)}, and {_name_labels(other)}"
                )

    @property
    def task(self) -> Task:
        """The task of the first run; all have the same labels."""
        return self.predictors[0].task

    def predict(self, examples: Sequence[Example]) -> list[Prediction]:
        """The average of all predictions for each example."""
        found = [replace(each, progress=self.progress).predict(examples) for each in self.predictors]
        return [average(each) for each in zip(*found, strict=True)]


def average(predictions: Sequence[Prediction]) -> Prediction:
    """The mean of several predictions for one example: of the probabilities of classes, or of scores."""
    first, left_out = predictions[0], max(each.left_out or 0 for each in predictions) or None
    if not first.scores:
        return Prediction(fmean(float(each.value) for each in predictions), left_out=left_out)
    scores = {label: fmean(each.scores[label] for each in predictions) for label in first.scores}
    best = max(scores, key=lambda label: scores[label])
    return Prediction(best, scores[best], scores, left_out=left_out)


def _name_labels(task: Task) -> str:
    labels = f" of {', '.join(task.config.labels)}" if task.config.labels else ""
    return f"{task.name}{labels}"


def check_examples(task: Task, examples: Iterable[Example]) -> None:
    """A ValueError where an example does not have the form that a task reads."""
    for example in examples:
        if fault := task.find_fault(example):
            text = example.a if isinstance(example.a, str) else " ".join(map(str, example.a))
            raise ValueError(f"{example.where or shorten(text)}: {fault}")


def describe_left_out(task: Task, predictions: Sequence[Prediction]) -> str | None:
    """A warning about texts that were not read to their end; None where all were."""
    cut = [each.left_out for each in predictions if each.left_out]
    if not cut or not isinstance(task, TextTask):
        return None
    window = f"the {task.frame.window:,} tokens that this run reads"
    if len(predictions) == 1:
        return f"the text was truncated: it is longer than {window}, and {cut[0]:,} tokens were not read"
    return (
        f"{len(cut):,} of {len(predictions):,} texts were truncated: they are longer than {window}, and "
        f"{sum(cut):,} tokens were not read"
    )


def as_dict(example: Example, prediction: Prediction) -> dict[str, Any]:
    """An example and its prediction by name, for JSON."""
    found: dict[str, Any] = {"text": example.a} if example.media is None else {"picture": example.source}
    if example.media is not None and example.a:
        found["text"] = example.a
    if example.b is not None:
        found["second"] = example.b
    if example.choices:
        found["choices"] = example.choices
    found |= {"predicted": prediction.value, "probability": prediction.probability}
    if prediction.scores:
        found["scores"] = dict(prediction.scores)
    if prediction.span is not None:
        found["span"] = prediction.span
    if prediction.left_out is not None:
        found["left_out"] = prediction.left_out
    return found


def to_json(example: Example, prediction: Prediction) -> str:
    """A prediction as a line of JSON."""
    return json.dumps(as_dict(example, prediction), ensure_ascii=False)


def to_json_with_truth(example: Example, prediction: Prediction) -> str:
    """A prediction as a line of JSON, with the true label; null where it is not known."""
    return json.dumps({**as_dict(example, prediction), "true": truth_of(example)}, ensure_ascii=False)


def truth_of(example: Example) -> Any:
    """The true label as metrics compare it: of answers their texts; None without a label."""
    label = example.label
    if isinstance(label, tuple) and all(isinstance(each, Answer) for each in label):
        return [each.text for each in label]
    return label


class TaskValidator:
    """Evaluates a learner on all held-out examples each time: the loss, and the metrics of the task."""

    def __init__(self, learner: Learner, task: Task, examples: Sequence[Example], items: Sequence[Item]) -> None:
        self.learner, self.task, self.examples, self.items = learner, task, examples, items

    def __call__(
        self, batches: Mapping[str, int] = MappingProxyType({}), *, seconds: float | None = None
    ) -> Evaluation:
        heads = dict(self.learner.heads.items())
        decoded: list[Any] = [None] * len(self.items)
        total, count = 0.0, 0
        with evaluating(self.learner):
            for numbers, chosen, batch in batches_by_length(self.task, self.items, tokens=BATCH_TOKENS):
                loss: Loss = self.learner(batch.to(self.learner.device))
                assert loss.scores is not None
                total += float(loss.sums["label"])
                count += batch.counts["label"]
                for number, result in zip(numbers, self.task.decode(heads, loss.scores, chosen), strict=True):
                    decoded[number] = result
        predictions = self.task.predictions(self.examples, self.items, decoded)
        values = compute_metrics(self.task, predictions, self.examples)
        better = {name: each.better for name, each in self.task.metrics.items()}
        return Evaluation(total / max(1, count), values, better, {"": 1})


def compute_metrics(task: Task, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
    """The metrics of a task, by name, the main one first."""
    predicted, true = answers(predictions, examples)
    return {name: metric.score(predicted, true) for name, metric in task.metrics.items()}


def answers(predictions: Sequence[Prediction], examples: Sequence[Example]) -> tuple[list[Any], list[Any]]:
    """What was predicted and what is true, as metrics compare them; examples without a label are left out."""
    known = [(prediction, example) for prediction, example in zip(predictions, examples, strict=True)]
    known = [pair for pair in known if pair[1].label is not None]
    return [prediction.value for prediction, _ in known], [truth_of(example) for _, example in known]
