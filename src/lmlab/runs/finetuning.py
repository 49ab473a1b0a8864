"""The work of a run that learns a task: training over labelled examples, of a head and mostly the model under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from lmlab.runs.checkpoint import load_weights
from lmlab.config import suggest
from lmlab.costs.parameters import Parameters
from lmlab.data.loaders.examples import ExampleLoader
from lmlab.data.corpora.corpus import Corpus
from lmlab.data.corpora.examples import ExampleSplit
from lmlab.runs.jobs import Reporter, Training
from lmlab.models.model import Model
from lmlab.runs.recipe import Recipe
from lmlab.runs.storage import MODEL, read_folder, read_json, read_tensors
from lmlab.tasks.frozen_vectors import hash_weights, vectors_flops, with_vectors
from lmlab.tasks.heads import Classifier
from lmlab.tasks.predicting import TaskValidator
from lmlab.tasks.task import Item, Task
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.word_vectors import read_word_vectors
from lmlab.training.energy_meter import Cost, EnergyMeter
from lmlab.training.trainer import plan_steps
from lmlab.training.progress import TrainingProgress
from lmlab.training.devices import own_randomness
from lmlab.training.weight_average import check_average


class InterruptedReadingError(Exception):
    """Somebody has asked to stop while a frozen model reads the examples."""


class FineTuning(Training):
    """Trains a head, and the model under it unless it is frozen."""

    def __init__(
        self,
        cls: type[Model],
        recipe: Recipe,
        corpus: Corpus,
        config: Any,
        *,
        frame: Frame | None,
        origin: str | None = None,
    ) -> None:
        scratch = recipe.objective["how"] == "scratch"
        super().__init__(cls, recipe, corpus, config, frame=frame, origin=None if scratch else origin)
        if not self.task.config.trains_model:
            self.learner.model.requires_grad_(False)
        if (vectors := recipe.objective.get("vectors")) is not None and Path(vectors).is_file():
            begin_with_word_vectors(self.learner.model, corpus.text_tokenizer, vectors)
        if origin is not None and not scratch:
            begin_with_pooler(self.learner.model, self.learner.heads)

    @property
    def task(self) -> Task:
        return cast(Task, self.learner.objective)

    def _open_data(self, recipe: Recipe, window: int) -> None:
        """The loader of the training examples, and what evaluates on those of validation."""
        task, parts = self.task, (self.corpus.train, self.corpus.valid)
        self.items = [task.items(cast(ExampleSplit, part).examples) if part is not None else [] for part in parts]
        self._use(self.items)
        names = ["loss", *task.metrics]
        if self.settings.watch not in names:
            raise ValueError(f"train.watch = {self.settings.watch!r}{suggest(self.settings.watch, names)}")
        if self.settings.watch != "loss" and not self.items[1]:
            raise ValueError(f"train.watch = {self.settings.watch!r} needs validation examples; hold some out")
        check_average(self.settings, validated=bool(self.items[1]))
        self.plan = plan_steps(self.learner, self.loader, self.settings)

    def _use(self, items: Sequence[Sequence[Item]]) -> None:
        train, valid = items
        batch, seed = self.settings.batch, self.settings.seed
        self.loader = ExampleLoader(
            train, batch=batch, window=self.task.config.window or 0, seed=seed, length=self.task.tokens_of
        )
        self.evaluate = None
        if valid:
            examples = cast(ExampleSplit, self.corpus.valid).examples
            self.evaluate = TaskValidator(self.learner, self.task, examples, valid)

    def carry_out(
        self, path: Path, reporter: Reporter, interrupted: Callable[[], bool], begin: Callable[[TrainingProgress], None]
    ) -> tuple[TrainingProgress, Parameters]:
        meter = EnergyMeter(self.learner.device)
        read = self._complete if self.task.config.trains_model else self._read_examples
        try:
            with own_randomness(self.learner.device, seed=0):  # the same run, read or found in the cache
                flops = read(path, reporter, interrupted)
        except InterruptedReadingError:
            return self._interrupted(path)
        reading = meter.lap()
        if self.task.config.trains_model and not flops:
            return super().carry_out(path, reporter, interrupted, begin)

        def pay(progress: TrainingProgress) -> None:
            """What was read is paid for before the first step, so that all that is written of the price agrees."""
            progress.cost = Cost(*progress.cost).plus(reading)
            progress.flops += flops
            begin(progress)

        return super().carry_out(path, reporter, interrupted, pay)

    def _interrupted(self, path: Path) -> tuple[TrainingProgress, Parameters]:
        """Where the run stood before what was to be read for it."""
        last = read_folder(path / "last", lambda folder: read_json(folder / "progress.json"))
        return TrainingProgress.model_validate({**(last or {}), "ended": ""}), self.counted

    def _complete(self, path: Path, reporter: Reporter, interrupted: Callable[[], bool]) -> float:
        """Give all items what the task computes of them once; the FLOPs of what was not in the cache."""
        self.task.open(path)
        done, total, found, flops = 0, sum(map(len, self.items)), [], 0.0
        for items in self.items:
            computed: list[int] = []

            def report(count: int, _: int, before: int = done, computed: list[int] = computed) -> None:
                computed.append(count)
                if interrupted():
                    raise InterruptedReadingError
                reporter.stage("reading examples", before + count, total)

            found.append(self.task.complete(items, run=path, progress=report) if items else items)
            flops += self.task.completion_flops(items) if computed else 0.0
            done += len(items)
        if any(new is not old for new, old in zip(found, self.items, strict=True)):
            self._use(found)
        return flops

    def _read_examples(self, path: Path, reporter: Reporter, interrupted: Callable[[], bool]) -> float:
        """Give all items the vectors that the frozen model has for them; the FLOPs of those that were not in the cache.

        An InterruptedReadingError where somebody has asked to stop: what was not read to its end is read again.
        """
        model, task = self.learner.model, self.task

        def restore(folder: Path) -> None:
            load_weights(model, read_tensors(folder / MODEL), source=folder / MODEL)

        read_folder(path / "last", restore)  # where it goes on, the model is the one that was frozen
        weights, done, total = hash_weights(model), 0, sum(map(len, self.items))
        found: list[list[Item]] = []
        flops = 0.0
        for items in self.items:
            computed: list[int] = []

            def report(count: int, _: int, before: int = done, computed: list[int] = computed) -> None:
                computed.append(count)
                if interrupted():
                    raise InterruptedReadingError
                reporter.stage("reading examples", before + count, total)

            found.append(with_vectors(task, model, items, weights=weights, progress=report) if items else [])
            flops += vectors_flops(task, model, items) if computed else 0.0
            done += len(items)
        self._use(found)
        return flops


@torch.no_grad()
def begin_with_word_vectors(model: nn.Module, tokenizer: Tokenizer, path: str) -> int:
    """Let the words that a file of word vectors knows begin with these; how many they are.

    A run that is resumed has its weights already, so it is no matter whether the file is still there.
    """
    vocabulary = tokenizer.engine.get_vocab()
    found = read_word_vectors(path, only=vocabulary)
    embedding = cast(nn.Embedding, model.embedding)
    numbers = torch.tensor([vocabulary[word] for word in found.words], dtype=torch.long)
    embedding.weight[numbers] = torch.from_numpy(found.vectors).to(embedding.weight)
    return len(numbers)


@torch.no_grad()
def begin_with_pooler(model: nn.Module, heads: nn.ModuleDict) -> None:
    """Let a classifier over [CLS] begin with the dense layer that BERT has learnt for it (its pooler)."""
    head, pooler = heads["label"], getattr(model, "pooler", None)
    if not isinstance(head, Classifier) or not isinstance(head.dense, nn.Linear) or not isinstance(pooler, nn.Linear):
        return
    if head.dense.weight.shape == pooler.weight.shape:
        head.dense.weight.copy_(pooler.weight)
        head.dense.bias.copy_(pooler.bias)
