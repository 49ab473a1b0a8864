"""The job of a run that learns a task: a head is trained on labelled examples, mostly together with the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from lmlab.config import suggest
from lmlab.costs.parameters import Parameters
from lmlab.data.corpora.corpus import Corpus
from lmlab.data.corpora.examples import ExampleSplit
from lmlab.objectives import complete_settings
from lmlab.progress import ReportProgress
from lmlab.runs.jobs import Callbacks, Training
from lmlab.runs.model_files import load_heads, load_weights, read_heads
from lmlab.runs.recipe import Recipe
from lmlab.runs.storage import HEADS, MODEL, TASK, read_folder, read_json, read_tensors
from lmlab.tasks.frozen_vectors import hash_weights, vectors_flops, with_vectors
from lmlab.tasks.heads import Classifier
from lmlab.tasks.predicting import TaskValidator
from lmlab.tasks.records import Item
from lmlab.tasks.task import Task
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.word_vectors import read_word_vectors
from lmlab.training.devices import own_randomness
from lmlab.training.energy_meter import Cost, EnergyMeter
from lmlab.training.micro_batches import rows_of_loader
from lmlab.training.progress import TrainingProgress
from lmlab.training.trainer import plan_steps
from lmlab.training.weight_average import check_average


class InterruptedReadingError(Exception):
    """Training was interrupted while a frozen model read the examples."""


class FineTuning(Training):
    """Trains a head, and the model under it unless it is frozen."""

    def _prepare_weights(self, recipe: Recipe, origin: str | None) -> None:
        if not self.task.config.trains_model:
            self.learner.model.requires_grad_(False)
        if (vectors := recipe.objective.get("vectors")) is not None and Path(vectors).is_file():
            start_from_word_vectors(self.learner.model, self.corpus.text_tokenizer, vectors)
        if origin is not None and not keep_heads(self.learner.heads, recipe.objective, self.corpus, Path(origin)):
            start_from_pooler(self.learner.model, self.learner.heads)

    @property
    def task(self) -> Task:
        return cast(Task, self.learner.objective)

    def _open_data(self, recipe: Recipe, window: int) -> None:
        """Create the loader of the training examples, and the evaluation on those of validation."""
        task, parts = self.task, (self.corpus.train, self.corpus.valid)
        self.items = [task.items(cast(ExampleSplit, part).examples) if part is not None else [] for part in parts]
        self._use(self.items)
        names = ["loss", *task.metrics]
        if self.settings.watch not in names:
            raise ValueError(f"train.watch = {self.settings.watch!r}{suggest(self.settings.watch, names)}")
        if self.settings.watch != "loss" and not self.items[1]:
            raise ValueError(f"train.watch = {self.settings.watch!r} needs validation examples; hold some out")
        check_average(self.settings, validated=bool(self.items[1]))
        frozen = not task.config.trains_model
        self.reading_flops = sum(
            vectors_flops(task, self.learner.model, each) for each in self.items if frozen and each
        )
        self._plan_steps()

    def _plan_steps(self) -> None:
        self.plan = plan_steps(self.learner, self.loader, self.settings, flops_before=self.reading_flops)

    def _use(self, items: Sequence[Sequence[Item]]) -> None:
        train, valid = items
        batch, seed = rows_of_loader(self.settings, continuous=False), self.settings.seed
        self.loader = self.task.make_loader(train, batch=batch, seed=seed)
        self.evaluate = None
        if valid:
            examples = cast(ExampleSplit, self.corpus.valid).examples
            self.evaluate = TaskValidator(self.learner, self.task, examples, valid)

    def run(self, path: Path, calls: Callbacks) -> tuple[TrainingProgress, Parameters]:
        meter = EnergyMeter(self.learner.device)
        compute = self._complete_items if self.task.config.trains_model else self._compute_vectors

        def read_examples() -> bool:
            """Whether it was finished; one process computes, and the others find it in the cache."""
            try:
                compute(path, calls)
            except InterruptedReadingError:
                return False
            return True

        with own_randomness(self.learner.device, seed=0):  # the same run, whether computed or found in the cache
            finished = all(self.world.gather(self.world.first(read_examples)))
        if not finished:
            last = read_folder(path / "last", lambda folder: read_json(folder / "progress.json"))
            return TrainingProgress.model_validate({**(last or {}), "ended": ""}), self.counted
        reading = meter.lap()

        def on_begin_with_cost(progress: TrainingProgress) -> None:
            """Add the cost of reading before the first step, so that all lines of metrics have it."""
            if self.reading_flops:
                progress.cost = Cost(*progress.cost).plus(reading)
            if not progress.step:
                progress.flops += self.reading_flops  # the same whether vectors were computed or found in the cache
            calls.on_begin(progress)

        return super().run(path, calls._replace(on_begin=on_begin_with_cost))

    def _complete_items(self, path: Path, calls: Callbacks) -> None:
        """Add to all items what the task computes once for each."""
        self.task.open(path)

        def complete(items: Sequence[Item], progress: ReportProgress) -> Sequence[Item]:
            return self.task.precompute(items, run=path, progress=progress)

        self.reading_flops = sum(self.task.precompute_flops(items) for items in self.items if items)
        self._compute(complete, calls)
        if self.reading_flops:
            self._plan_steps()

    def _compute_vectors(self, path: Path, calls: Callbacks) -> None:
        """Add to all items their vectors of the frozen model."""
        model, task = self.learner.model, self.task

        def restore(folder: Path) -> None:
            load_weights(model, read_tensors(folder / MODEL), source=folder / MODEL)

        read_folder(path / "last", restore)  # a resumed run has the model that was frozen when it began
        weights = hash_weights(model)

        def embed(items: Sequence[Item], progress: ReportProgress) -> Sequence[Item]:
            return with_vectors(task, model, items, weights=weights, progress=progress)

        self._compute(embed, calls)

    def _compute(self, compute: Callable[[Sequence[Item], ReportProgress], Sequence[Item]], calls: Callbacks) -> None:
        """Replace the items of both splits by what `compute` returns.

        An InterruptedReadingError if it is interrupted: unfinished items are computed again.
        """
        done, total = 0, sum(map(len, self.items))
        found: list[Sequence[Item]] = []
        for items in self.items:

            def report(count: int, _: int, before: int = done) -> None:
                if calls.interrupted():
                    raise InterruptedReadingError
                calls.reporter.stage("reading examples", before + count, total)

            found.append(compute(items, report) if items else items)
            done += len(items)
        if any(new is not old for new, old in zip(found, self.items, strict=True)):
            self._use(found)


@torch.no_grad()
def start_from_word_vectors(model: nn.Module, tokenizer: Tokenizer, path: str) -> int:
    """Initialise the embeddings of words by a file of word vectors; return how many words it has.

    A resumed run has its weights already, so the file may be gone.
    """
    vocabulary = tokenizer.engine.get_vocab()
    found = read_word_vectors(path, only=vocabulary)
    embedding = cast(nn.Embedding, model.embedding)
    numbers = torch.tensor([vocabulary[word] for word in found.words], dtype=torch.long)
    embedding.weight[numbers] = torch.from_numpy(found.vectors).to(embedding.weight)
    return len(numbers)


def keep_heads(heads: nn.ModuleDict, settings: Mapping[str, Any], corpus: Corpus, origin: Path) -> bool:
    """Begin with the heads of a run that has learnt the same task with the same classes; return whether it has."""
    if not (origin / TASK).is_file() or not (origin / HEADS).is_file():
        return False
    own, learnt = complete_settings(settings, corpus), read_json(origin / TASK)
    if any(own.get(name) != learnt.get(name) for name in ("kind", "labels")):
        return False
    shapes = {name: weight.shape for name, weight in heads.state_dict().items()}
    if shapes != {name: weight.shape for name, weight in read_heads(origin).items()}:
        return False
    load_heads(origin, heads)
    return True


@torch.no_grad()
def start_from_pooler(model: nn.Module, heads: nn.ModuleDict) -> None:
    """Initialise a classifier over [CLS] by the dense layer that BERT has learnt for it, its pooler."""
    head, pooler = heads["label"], getattr(model, "pooler", None)
    if not isinstance(head, Classifier) or not isinstance(head.dense, nn.Linear) or not isinstance(pooler, nn.Linear):
        return
    if head.dense.weight.shape == pooler.weight.shape:
        head.dense.weight.copy_(pooler.weight)
        head.dense.bias.copy_(pooler.bias)
