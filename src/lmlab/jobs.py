"""The work of a run, once its text is prepared: counting for an n-gram, gradients for a network."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from lmlab.checkpoint import copy_weights, replace_tensors, write_bytes
from lmlab.costs.countries import find_grid
from lmlab.costs.parameters import Parameters, count_parameters
from lmlab.data.corpora.corpus import Corpus, Dataset
from lmlab.decoding.bleu import translation_metrics
from lmlab.decoding.translation import Translator
from lmlab.models import load_class
from lmlab.models.abilities import PredictsNext
from lmlab.models.model import EncoderDecoder, Model
from lmlab.objectives import create_objective
from lmlab.objectives.objective import Objective
from lmlab.recipe import Recipe
from lmlab.training.allocator import keep_buffers
from lmlab.training.budget import parse_budget
from lmlab.training.costs import Meter, price_tag
from lmlab.training.evaluation import Evaluation, evaluating, mean_loss
from lmlab.training.loop import Progress, choose_device, plan_steps, train
from lmlab.training.resume import RunDirectory

DEFAULT_WINDOW = 64
BLEU_SENTENCES = 500
"""Validation sentences that are translated each time when BLEU is watched."""


class Reporter(Protocol):
    """Who is told how it goes: the terminal, or nobody."""

    def stage(self, name: str, done: int, total: int) -> None:
        """Preparation has come so far."""

    def begin(self, plan: Plan) -> None:
        """Everything is ready, training starts."""

    def log(self, line: dict[str, Any], progress: Progress) -> None:
        """A line of metrics."""


class Silent:
    """Tells nobody."""

    def stage(self, name: str, done: int, total: int) -> None: ...

    def begin(self, plan: Plan) -> None: ...

    def log(self, line: dict[str, Any], progress: Progress) -> None: ...


class Plan(NamedTuple):
    """A recipe with its text prepared and its model described."""

    recipe: Recipe
    path: Path
    corpus: Corpus
    parameters: int | None  # not known before counting


class Job(Protocol):
    """The work of a run: everything that can be wrong with its settings is found when it is made."""

    @property
    def parameters(self) -> int | None:
        """How many there will be, if that is known beforehand."""

    def carry_out(self, path: Path, reporter: Reporter, interrupted: Callable[[], bool]) -> tuple[Progress, Parameters]:
        """Do it; give how far it came and the number of parameters."""


def create_job(recipe: Recipe, corpus: Corpus, config: Any, *, origin: str | None = None) -> Job:
    """Counting for an n-gram, gradients for a network, which begins with the weights of the run `origin`."""
    cls = load_class(recipe.kind)
    find_grid(recipe.train.country)
    if issubclass(cls, nn.Module):
        return Training(cls, recipe, corpus, config, origin=origin)
    return Counting(cls, recipe, corpus, config)


class Counting:
    """Estimates a model by counting, in one pass; a budget in tokens limits the text, any other is not used up."""

    parameters = None

    def __init__(self, cls: Any, recipe: Recipe, corpus: Corpus, config: Any) -> None:
        self.cls, self.corpus, self.config, self.grid = cls, corpus, config, find_grid(recipe.train.country)
        budget = parse_budget(recipe.train.budget)
        self.tokens = corpus.train.tokens[: int(budget.amount)] if budget.unit == "tokens" else corpus.train.tokens

    def carry_out(self, path: Path, reporter: Reporter, interrupted: Callable[[], bool]) -> tuple[Progress, Parameters]:
        meter, split = Meter(), self.corpus.valid
        model = self.cls.fit(self.tokens, config=self.config, valid=split.tokens if split is not None else None)
        cost = meter.lap()
        replace_tensors(path / "model.safetensors", model.tensors())
        nats = _counted_nll(model, split) if split is not None else None
        progress = Progress(step=1, tokens=len(self.tokens), seconds=cost.seconds, cost=cost, best=nats, valid=nats)
        progress.energy_method, progress.ended, progress.share = meter.method, "budget", 1.0
        line: dict[str, Any] = {"step": 1, "tokens": len(self.tokens), "valid_loss": nats}
        spent = {**cost._asdict(), "grams": self.grid.grams(cost.joules)}
        line |= {"valid_bits_per_byte": bits_per_byte(nats, split), "best": True, "cost": spent}
        parameters = count_parameters(model)
        tag = price_tag(cost, parameters=parameters, flops=0.0, method=meter.method, grid=self.grid)
        lines = [line, {"step": 1, "tokens": len(self.tokens), **tag}]
        write_bytes(path / "metrics.jsonl", "".join(json.dumps(each) + "\n" for each in lines).encode())
        reporter.log(line, progress)
        return progress, parameters


def _counted_nll(model: PredictsNext, split: Dataset) -> float:
    raw = torch.from_numpy(split.tokens.astype("int64"))[None]
    nats, _ = model.score(raw[:, :-1], raw[:, 1:], model.start(1))
    return float(nats.double().mean())


class Training:
    """Trains a network by gradients."""

    def __init__(
        self, cls: type[Model], recipe: Recipe, corpus: Corpus, config: Any, *, origin: str | None = None
    ) -> None:
        self.settings, self.corpus = recipe.train, corpus
        device = choose_device(self.settings.device)
        torch.manual_seed(self.settings.seed)
        self.model = cls(config)
        if origin is not None:
            copy_weights(self.model, Path(origin))
        self.model.to(device)
        self.counted = count_parameters(self.model)
        self.parameters = self.counted.total
        self.objective = create_objective(recipe.objective, corpus.tokenizer)
        window = training_window(self.model, self.settings.window)
        streams = self.settings.order == "streams" or (self.settings.order == "auto" and self.model.carries)
        seed, batch = self.settings.seed, self.settings.batch
        self.loader = corpus.train.loader(
            lambda part: self.objective.loader(part, batch=batch, window=window, seed=seed, streams=streams), seed=seed
        )
        steps, _ = plan_steps(self.model, self.objective, self.loader, self.settings)
        self.loader.plan(None if steps is None else steps * self.settings.accumulate)
        self.evaluate = None
        if corpus.valid is not None:
            self.evaluate = validation(
                self.model, self.objective, corpus.valid, window=window, tokens=self.settings.evaluation_tokens
            )
        if self.settings.watch == "bleu":
            self.evaluate = _with_bleu(self.evaluate, self.model, recipe, corpus)

    def carry_out(self, path: Path, reporter: Reporter, interrupted: Callable[[], bool]) -> tuple[Progress, Parameters]:
        keep_buffers()
        keeper = RunDirectory(path, save_seconds=self.settings.save_seconds, keep=self.settings.keep)
        try:
            with tensorboard_log(path, enabled=self.settings.tensorboard) as also:

                def on_log(line: dict[str, Any], progress: Progress) -> None:
                    also(line)
                    reporter.log(line, progress)

                progress = train(
                    self.model,
                    self.objective,
                    self.loader,
                    self.settings,
                    evaluate=self.evaluate,
                    bytes_per_token=likelihood_bytes(self.objective, self.corpus),
                    keeper=keeper,
                    on_log=on_log,
                    interrupted=interrupted,
                )
        finally:
            keeper.close()
        return progress, self.counted


def training_window(model: Model, wanted: int | None) -> int:
    """The length of a training segment: as asked, within what the model can hold."""
    if model.window is not None and wanted is not None and wanted > model.window:
        raise ValueError(
            f"train.window = {wanted} is more than the {model.window} tokens that the model holds; "
            f"lower it, or set model.window={wanted}"
        )
    return wanted or model.window or DEFAULT_WINDOW


def validation(
    model: Model, objective: Objective, split: Dataset, *, window: int, tokens: int
) -> Callable[[], Evaluation]:
    """A function that gives the model's loss and measures on the same part of a split each time."""
    if split.parts():
        return _by_part(model, objective, split, window=window, tokens=tokens)
    batch = max(1, min(16, (split.size + 1) // (2 * window)))
    loader = objective.loader(split, batch=batch, window=window, seed=0, streams=model.carries)
    steps = min(max(1, int(tokens // loader.units_per_step["tokens"])), max(1, int(loader.steps_per_epoch)))
    return lambda: mean_loss(model, objective, loader, steps=steps)


def _with_bleu(
    evaluate: Callable[[], Evaluation] | None,
    model: Model,
    recipe: Recipe,
    corpus: Corpus,
) -> Callable[[], Evaluation]:
    """The same evaluation with the BLEU of greedy translations of the first validation sentences."""
    if evaluate is None or not recipe.data.parallel or not isinstance(model, EncoderDecoder):
        raise ValueError("train.watch = 'bleu' needs a translator and validation pairs; watch the loss instead")
    assert corpus.valid is not None, "there is an evaluation, so there are validation pairs"
    bleu = translation_metrics(needs="train.watch = 'bleu' needs")["bleu"]
    translator = Translator(
        model=model,
        tokenizer=corpus.tokenizer,
        source_tokenizer=corpus.source_tokenizer,
        reverse=bool(recipe.objective.get("reverse_source", False)),
    )
    sources, references = zip(*islice(corpus.valid.texts(), BLEU_SENTENCES), strict=True)

    def watched() -> Evaluation:
        found = evaluate()
        with evaluating(model):
            best = translator.translate(sources, beams=1)
        texts = [translations[0].text if translations else "" for translations in best]
        return Evaluation(found.loss, {**found.measures, "bleu": bleu.corpus_score(texts, [list(references)]).score})

    return watched


def _by_part(
    model: Model, objective: Objective, split: Dataset, *, window: int, tokens: int
) -> Callable[[], Evaluation]:
    """The loss of each language, and their mean: each counts the same, however much text it has."""
    parts = split.parts()
    each = {
        name: validation(model, objective, part, window=window, tokens=max(1, tokens // len(parts)))
        for name, part in parts.items()
    }

    def evaluate() -> Evaluation:
        found = {name: function() for name, function in each.items()}
        names = next(iter(found.values())).measures
        measures = {name: sum(one.measures[name] for one in found.values()) / len(found) for name in names}
        losses = {f"{name}_loss": one.loss for name, one in found.items()}
        return Evaluation(sum(losses.values()) / len(losses), {**measures, **losses})

    return evaluate


def likelihood_bytes(objective: Objective, corpus: Any) -> tuple[float, float] | None:
    """Bytes per prediction of the training and the validation text, where the loss is the likelihood of that text."""
    if not objective.likelihood:
        return None
    return bytes_per_token(corpus.train), bytes_per_token(corpus.valid or corpus.train)


def bytes_per_token(split: Dataset) -> float:
    """How many bytes of text one prediction stands for."""
    return float(split.bytes / max(1, split.size))


def bits_per_byte(nats: float | None, split: Dataset | None) -> float | None:
    """Bits per byte of a split on which a prediction takes so many nats."""
    return nats / math.log(2) / bytes_per_token(split) if nats is not None and split is not None else None


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
    writer = SummaryWriter(str(path / "tensorboard"))

    def write(line: dict[str, Any]) -> None:
        for name in ("loss", "bits_per_byte", "valid_loss", "valid_bits_per_byte", "rate", "gradient"):
            if line.get(name) is not None:
                writer.add_scalar(name, line[name], line["step"])

    try:
        yield write
    finally:
        writer.close()
