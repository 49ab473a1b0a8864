"""The job of a run, once its data are prepared; here the training of a network."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from lmlab.config import suggest
from lmlab.costs.parameters import Parameters, count_parameters
from lmlab.data.corpora.corpus import Corpus, Dataset
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.streams import vary
from lmlab.decoding.translator import Translator
from lmlab.metrics.bleu import Bleu
from lmlab.models.abilities import PredictsNext, WritesTarget, ability
from lmlab.models.model import Model
from lmlab.objectives import complete_settings, create_objective
from lmlab.runs.model_files import copy_weights, expected_tensors, set_spellings
from lmlab.runs.recipe import Recipe
from lmlab.tokenizers.frames import Frame
from lmlab.training.checkpointer import Checkpointer
from lmlab.training.devices import choose_device, free_memory, keep_buffers
from lmlab.training.distributed.world import ALONE, World
from lmlab.training.evaluation import Evaluate, Validator, evaluate_parts, term_name
from lmlab.training.learner import Learner
from lmlab.training.micro_batches import rows_of_loader
from lmlab.training.progress import TrainingProgress
from lmlab.training.settings import TrainConfig
from lmlab.training.trainer import Trainer, plan_steps
from lmlab.training.weight_average import check_average
from lmlab.units import format_bytes, main_unit

DEFAULT_WINDOW = 64
VALIDATION_ROWS = 16
BLEU_SENTENCES = 500
"""Validation sentences that are translated each time when BLEU is watched."""


class Reporter(Protocol):
    """Shows how far a run is."""

    def stage(self, name: str, done: int, total: int) -> None:
        """Called while data are prepared."""

    def begin(self, plan: RunPlan) -> None:
        """Called when everything is ready, before training."""

    def log(self, line: dict[str, Any], progress: TrainingProgress) -> None:
        """Called with each line of metrics."""


class Silent:
    """A reporter that shows nothing."""

    def stage(self, name: str, done: int, total: int) -> None: ...

    def begin(self, plan: RunPlan) -> None: ...

    def log(self, line: dict[str, Any], progress: TrainingProgress) -> None: ...


class RunPlan(NamedTuple):
    """A run that is ready to begin: its recipe, folder, data and size."""

    recipe: Recipe
    path: Path
    corpus: Corpus
    parameters: int | None  # None if it is not known before counting


class Callbacks(NamedTuple):
    """What a job calls while it runs."""

    reporter: Reporter
    interrupted: Callable[[], bool]  # whether to stop
    on_begin: Callable[[TrainingProgress], None]  # before anything is written; not if the work is finished already


class RunJob(Protocol):
    """The work of a run; its constructor finds everything that is wrong with the settings."""

    @property
    def parameters(self) -> int | None:
        """The number of parameters, if it is known before the job runs."""

    def run(self, path: Path, calls: Callbacks) -> tuple[TrainingProgress, Parameters]:
        """Do the work in the folder `path`; return how far it is, and the number of parameters."""


class Training:
    """Trains a network by gradient descent."""

    def __init__(
        self,
        cls: type[Model],
        recipe: Recipe,
        corpus: Corpus,
        config: Any,
        *,
        frame: Frame | None,
        origin: str | None = None,
        world: World = ALONE,
    ) -> None:
        """`origin` is a run whose weights the model starts from."""
        self.settings, self.corpus, self.frame, self.world = recipe.train, corpus, frame, world
        device = choose_device(self.settings.device)
        learns = recipe.objective.get("method") != "frozen"
        check_room(recipe.kind, config, self.settings if learns else None, free=free_memory(device))
        torch.manual_seed(self.settings.seed)
        model = cls(config)
        set_spellings(model, corpus.tokenizer)
        if origin is not None:
            copy_weights(model, Path(origin))
        settings = complete_settings(recipe.objective, corpus)
        objective = create_objective(settings, corpus.token_processor, frame, corpus.media)
        self.learner = Learner(model, objective, objective.heads(model)).to(device)
        self.counted = count_parameters(self.learner)
        self.parameters = self.counted.total
        window = training_window(model, self.settings.window)
        with each_warning_once():
            self._open_data(recipe, window)
        self._prepare_weights(recipe, origin)

    def _prepare_weights(self, recipe: Recipe, origin: str | None) -> None:
        """Freeze weights, or start them from other files than those of `origin`; here nothing is to be done."""

    def _open_data(self, recipe: Recipe, window: int) -> None:
        """Create the loader of the training text, and the evaluation on the validation text."""
        model, objective, corpus = self.learner.model, self.learner.objective, self.corpus
        order, seed = self.settings.order, self.settings.seed
        check_average(self.settings, validated=corpus.valid is not None)
        streams = self.settings.streams(stateful=model.stateful)
        check_memory(model, corpus.train.size)

        def load(part: Any, *, continuous: bool = streams) -> Loader:
            rows = rows_of_loader(self.settings, continuous=continuous)
            loader = objective.loader(part, batch=rows, window=window, seed=seed, streams=streams)
            if continuous and not loader.continuous:  # what it reads has no order
                return load(part, continuous=False)
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
                rows=None if objective.additive else self.settings.batch * self.settings.accumulate,
            )
            self._check_watch(corpus.valid)
        elif self.settings.watch != "loss":
            raise ValueError(f"train.watch = {self.settings.watch!r} needs validation text; hold some out")

    def _check_watch(self, split: Dataset) -> None:
        """Raise a ValueError if `train.watch` is not the name of a metric of validation."""
        objective, watch = self.learner.objective, self.settings.watch
        terms = [term_name(name, objective.loss_weights) for name in list(objective.loss_weights)[1:]]
        names = ["loss", *terms, *objective.watched_metrics, "bleu", *(f"{name}_loss" for name in split.parts())]
        if watch not in names:
            raise ValueError(f"train.watch = {watch!r}{suggest(watch, names)}")

    def _more_metrics(self, recipe: Recipe) -> dict[str, Any]:
        """Metrics that are not computed with the loss: the BLEU of greedy translations of the first sentences."""
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

    def run(self, path: Path, calls: Callbacks) -> tuple[TrainingProgress, Parameters]:
        keep_buffers()
        settings = self.settings
        checkpointer = Checkpointer(path, save_seconds=settings.save_seconds, keep=settings.keep, world=self.world)
        try:
            events = tensorboard_log(path, enabled=settings.tensorboard and self.world.writes)
            with events as write_events, one_thread(enabled=settings.exact):

                def on_log(line: dict[str, Any], progress: TrainingProgress) -> None:
                    write_events(line)
                    calls.reporter.log(line, progress)

                progress = Trainer(
                    self.learner,
                    self.loader,
                    settings,
                    plan=self.plan,
                    evaluate=self.evaluate,
                    bytes_per_token=likelihood_bytes(self.learner, self.corpus),
                    checkpointer=checkpointer,
                    on_log=on_log,
                    on_begin=calls.on_begin,
                    interrupted=calls.interrupted,
                    world=self.world,
                ).run()
        finally:
            checkpointer.close()
        return progress, self.counted


@contextmanager
def one_thread(*, enabled: bool) -> Iterator[None]:
    """Compute with one thread in this block: with more, sums may have another order."""
    before = torch.get_num_threads()
    if enabled:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def each_warning_once() -> Iterator[None]:
    """Show each warning once, even if several languages or splits cause it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message, category in dict.fromkeys((str(each.message), each.category) for each in caught):
        warnings.warn(message, category, stacklevel=4)


