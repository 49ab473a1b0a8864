"""Carry out a recipe in a run directory, from text to trained weights; or go on where one was interrupted."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from lmlab.checkpoint import read_json, replace_tensors, write_bytes, write_config, write_json, write_manifest
from lmlab.config import build
from lmlab.data.corpus import Corpus, Split, prepare
from lmlab.data.loaders import Loader, Streams, Windows
from lmlab.models import load_class
from lmlab.models.model import LanguageModel, Model
from lmlab.objectives.causal import Causal
from lmlab.recipe import Recipe
from lmlab.tokenizers import Tokenizer
from lmlab.training.allocator import keep_buffers
from lmlab.training.budget import parse_budget
from lmlab.training.card import model_card
from lmlab.training.costs import Meter
from lmlab.training.lock import hold
from lmlab.training.loop import Progress, choose_device, mean_nll, train
from lmlab.training.resume import RunDirectory

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
    config: Any
    parameters: int | None


class Outcome(NamedTuple):
    """What a run came to."""

    path: Path
    progress: Progress
    bits_per_byte: float | None  # on validation text, of the best weights
    parameters: int
    interrupted: bool


def start(
    recipe: Recipe,
    path: Path,
    *,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train a new model in a new run directory."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        if not (path.is_dir() and (path / "recipe.json").is_file()):
            raise ValueError(f"{path} exists and is not a run directory; choose another -o")
        if not overwrite:
            raise ValueError(f"{path} holds a run already; go on with --resume {path}, or replace it with --overwrite")
    reporter = reporter or Silent()
    corpus = prepare_corpus(recipe, reporter, tokenizer=recipe.tokenizer.spec)
    config = model_config(recipe, corpus.tokenizer)
    path.mkdir(parents=True, exist_ok=True)
    with hold(path):
        _clear(path)
        corpus.tokenizer.save(path / "tokenizer.json")
        write_config(path, recipe.kind, config.model_dump())
        _write_recipe(path, recipe, corpus)
        write_manifest(path)
        return _carry_out(recipe, path, corpus, config, reporter, interrupted)


def resume(
    path: Path,
    *,
    budget: str | None = None,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Go on with a run: the same text, the same random numbers, as if it had never stopped. A new budget extends it."""
    if not (path / "recipe.json").is_file():
        raise ValueError(f"{path} is not a run directory: it has no recipe.json, so there is nothing to resume")
    reporter = reporter or Silent()
    with hold(path):
        values = read_json(path / "recipe.json")
        fingerprint = values.pop("text_sha256", None)
        if budget is not None:
            parse_budget(budget)
            values["train"]["budget"] = budget
        recipe = build(Recipe, values, where=str(path / "recipe.json"))
        corpus = reopen_corpus(recipe, path, reporter)
        if fingerprint is not None and corpus.text_fingerprint != fingerprint:
            raise ValueError(
                f"the text of {path} has changed since the run began, so it cannot be resumed; start a new run"
            )
        if budget is not None:
            _write_recipe(path, recipe, corpus)
            write_manifest(path)
        config = model_config(recipe, corpus.tokenizer)
        return _carry_out(recipe, path, corpus, config, reporter, interrupted)


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
    corpus = prepare_corpus(recipe, reporter, tokenizer=recipe.tokenizer.spec)
    if corpus.tokenizer.fingerprint != tokenizer.fingerprint:
        corpus = prepare_corpus(recipe, reporter, tokenizer=tokenizer)
    return corpus


def _write_recipe(path: Path, recipe: Recipe, corpus: Corpus) -> None:
    write_json(path / "recipe.json", {**recipe.model_dump(), "text_sha256": corpus.text_fingerprint})


