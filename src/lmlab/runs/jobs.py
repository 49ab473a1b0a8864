"""The work of a run, once its data are prepared: counting for an n-gram, gradients for a network."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from lmlab.units import bits_per_byte
from lmlab.runs.checkpoint import copy_weights, load_model, teach_letters
from lmlab.config import suggest
from lmlab.costs.countries import find_grid
from lmlab.costs.parameters import Parameters, count_parameters
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.streams import vary
from lmlab.data.corpora.corpus import Corpus, Dataset, TextDataset
from lmlab.decoding.translator import Translator
from lmlab.metrics.bleu import Bleu
from lmlab.models.abilities import PredictsNext, WritesTarget, ability
from lmlab.models.model import Model
from lmlab.objectives import create_objective
from lmlab.runs.recipe import Recipe
from lmlab.runs.storage import DamagedError, read_json, replace_tensors, verify, write_bytes, write_json, write_manifest
from lmlab.tokenizers.frames import Frame
from lmlab.training.devices import keep_buffers
from lmlab.training.budget import parse_budget
from lmlab.training.energy_meter import EnergyMeter, total_cost
from lmlab.training.evaluation import Evaluate, Evaluation, Validator, evaluate_parts, term_name
from lmlab.training.learner import Learner
from lmlab.training.devices import choose_device
from lmlab.training.trainer import plan_steps, train
from lmlab.training.progress import TrainingProgress
from lmlab.training.checkpointer import Checkpointer
from lmlab.training.weight_average import check_average
from lmlab.units import main_unit

PROGRESS = "progress.json"
DEFAULT_WINDOW = 64
VALIDATION_ROWS = 16
BLEU_SENTENCES = 500
"""Validation sentences that are translated each time when BLEU is watched."""


class Reporter(Protocol):
    """Who is told how it goes: the terminal, or nobody."""

    def stage(self, name: str, done: int, total: int) -> None:
        """Preparation has come so far."""

    def begin(self, plan: Plan) -> None:
        """Everything is ready, training starts."""

    def log(self, line: dict[str, Any], progress: TrainingProgress) -> None:
        """A line of metrics."""


class Silent:
    """Tells nobody."""

    def stage(self, name: str, done: int, total: int) -> None: ...

    def begin(self, plan: Plan) -> None: ...

    def log(self, line: dict[str, Any], progress: TrainingProgress) -> None: ...


class Plan(NamedTuple):
    """A recipe with its data prepared and its model described."""

    recipe: Recipe
    path: Path
    corpus: Corpus
    parameters: int | None  # not known before counting


class Job(Protocol):
    """The work of a run: everything that can be wrong with its settings is found when it is made."""

    @property
    def parameters(self) -> int | None:
        """How many there will be, if that is known beforehand."""

    def carry_out(
        self, path: Path, reporter: Reporter, interrupted: Callable[[], bool], begin: Callable[[TrainingProgress], None]
    ) -> tuple[TrainingProgress, Parameters]:
        """Do it; give how far it came and the number of parameters.

        Nothing is written before `begin` has been told where the work goes on, and it is not told where all is done.
        """


class InterruptedCountError(Exception):
    """Somebody has asked to stop."""


class Counting:
    """Estimates a model by counting, in one pass; a budget in tokens limits the text, any other is not used up.

    Interrupted it gives nothing, as if it had never begun.
    """

    parameters = None

    def __init__(self, cls: Any, recipe: Recipe, corpus: Corpus, config: Any) -> None:
        self.cls, self.corpus, self.config, self.grid = cls, corpus, config, find_grid(recipe.train.country)
        budget = parse_budget(recipe.train.budget)
        tokens = corpus.train.as_text().tokens
        self.tokens = tokens[: int(budget.amount)] if budget.unit == "tokens" else tokens

    def _done(self, path: Path) -> TrainingProgress | None:
        """How a count of all these tokens ended, where one did and its model is there."""
        if not (path / PROGRESS).is_file() or not (path / "model.safetensors").is_file():
            return None
        try:
            verify(path)
        except DamagedError as error:
            warnings.warn(f"{error}. Counting again", stacklevel=2)
            return None
        progress = TrainingProgress.model_validate(read_json(path / PROGRESS))
        return progress if len(self.tokens) <= progress.tokens else None

    def carry_out(
        self, path: Path, reporter: Reporter, interrupted: Callable[[], bool], begin: Callable[[TrainingProgress], None]
    ) -> tuple[TrainingProgress, Parameters]:
        if (done := self._done(path)) is not None:
            return done, count_parameters(load_model(path)[0])
        begin(TrainingProgress())

        def report(stage: str, share: float) -> None:
            if interrupted():
                raise InterruptedCountError
            reporter.stage("counting", round(100 * share), 100)

        meter, split = EnergyMeter(), None if self.corpus.valid is None else self.corpus.valid.as_text()
        try:
            valid = split.tokens if split is not None else None
            model = self.cls.fit(self.tokens, config=self.config, valid=valid, progress=report)
        except InterruptedCountError:
            return TrainingProgress(), Parameters(0, 0)
        cost = meter.lap()
        replace_tensors(path / "model.safetensors", model.tensors())
        found = None if split is None else score_split(model, split)
        units = {"tokens": len(self.tokens)}
        progress = TrainingProgress(step=1, units=units, seconds=cost.seconds, cost=cost, training_cost=cost)
        progress.energy_method, progress.ended, progress.share = meter.method, "budget", 1.0
        line: dict[str, Any] = {"step": 1, **units, "valid_loss": None, "valid_bits_per_byte": None}
        if found is not None and split is not None:
            progress.best, progress.valid, progress.best_measures = found.loss, found.loss, found.values
            alone = not self.corpus.text_tokenizer.newline_is_boundary
            nats = found.values["nats"] if alone else found.loss
            progress.best_bits = bits = bits_per_byte(nats, split.bytes_per_token(text_alone=alone))
            line |= {"valid_loss": found.loss, "valid_bits_per_byte": bits, "valid_nats": found.values["nats"]}
        spent = {**cost._asdict(), "training_joules": cost.joules, "grams": self.grid.grams(cost.joules)}
        line |= {"best": True, "cost": spent}
        parameters = count_parameters(model)
        tag = total_cost(cost, parameters=parameters, flops=0.0, method=meter.method, grid=self.grid)
        lines = [line, {"step": 1, **units, **tag}]
        write_bytes(path / "metrics.jsonl", "".join(json.dumps(each) + "\n" for each in lines).encode())
        write_json(path / PROGRESS, progress.model_dump())
        write_manifest(path)
        reporter.log(line, progress)
        return progress, parameters


def score_split(model: PredictsNext, split: TextDataset) -> Evaluation:
    """The evaluation of a split; of several languages the mean, as networks are evaluated."""
    if parts := split.parts():
        found = [score_stream(model, part.as_text()) for part in parts.values()]
        nats = sum(each.values["nats"] for each in found) / len(found)
        return Evaluation(sum(each.loss for each in found) / len(found), {"nats": nats})
    return score_stream(model, split)


def score_stream(model: PredictsNext, split: TextDataset) -> Evaluation:
    """Nats per token of a split, and those of the text alone: what stands between documents is left out."""
    raw = torch.from_numpy(split.tokens.astype("int64"))[None]
    nats, _ = model.score(raw[:, :-1], raw[:, 1:], model.start(1))
    text = np.ones(len(split.tokens), dtype=bool)
    text[np.asarray(split.documents)[1:] - 1] = False
    text[-1] = False
    each = nats[0].double()
    return Evaluation(float(each.mean()), {"nats": float(each[torch.from_numpy(text[1:])].mean())})


class Training:
    """Trains a network by gradients."""

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
        self.settings, self.corpus, self.frame = recipe.train, corpus, frame
        device = choose_device(self.settings.device)
        torch.manual_seed(self.settings.seed)
        model = cls(config)
        teach_letters(model, corpus.tokenizer)
        if origin is not None:
            copy_weights(model, Path(origin))
        objective = create_objective(recipe.objective, corpus.tokenizer, frame)
        self.learner = Learner(model, objective, objective.heads(model)).to(device)
        self.counted = count_parameters(self.learner)
        self.parameters = self.counted.total
        window = training_window(model, self.settings.window)
        with each_warning_once():
            self._open_data(recipe, window)

    def _open_data(self, recipe: Recipe, window: int) -> None:
        """The loader of the training text, and what evaluates on the validation text."""
        model, objective, corpus = self.learner.model, self.learner.objective, self.corpus
        order, seed = self.settings.order, self.settings.seed
        check_average(self.settings, validated=corpus.valid is not None)
        streams = self.settings.streams(stateful=model.stateful)
        check_memory(model, corpus.train.size)

        def load(part: Any) -> Loader:
            loader = objective.loader(part, batch=self.settings.batch, window=window, seed=seed, streams=streams)
            return vary(loader) if order == "varied" else loader

        self.loader = corpus.train.loader(load, seed=seed)
        self.plan = plan_steps(self.learner, self.loader, self.settings)
        self.evaluate: Evaluate | None = None
        if corpus.valid is not None:
            self.evaluate = validation(
                self.learner,
                corpus.valid,
                window=window,
                streams=streams,
                tokens=self.settings.evaluation_tokens,
                more=self._more_metrics(recipe),
            )
            self._check_watch(corpus.valid)
        elif self.settings.watch != "loss":
            raise ValueError(f"train.watch = {self.settings.watch!r} needs validation text; hold some out")

    def _check_watch(self, split: Dataset) -> None:
        """A ValueError where `train.watch` names nothing that validation will give."""
        objective, watch = self.learner.objective, self.settings.watch
        terms = [term_name(name, objective.loss_weights) for name in list(objective.loss_weights)[1:]]
        names = ["loss", *terms, *objective.watched_metrics, "bleu", *(f"{name}_loss" for name in split.parts())]
        if watch not in names:
            raise ValueError(f"train.watch = {watch!r}{suggest(watch, names)}")

    def _more_metrics(self, recipe: Recipe) -> dict[str, Any]:
        """Metrics that need more than the loss sees: the BLEU of greedy translations of the first sentences."""
        if self.settings.watch != "bleu":
            return {}
        model = ability(self.learner.model, WritesTarget)
        if model is None or not recipe.data.parallel:
            raise ValueError("train.watch = 'bleu' needs a translator and validation pairs; watch the loss instead")
        assert self.frame is not None, "pairs are text"
        translator = Translator(
            model=model,
            tokenizer=self.corpus.text_tokenizer,
            source_tokenizer=self.corpus.source_tokenizer,
            frame=self.frame,
        )
        assert self.corpus.valid is not None
        sources, references = zip(*islice(self.corpus.valid.texts(), BLEU_SENTENCES), strict=True)

        def show() -> Iterator[tuple[str, str]]:
            found = translator.translate(sources, beams=1)
            for best, reference in zip(found, references, strict=True):
                yield best[0].text if best else "", reference

        Bleu(needs="train.watch = 'bleu' needs")
        return {"bleu": (Bleu, show)}

    def carry_out(
        self, path: Path, reporter: Reporter, interrupted: Callable[[], bool], begin: Callable[[TrainingProgress], None]
    ) -> tuple[TrainingProgress, Parameters]:
        keep_buffers()
        checkpointer = Checkpointer(path, save_seconds=self.settings.save_seconds, keep=self.settings.keep)
        try:
            with tensorboard_log(path, enabled=self.settings.tensorboard) as also:

                def on_log(line: dict[str, Any], progress: TrainingProgress) -> None:
                    also(line)
                    reporter.log(line, progress)

                progress = train(
                    self.learner,
                    self.loader,
                    self.settings,
                    plan=self.plan,
                    evaluate=self.evaluate,
                    bytes_per_token=likelihood_bytes(self.learner, self.corpus),
                    checkpointer=checkpointer,
                    on_log=on_log,
                    on_begin=begin,
                    interrupted=interrupted,
                )
        finally:
            checkpointer.close()
        return progress, self.counted


@contextmanager
def each_warning_once() -> Iterator[None]:
    """Let each warning through once, however many languages and splits it is about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message, category in dict.fromkeys((str(each.message), each.category) for each in caught):
        warnings.warn(message, category, stacklevel=4)


