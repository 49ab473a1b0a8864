"""Carry out a recipe in a run directory, from text to trained weights; or go on where one was interrupted."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from lmlab.checkpoint import read_json, replace_tensors, write_bytes, write_config, write_json, write_manifest
from lmlab.config import build
from lmlab.costs.countries import find_grid
from lmlab.costs.parameters import Parameters, count_parameters
from lmlab.data.corpus import Corpus, Split, prepare
from lmlab.data.loaders import Loader, Streams, Windows
from lmlab.models import load_class
from lmlab.models.model import LanguageModel, Model
from lmlab.objectives.causal import Causal
from lmlab.recipe import DataConfig, Recipe
from lmlab.tokenizers import Tokenizer
from lmlab.training.allocator import keep_buffers
from lmlab.training.budget import parse_budget
from lmlab.training.card import model_card
from lmlab.training.costs import Cost, Meter, price_tag, second_opinion
from lmlab.training.lock import hold
from lmlab.training.loop import Progress, choose_device, mean_nll, plan_steps, train
from lmlab.training.resume import RunDirectory
from lmlab.training.settings import TrainConfig

DEFAULT_WINDOW = 64


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


class Outcome(NamedTuple):
    """What a run came to."""

    path: Path
    progress: Progress
    bits_per_byte: float | None  # on validation text, of the best weights
    parameters: int
    interrupted: bool
    embedding_parameters: int = 0
    grams: float = 0.0  # of CO2e


def start(
    recipe: Recipe,
    path: Path,
    *,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train a new model in a new run directory."""
    if path.exists() and not _is_fresh(path):
        if not (path.is_dir() and (path / "recipe.json").is_file()):
            raise ValueError(f"{path} exists and is not a run directory; choose another -o")
        if not overwrite:
            raise ValueError(f"{path} holds a run already; go on with --resume {path}, or replace it with --overwrite")
    reporter = reporter or Silent()
    corpus = prepare_corpus(recipe.data, tokenizer=recipe.tokenizer.spec, progress=reporter.stage)
    config = model_config(recipe, corpus.tokenizer)
    job = create_job(recipe, corpus, config)
    path.mkdir(parents=True, exist_ok=True)
    with hold(path):
        _clear(path)
        corpus.tokenizer.save(path / "tokenizer.json")
        write_config(path, recipe.kind, config.model_dump())
        _write_recipe(path, recipe, corpus)
        write_manifest(path)
        return _carry_out(job, Plan(recipe, path, corpus, job.parameters), reporter, interrupted)


def _is_fresh(path: Path) -> bool:
    """Whether a folder is empty, or holds only what a run that was killed at its very start has left there."""
    begun = {"tokenizer.json", "config.json"}
    return path.is_dir() and all(entry.name in begun or entry.name.startswith(".") for entry in path.iterdir())