def prepare_corpus(recipe: Recipe, reporter: Reporter, *, tokenizer: str | Tokenizer) -> Corpus:
    """The recipe's text as tokens."""
    data = recipe.data
    return prepare(
        data.text,
        tokenizer=tokenizer,
        valid=data.valid,
        test=data.test,
        split=data.split,
        documents=data.documents,
        progress=reporter.stage,
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


def _carry_out(
    recipe: Recipe,
    path: Path,
    corpus: Corpus,
    config: Any,
    reporter: Reporter,
    interrupted: Callable[[], bool],
) -> Outcome:
    cls = load_class(recipe.kind)
    carry_out = _train if issubclass(cls, nn.Module) else _count
    outcome = carry_out(cls, recipe, path, corpus, config, reporter, interrupted)
    if not outcome.interrupted:
        card = model_card(recipe, corpus, outcome.progress, parameters=outcome.parameters, bits=outcome.bits_per_byte)
        write_bytes(path / "README.md", card.encode())
    return outcome


def _count(
    cls: Any,
    recipe: Recipe,
    path: Path,
    corpus: Corpus,
    config: Any,
    reporter: Reporter,
    interrupted: Callable[[], bool],
) -> Outcome:
    """Estimate a model by counting, in one pass; a budget in tokens limits the text, any other is not used up."""
    budget = parse_budget(recipe.train.budget)
    tokens = corpus.train.tokens
    if budget.unit == "tokens":
        tokens = tokens[: int(budget.amount)]
    reporter.begin(Plan(recipe, path, corpus, config, None))
    meter = Meter()
    valid = corpus.valid.tokens if corpus.valid is not None else None
    model = cls.fit(tokens, config=config, valid=valid)
    cost = meter.lap()
    replace_tensors(path / "model.safetensors", model.tensors())
    nats = bits = None
    if corpus.valid is not None:
        nats = _counted_nll(model, corpus.valid)
        bits = nats / math.log(2) / bytes_per_token(corpus.valid)
    progress = Progress(step=1, tokens=len(tokens), seconds=cost.seconds, cost=cost, best=nats, valid=nats)
    progress.energy_method, progress.ended = meter.method, "budget"
    line: dict[str, Any] = {"step": 1, "tokens": len(tokens), "valid_loss": nats, "valid_bits_per_byte": bits}
    line |= {"best": True, "cost": cost._asdict()}
    write_bytes(path / "metrics.jsonl", (json.dumps(line) + "\n").encode())
    reporter.log(line, progress)
    return Outcome(path, progress, bits, model.parameters, interrupted=False)


def _counted_nll(model: LanguageModel, split: Split) -> float:
    raw = torch.from_numpy(split.tokens.astype("int64"))[None]
    nats, _ = model.score(raw[:, :-1], raw[:, 1:], model.start(1))
    return float(nats.double().mean())


def _train(
    cls: type[Model],
    recipe: Recipe,
    path: Path,
    corpus: Corpus,
    config: Any,
    reporter: Reporter,
    interrupted: Callable[[], bool],
) -> Outcome:
    """Train a neural model by gradients."""
    settings = recipe.train
    device = choose_device(settings.device)
    keep_buffers()
    torch.manual_seed(settings.seed)
    model = cls(config).to(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    window = training_window(model, settings.window)
    streams = settings.order == "streams" or (settings.order == "auto" and model.carries)
    loader = (Streams if streams else Windows)(
        corpus.train.tokens, batch=settings.batch, window=window, seed=settings.seed
    )
    evaluate = None
    if corpus.valid is not None:
        evaluate = validation(model, corpus.valid, window=window, tokens=settings.evaluation_tokens)
    reporter.begin(Plan(recipe, path, corpus, config, parameters))
    keeper = RunDirectory(path, save_seconds=settings.save_seconds)
    try:
        with tensorboard_log(path, enabled=settings.tensorboard) as also:

            def on_log(line: dict[str, Any], progress: Progress) -> None:
                also(line)
                reporter.log(line, progress)

            progress = train(
                model,
                Causal(),
                loader,
                settings,
                evaluate=evaluate,
                bytes_per_token=(bytes_per_token(corpus.train), bytes_per_token(corpus.valid or corpus.train)),
                keeper=keeper,
                on_log=on_log,
                interrupted=interrupted,
            )
    finally:
        keeper.close()
    bits = None
    if progress.best is not None and corpus.valid is not None:
        bits = progress.best / math.log(2) / bytes_per_token(corpus.valid)
    return Outcome(path, progress, bits, parameters, interrupted=not progress.ended)


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