def training_window(model: Model, wanted: int | None) -> int:
    """The length of a training segment: as asked, within what the model can hold."""
    if model.window is not None and wanted is not None and wanted > model.window:
        raise ValueError(
            f"train.window = {wanted} is more than the {model.window} tokens that the model holds; "
            f"lower it, or set model.window={wanted}"
        )
    return wanted or model.window or DEFAULT_WINDOW


def check_memory(model: Model, tokens: int) -> None:
    """Warn where more would be remembered than the training text has."""
    if model.memory > tokens:
        told = f"model.memory = {model.memory} is longer than the training text of {tokens} tokens, and never full"
        warnings.warn(f"{told}; model.memory={tokens} or less will do", stacklevel=4)


def validation(
    learner: Learner, split: Any, *, window: int, streams: bool, tokens: int, more: dict[str, Any] | None = None
) -> Evaluate:
    """A function that gives the learner's loss and metrics on the same part of a split each time."""
    if parts := split.parts():
        each = max(1, tokens // len(parts))
        validators = {
            name: validation(learner, part, window=window, streams=streams, tokens=each) for name, part in parts.items()
        }
        return partial(evaluate_parts, validators)
    batch = max(1, min(VALIDATION_ROWS, (split.size + 1) // (2 * window)))
    loader = learner.objective.loader(split, batch=batch, window=window, seed=0, streams=streams)
    units = loader.units_per_step
    most = max(1, int(tokens // units[main_unit(units)]))
    return Validator(learner, loader, min(most, max(1, int(loader.steps_per_epoch))), more or {})


def likelihood_bytes(learner: Learner, corpus: Corpus) -> tuple[float, float] | None:
    """Bytes per predicted token of the training and the validation text, where the loss is the likelihood of it.

    That of a model which sees ahead when it reads a text at once is none: `lmlab score` reads token by token.
    """
    objective = learner.objective
    if not objective.likelihood or getattr(ability(learner.model, PredictsNext), "sees_ahead", False):
        return None
    valid = corpus.valid or corpus.train
    text = valid.as_text().bytes_per_token(text_alone=objective.separates)
    return corpus.train.as_text().bytes_per_token(), text


@contextmanager
def tensorboard_log(path: Path, *, enabled: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that copies lines of metrics to TensorBoard."""
    if not enabled:
        yield lambda line: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("train.tensorboard needs TensorBoard: pip install 'lmlab[track]'") from None
    writer = None

    def write(line: dict[str, Any]) -> None:
        nonlocal writer
        writer = writer or SummaryWriter(str(path / "tensorboard"))
        for name in ("loss", "bits_per_byte", "valid_loss", "valid_bits_per_byte", "rate", "gradient"):
            if line.get(name) is not None:
                writer.add_scalar(name, line[name], line["step"])

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
