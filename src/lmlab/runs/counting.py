"""The job of a run whose model is estimated by counting: an n-gram."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lmlab.costs.countries import find_grid
from lmlab.costs.parameters import Parameters, count_parameters
from lmlab.data.corpora.corpus import Corpus, TokenDataset
from lmlab.files import write_bytes
from lmlab.models.abilities import PredictsNext
from lmlab.runs.jobs import Callbacks
from lmlab.runs.model_files import load_model
from lmlab.runs.recipe import Recipe
from lmlab.runs.storage import (
    METRICS,
    MODEL,
    PROGRESS,
    DamagedError,
    read_json,
    replace_tensors,
    verify,
    write_json,
    write_manifest,
)
from lmlab.training.budget import parse_budget
from lmlab.training.energy_meter import Cost, EnergyMeter, total_cost
from lmlab.training.evaluation import Evaluation
from lmlab.training.progress import TrainingProgress
from lmlab.units import bits_per_byte, parse_bytes

CHUNK = 2**18
"""Tokens that are scored at a time."""


class InterruptedCountError(Exception):
    """Counting was interrupted."""


class Counting:
    """Estimates a model by counting the training text once.

    A budget in tokens limits the text; other budgets do not limit it. An interrupted count leaves nothing.
    """

    parameters = None

    def __init__(self, cls: Any, recipe: Recipe, corpus: Corpus, config: Any) -> None:
        self.cls, self.corpus, self.config, self.grid = cls, corpus, config, find_grid(recipe.train.country)
        budget = parse_budget(recipe.train.budget)
        tokens = corpus.train.as_tokens().tokens
        self.memory = recipe.train.memory
        self.tokens = tokens[: int(budget.amount)] if budget.unit == "tokens" else tokens
        self.valid = None if corpus.valid is None else corpus.valid.as_tokens()

    def run(self, path: Path, calls: Callbacks) -> tuple[TrainingProgress, Parameters]:
        if (done := self._find_finished(path)) is not None:
            return done, count_parameters(load_model(path)[0])
        calls.on_begin(TrainingProgress())

        def report(stage: str, fraction: float) -> None:
            if calls.interrupted():
                raise InterruptedCountError
            calls.reporter.stage("counting", round(100 * fraction), 100)

        meter = EnergyMeter()
        try:
            model = self._count(path, report)
        except InterruptedCountError:
            return TrainingProgress(), Parameters(0, 0)
        cost = meter.lap()
        progress, line = self._measure(model, cost, meter.method)
        parameters = count_parameters(model)
        total = total_cost(cost, parameters=parameters, flops=0.0, method=meter.method, grid=self.grid)
        lines = [line, {"step": 1, **progress.units, **total}]
        content = "".join(json.dumps(each) + "\n" for each in lines).encode()
        progress.metrics_bytes, progress.metrics_sha256 = len(content), hashlib.sha256(content).hexdigest()
        write_bytes(path / METRICS, content)
        write_json(path / PROGRESS, progress.model_dump())
        write_manifest(path)
        calls.reporter.log(line, progress)
        return progress, parameters

    def _count(self, path: Path, report: Callable[[str, float], None]) -> Any:
        """The model, estimated and saved: in memory, or on disk within a given amount of memory."""
        if self.memory is None:
            valid = None if self.valid is None else self.valid.tokens
            model = self.cls.fit(self.tokens, config=self.config, valid=valid, progress=report)
            replace_tensors(path / MODEL, model.tensors())
            return model
        folder = path / "counting"
        shutil.rmtree(folder, ignore_errors=True)  # of a count that was killed
        folder.mkdir()
        try:
            counted = self.cls.fit_on_disk(
                self.tokens, config=self.config, memory=parse_bytes(self.memory), folder=folder, progress=report
            )
            replace_tensors(path / MODEL, counted.tensors())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return load_model(path)[0]

    def _find_finished(self, path: Path) -> TrainingProgress | None:
        """The progress of a finished count of at least these tokens; None if there is none."""
        if not (path / PROGRESS).is_file() or not (path / MODEL).is_file():
            return None
        try:
            verify(path)
        except DamagedError as error:
            warnings.warn(f"{error}. Counting again", stacklevel=2)
            return None
        progress = TrainingProgress.model_validate(read_json(path / PROGRESS))
        return progress if len(self.tokens) <= progress.tokens else None

    def _measure(self, model: PredictsNext, cost: Cost, method: str) -> tuple[TrainingProgress, dict[str, Any]]:
        """The progress after counting, and its line of metrics with the validation score."""
        units, split = {"tokens": len(self.tokens)}, self.valid
        progress = TrainingProgress(step=1, units=units, seconds=cost.seconds, cost=cost, training_cost=cost)
        progress.energy_method, progress.ended, progress.fraction = method, "budget", 1.0
        line: dict[str, Any] = {"step": 1, **units, "valid_loss": None, "valid_bits_per_byte": None}
        if split is not None:
            found = score_split(model, split)
            progress.best, progress.valid, progress.best_metrics = found.loss, found.loss, found.values
            progress.best_bits = self._bits_per_byte(found)
            nats = found.values["nats"]
            line |= {"valid_loss": found.loss, "valid_bits_per_byte": progress.best_bits, "valid_nats": nats}
        spent = {**cost._asdict(), "training_joules": cost.joules, "grams": self.grid.grams(cost.joules)}
        return progress, {**line, "best": True, "cost": spent}

    def _bits_per_byte(self, found: Evaluation) -> float | None:
        """Bits per byte of the validation text; None for tokens that are not text."""
        if self.corpus.tokenizer is None or self.corpus.valid is None:
            return None
        text_alone = not self.corpus.tokenizer.newline_is_boundary
        nats = found.values["nats"] if text_alone else found.loss
        return bits_per_byte(nats, self.corpus.valid.as_text().bytes_per_token(text_alone=text_alone))


def score_split(model: PredictsNext, split: TokenDataset) -> Evaluation:
    """The evaluation of a split; of several languages the mean, as networks are evaluated."""
    if parts := split.parts():
        found = [score_stream(model, part.as_tokens()) for part in parts.values()]
        nats = sum(each.values["nats"] for each in found) / len(found)
        return Evaluation(sum(each.loss for each in found) / len(found), {"nats": nats})
    return score_stream(model, split)


def score_stream(model: PredictsNext, split: TokenDataset) -> Evaluation:
    """Nats per token of a split, and `nats` of the text alone, without the boundaries between documents."""
    text = np.ones(len(split.tokens), dtype=bool)
    text[np.asarray(split.documents)[1:] - 1] = False
    text[-1] = False
    state, parts = model.start(1), []
    for start in range(0, len(split.tokens) - 1, CHUNK):
        raw = torch.from_numpy(split.tokens[start : start + CHUNK + 1].astype("int64"))[None]
        nats, state = model.score(raw[:, :-1], raw[:, 1:], state)
        parts.append(nats[0].double())
    each = torch.cat(parts)
    return Evaluation(float(each.mean()), {"nats": float(each[torch.from_numpy(text[1:])].mean())})