def training_window(model: Model, wanted: int | None) -> int:
    """The length of a training segment: `wanted`, or the model's own window."""
    if model.window is not None and wanted is not None and wanted > model.window:
        raise ValueError(
            f"train.window = {wanted} is more than the {model.window} tokens that the model can read; "
            f"lower it, or set model.window={wanted}"
        )
    return wanted or model.window or DEFAULT_WINDOW


def check_room(kind: str, config: Any, settings: TrainConfig | None, *, free: int | None) -> None:
    """Raise a ValueError if training needs more than `free` bytes for weights, gradients and moments alone.

    Without settings the weights do not learn. Activations come on top, so less may still be too little.
    """
    size = sum(tensor.numel() * tensor.element_size() for tensor in expected_tensors(kind, config).values())
    parts = {"weights": size}
    if settings is not None:
        sparse = settings.optimizer == "adagrad"
        parts |= {"gradients": 0 if sparse else size, f"the moments of {settings.optimizer}": settings.moments * size}
    needed = sum(parts.values())
    if free is not None and needed > free:
        listed = ", ".join(f"{format_bytes(part)} for {name}" for name, part in parts.items() if part)
        raise ValueError(
            f"{kind} with these settings needs at least {format_bytes(needed)} of memory ({listed}), and "
            f"{format_bytes(free)} are free; choose a smaller --size, width or vocabulary, or --set train.optimizer=sgd"
        )


def check_memory(model: Model, tokens: int) -> None:
    """Warn if the memory is longer than the training text."""
    if model.memory > tokens:
        message = f"model.memory = {model.memory} is longer than the training text of {tokens} tokens, and never full"
        warnings.warn(f"{message}; model.memory={tokens} or less is enough", stacklevel=4)


def validation(
    learner: Learner,
    split: Any,
    *,
    window: int,
    streams: bool,
    tokens: int,
    more: dict[str, Any] | None = None,
    rows: int | None = None,
) -> Evaluate:
    """A function that evaluates the learner on the same part of a split each time.

    `rows` is the size of a batch where the loss depends on it (contrastive): that of a training step.
    """
    if parts := split.parts():
        each = max(1, tokens // len(parts))
        validators = {
            name: validation(learner, part, window=window, streams=streams, tokens=each) for name, part in parts.items()
        }
        return partial(evaluate_parts, validators)
    batch = rows or max(1, min(VALIDATION_ROWS, (split.size + 1) // (2 * window)))
    objective = learner.objective
    loader = split.loader(
        lambda part: objective.loader(part, batch=batch, window=window, seed=0, streams=streams), seed=0
    )
    units = loader.units_per_step
    most = max(1, int(tokens // units[main_unit(units)]))
    return Validator(learner, loader, min(most, max(1, int(loader.steps_per_epoch))), more or {})


def likelihood_bytes(learner: Learner, corpus: Corpus) -> tuple[float, float] | None:
    """Bytes per predicted token of the training and the validation text, if the loss is the likelihood of the text.

    For a model that sees ahead when it reads a text at once it is not; `lmlab score` reads token by token. Tokens that
    are not text have no bytes.
    """
    objective = learner.objective
    sees_ahead = getattr(ability(learner.model, PredictsNext), "sees_ahead", False)
    if corpus.tokenizer is None or not objective.likelihood or sees_ahead:
        return None
    valid = corpus.valid or corpus.train
    text = valid.as_text().bytes_per_token(text_alone=objective.separates)
    return corpus.train.as_text().bytes_per_token(), text


@contextmanager
def tensorboard_log(path: Path, *, enabled: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that writes a line of metrics as TensorBoard events."""
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