def resume(
    path: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Go on with a run: the same text, the same random numbers, as if it had never stopped.

    `settings` of training may be changed on the way: a larger budget extends the run, a lower rate saves it.
    """
    if not (path / "recipe.json").is_file():
        raise ValueError(f"{path} is not a run directory: it has no recipe.json, so there is nothing to resume")
    reporter = reporter or Silent()
    with hold(path):
        values = read_json(path / "recipe.json")
        fingerprint = values.pop("text_sha256", None)
        values["train"] |= settings or {}
        build(TrainConfig, values["train"], where="train")
        recipe = build(Recipe, values, where=str(path / "recipe.json"))
        corpus = reopen_corpus(recipe, path, reporter)
        if fingerprint is not None and corpus.text_fingerprint != fingerprint:
            raise ValueError(
                f"the text of {path} has changed since the run began, so it cannot be resumed; start a new run"
            )
        job = create_job(recipe, corpus, model_config(recipe, corpus.tokenizer))
        if settings:
            _write_recipe(path, recipe, corpus)
            write_manifest(path)
        return _carry_out(job, Plan(recipe, path, corpus, job.parameters), reporter, interrupted)


def held_out(path: Path) -> list[str]:
    """The test documents of a run (its validation documents where no test text was kept)."""
    values = read_json(path / "recipe.json")
    values.pop("text_sha256", None)
    corpus = reopen_corpus(build(Recipe, values, where=str(path / "recipe.json")), path, Silent())
    split = corpus.test or corpus.valid
    if split is None:
        raise ValueError(f"no text of {path} was held out")
    return list(split.texts())


def reopen_corpus(recipe: Recipe, path: Path, reporter: Reporter) -> Corpus:
    """The text of a run, encoded with the run's own tokenizer: from the cache if it is still there."""
    tokenizer = Tokenizer.load(path / "tokenizer.json")
    corpus = prepare_corpus(recipe.data, tokenizer=recipe.tokenizer.spec, progress=reporter.stage)
    if corpus.tokenizer.fingerprint != tokenizer.fingerprint:
        corpus = prepare_corpus(recipe.data, tokenizer=tokenizer, progress=reporter.stage)
    return corpus


def _write_recipe(path: Path, recipe: Recipe, corpus: Corpus) -> None:
    write_json(path / "recipe.json", {**recipe.model_dump(), "text_sha256": corpus.text_fingerprint})


def prepare_corpus(
    data: DataConfig, *, tokenizer: str | Tokenizer, progress: Callable[[str, int, int], None]
) -> Corpus:
    """The text of a recipe or a comparison as tokens."""
    return prepare(
        data.text,
        tokenizer=tokenizer,
        valid=data.valid,
        test=data.test,
        split=data.split,
        documents=data.documents,
        progress=progress,
    )


def model_config(recipe: Recipe, tokenizer: Tokenizer) -> Any:
    """The model's settings, with what only the tokenizer knows filled in."""
    cls = load_class(recipe.kind)
    known: dict[str, Any] = {"vocabulary": tokenizer.vocabulary}
    if "boundary" in cls.Config.model_fields:
        known["boundary"] = tokenizer.boundary
    for name, value in known.items():
        if recipe.model.get(name, value) != value:
            raise ValueError(f"model.{name} = {recipe.model[name]} is not the tokenizer's {value}; leave it out")
    return build(cls.Config, {**recipe.model, **known}, where="model")


def _clear(path: Path) -> None:
    for entry in path.iterdir():
        if entry.name == ".lock":
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


class Job(Protocol):
    """The work of a run: everything that can be wrong with its settings is found when it is made."""

    @property
    def parameters(self) -> int | None:
        """How many there will be, if that is known beforehand."""

    def carry_out(self, path: Path, reporter: Reporter, interrupted: Callable[[], bool]) -> tuple[Progress, Parameters]:
        """Do it; give how far it came and the number of parameters."""


def create_job(recipe: Recipe, corpus: Corpus, config: Any) -> Job:
    """Counting for an n-gram, gradients for a network."""
    cls = load_class(recipe.kind)
    find_grid(recipe.train.country)
    if issubclass(cls, nn.Module):
        return Training(cls, recipe, corpus, config)
    return Counting(cls, recipe, corpus, config)


def _carry_out(job: Job, plan: Plan, reporter: Reporter, interrupted: Callable[[], bool]) -> Outcome:
    reporter.begin(plan)
    with second_opinion(find_grid(plan.recipe.train.country)) as opinion:
        progress, parameters = job.carry_out(plan.path, reporter, interrupted)
    bits = bits_per_byte(progress.best, plan.corpus.valid)
    if progress.ended:
        card = model_card(
            plan.recipe, plan.corpus, progress, parameters=parameters, bits=bits, second_opinion=opinion.text
        )
        write_bytes(plan.path / "README.md", card.encode())
    return Outcome(
        plan.path,
        progress,
        bits,
        parameters.total,
        interrupted=not progress.ended,
        embedding_parameters=parameters.embedding,
        grams=find_grid(plan.recipe.train.country).grams(Cost(*progress.cost).joules),
    )


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
        progress.energy_method, progress.ended = meter.method, "budget"
        line: dict[str, Any] = {"step": 1, "tokens": len(self.tokens), "valid_loss": nats}
        spent = {**cost._asdict(), "grams": self.grid.grams(cost.joules)}
        line |= {"valid_bits_per_byte": bits_per_byte(nats, split), "best": True, "cost": spent}
        parameters = count_parameters(model)
        tag = price_tag(cost, parameters=parameters, flops=0.0, method=meter.method, grid=self.grid)
        lines = [line, {"step": 1, "tokens": len(self.tokens), **tag}]
        write_bytes(path / "metrics.jsonl", "".join(json.dumps(each) + "\n" for each in lines).encode())
        reporter.log(line, progress)
        return progress, parameters


def _counted_nll(model: LanguageModel, split: Split) -> float:
    raw = torch.from_numpy(split.tokens.astype("int64"))[None]
    nats, _ = model.score(raw[:, :-1], raw[:, 1:], model.start(1))
    return float(nats.double().mean())


class Training:
    """Trains a network by gradients."""

    def __init__(self, cls: type[Model], recipe: Recipe, corpus: Corpus, config: Any) -> None:
        self.settings, self.corpus = recipe.train, corpus
        device = choose_device(self.settings.device)
        torch.manual_seed(self.settings.seed)
        self.model = cls(config).to(device)
        self.counted = count_parameters(self.model)
        self.parameters = self.counted.total
        window = training_window(self.model, self.settings.window)
        streams = self.settings.order == "streams" or (self.settings.order == "auto" and self.model.carries)
        self.loader: Loader = (Streams if streams else Windows)(
            corpus.train.tokens, batch=self.settings.batch, window=window, seed=self.settings.seed
        )
        plan_steps(self.model, self.loader, self.settings)
        self.evaluate = None
        if corpus.valid is not None:
            self.evaluate = validation(self.model, corpus.valid, window=window, tokens=self.settings.evaluation_tokens)

    def carry_out(self, path: Path, reporter: Reporter, interrupted: Callable[[], bool]) -> tuple[Progress, Parameters]:
        keep_buffers()
        keeper = RunDirectory(path, save_seconds=self.settings.save_seconds)
        try:
            with tensorboard_log(path, enabled=self.settings.tensorboard) as also:

                def on_log(line: dict[str, Any], progress: Progress) -> None:
                    also(line)
                    reporter.log(line, progress)

                progress = train(
                    self.model,
                    Causal(),
                    self.loader,
                    self.settings,
                    evaluate=self.evaluate,
                    bytes_per_token=(
                        bytes_per_token(self.corpus.train),
                        bytes_per_token(self.corpus.valid or self.corpus.train),
                    ),
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


def validation(model: Model, split: Split, *, window: int, tokens: int) -> Callable[[], float]:
    """A function that gives the model's nats per token on the same part of a split each time."""
    batch = max(1, min(16, len(split.tokens) // (2 * window)))
    loader: Loader = (Streams if model.carries else Windows)(split.tokens, batch=batch, window=window, seed=0)
    steps = min(max(1, tokens // (batch * loader.window)), max(1, int(loader.steps_per_epoch)))
    return lambda: mean_nll(model, loader, steps=steps)


def bytes_per_token(split: Split) -> float:
    """How many bytes of text one prediction stands for."""
    return float(split.bytes / max(1, len(split.tokens) - 1))


def bits_per_byte(nats: float | None, split: Split | None) -> float | None:
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
