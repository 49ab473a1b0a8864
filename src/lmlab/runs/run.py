"""Train a model in a run directory, from text to trained weights; or resume a run that was interrupted."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from lmlab.config import build
from lmlab.costs.countries import find_grid
from lmlab.data import prepare
from lmlab.data.corpora.corpus import Corpus, Processor
from lmlab.language_model import LanguageModel, load
from lmlab.models import find, load_class
from lmlab.objectives import TASKS, complete_settings
from lmlab.runs.card import LOSSY, describe_quality, model_card
from lmlab.runs.counting import Counting
from lmlab.runs.finetuning import FineTuning
from lmlab.runs.first_commands import next_commands
from lmlab.runs.held_out import as_path, reopen_corpus
from lmlab.runs.jobs import Callbacks, Reporter, RunJob, RunPlan, Silent, Training
from lmlab.runs.model_files import write_config
from lmlab.runs.recipe import Recipe
from lmlab.runs.recipe_record import RecipeRecord, check_fixed_settings, check_same_settings, read_record, write_recipe
from lmlab.runs.run_files import check_not_read, check_output_folder, clear, hold, remove_begun
from lmlab.runs.storage import (
    MANIFEST,
    TASK,
    FullDiskError,
    digest_weights,
    read_folder,
    read_json,
    write_bytes,
    write_json,
    write_manifest,
)
from lmlab.tokenizers.chat_template import FILE as CHAT
from lmlab.tokenizers.chat_template import ChatTemplate
from lmlab.tokenizers.frames import FILE, Frame, make_frame
from lmlab.tokenizers.processors import FILE as PROCESSOR
from lmlab.tokenizers.processors import load_processor
from lmlab.tokenizers.processors.sequences import SequenceTokenizer
from lmlab.training.devices import choose_device
from lmlab.training.distributed.checking import check_shared
from lmlab.training.distributed.group import connected
from lmlab.training.distributed.world import ALONE, LostProcessError, World
from lmlab.training.energy_meter import Cost, codecarbon
from lmlab.training.metrics_log import NotFiniteError
from lmlab.training.micro_batches import choose_micro_batches
from lmlab.training.progress import TrainingProgress
from lmlab.training.settings import TrainConfig


class Outcome(NamedTuple):
    """The result of training a run: where it is, its score on validation text, and its costs."""

    path: Path
    progress: TrainingProgress
    bits_per_byte: float | None  # on validation text, of the best weights
    parameters: int
    interrupted: bool
    embedding_parameters: int = 0
    grams: float = 0.0  # of CO2e
    commands: tuple[str, ...] = ()  # to try with it; {run} is its folder
    lossy: bool = False  # whether its tokenizer loses text
    judged_on: str = "validation text"
    trained: bool = True  # False if nothing was left to do
    score: str = "no validation data"  # the validation score, in words

    def __repr__(self) -> str:
        score = f", {self.quality}" if self.progress.best is not None else ""
        return f"Outcome({self.path}{score}, {self.parameters:,} parameters{', interrupted' * self.interrupted})"

    def load(self, *, device: str = "cpu") -> LanguageModel:
        """The language model of the run directory."""
        return load(self.path, device=device)

    @property
    def quality(self) -> str:
        """Its score on validation text, in words."""
        lossy = f" ({LOSSY})" if self.lossy else ""
        return f"{self.score}{lossy} on {self.judged_on}"

    @property
    def next_step(self) -> str:
        """The commands to try as one line, with the folder filled in."""
        return "   or: ".join(command.replace("{run}", shlex.quote(str(self.path))) for command in self.commands)


def start(
    recipe: Recipe,
    path: str | Path,
    *,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    world: World = ALONE,
    prepare: Callable[..., Corpus] = prepare,
) -> Outcome:
    """Train a new model in a new run directory."""
    if not isinstance(recipe, Recipe):
        raise ValueError(f"recipe = {recipe!r} is not a recipe; make one with lmlab.runs.recipe.make_recipe")
    path = as_path(path)
    if world.writes:
        check_not_read(path, recipe.inputs())
        check_output_folder(path, overwrite=overwrite, go_on=f"--resume {path}")
    reporter = reporter or Silent()
    recipe = recipe.model_copy(update={"data": recipe.data.absolute(), "train": _divide(recipe, world)})
    corpus = world.first(
        lambda: prepare(
            recipe.data,
            processor=_sequence_tokenizer(recipe.origin) or recipe.tokenizer.spec,
            source=recipe.tokenizer.source,
            specials=recipe.special_tokens(),
            progress=reporter.stage,
            **media_of(recipe.origin),
        )
    )
    config = model_config(recipe, corpus)
    frame = _frame(recipe, corpus, config)
    job = create_job(recipe, corpus, config, frame=frame, origin=recipe.origin, world=world)
    encoder_sha256 = None if corpus.encoder is None else corpus.encoder.fingerprint
    origin_sha256 = None if recipe.origin is None else digest_weights(Path(recipe.origin))
    record = RecipeRecord(recipe, corpus.text_fingerprint, encoder_sha256, origin_sha256=origin_sha256)
    created = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    with hold(path) if world.writes else nullcontext():
        try:
            world.gather(None)  # nobody goes on if the run is held by another trainer
            if world.writes:
                clear(path)
                _write_settings(path, record, corpus, config, frame)
            check_shared(path, world)  # nobody reads the folder before it is written
            plan = RunPlan(recipe, path, corpus, job.parameters)
            outcome = _run(job, plan, reporter, interrupted, lambda _: record, world)
        except NotFiniteError:
            raise
        except (Exception, KeyboardInterrupt):
            if world.writes:
                remove_begun(path, created)
            raise
        if outcome.interrupted and world.writes:
            remove_begun(path, created)
        return outcome


def _divide(recipe: Recipe, world: World) -> TrainConfig:
    """The settings of training, with a number of micro-batches that the processes can share."""
    continuous = recipe.train.streams(stateful=getattr(load_class(recipe.kind), "stateful", False))
    continuous &= recipe.objective["kind"] not in TASKS
    return choose_micro_batches(recipe.train, processes=world.size, continuous=continuous)


def media_of(run: str | Path | None) -> dict[str, Processor]:
    """The processor of the pictures or sounds of a run, as an argument of `prepare`; nothing if it has none."""
    processor = None if run is None else load_processor(Path(run))
    return {} if processor is None or isinstance(processor, SequenceTokenizer) else {"media": processor}


def _sequence_tokenizer(run: str | None) -> SequenceTokenizer | None:
    """The tokenizer of music, pixels, episodes or several kinds of a run that a new run starts from; else None."""
    processor = None if run is None else load_processor(Path(run))
    return processor if isinstance(processor, SequenceTokenizer) else None


def check_same(recipe: Recipe, path: Path, *, unfinished: bool = False) -> None:
    """A ValueError where a run directory was made with other settings, or, unless `unfinished`, is not finished."""

    def read_progress(folder: Path) -> Any:
        return read_json(folder / "progress.json")

    check_not_read(path, recipe.inputs())
    check_same_settings(path, recipe)
    counted = (path / "progress.json").is_file()  # as n-grams have it, which are not saved on the way
    last = read_progress(path) if counted else read_folder(path / "last", read_progress)
    if not unfinished and not (last or {}).get("ended"):
        check_output_folder(path, overwrite=False, go_on=f"--resume {path}")


def resume(
    path: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    texts: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    world: World = ALONE,
    prepare: Callable[..., Corpus] = prepare,
) -> Outcome:
    """Resume a run exactly: the same text and the same random numbers, as if it had never stopped.

    `settings` of training may be changed: a larger budget extends the run, a lower rate saves it. The run keeps a
    history of such changes. Nothing is written if the run is finished and the changes do not extend it. If the text
    has moved, `texts` gives its new place (`{"text": ["new.txt"]}`); it must be exactly the same text.
    """
    path = as_path(path)
    if not (path / "recipe.json").is_file():
        raise ValueError(f"{path} is not a run directory: it has no recipe.json, so there is nothing to resume")
    reporter = reporter or Silent()
    with hold(path) if world.writes else nullcontext():
        record = read_record(path, texts=texts)
        recipe = record.change(settings or {}, step=0).recipe
        check_fixed_settings(path, record, recipe)
        corpus = world.first(lambda: reopen_corpus(record, path, reporter, prepare=prepare))
        begun = any((path / name).exists() for name in ("last", "last.new", "previous"))
        if not begun:
            warnings.warn(f"{path} has no checkpoint yet: it starts from the beginning", stacklevel=2)
        if not begun and record.origin_differs(recipe.origin):
            raise ValueError(
                f"{path} was to start from the weights of {recipe.origin}, which have changed; start a new run"
            )
        config = model_config(recipe, corpus)
        frame = Frame.load(path) if (path / FILE).is_file() else _frame(recipe, corpus, config)
        origin = None if begun else recipe.origin
        job = create_job(recipe, corpus, config, frame=frame, origin=origin, world=world)

        def write_changes(progress: TrainingProgress) -> RecipeRecord:
            changed = record.change(settings or {}, step=progress.step)
            if world.writes and (texts or changed.changes != record.changes):
                write_recipe(path, changed)
                write_manifest(path)
            return changed

        return _run(job, RunPlan(recipe, path, corpus, job.parameters), reporter, interrupted, write_changes, world)


def create_job(
    recipe: Recipe,
    corpus: Corpus,
    config: Any,
    *,
    frame: Frame | None,
    origin: str | None = None,
    world: World = ALONE,
) -> RunJob:
    """Counting for an n-gram, training for a network; `origin` is a run whose weights it starts from."""
    cls = load_class(recipe.kind)
    find_grid(recipe.train.country)
    choose_device(recipe.train.device)
    if find(recipe.kind).trained_by == "counting":
        if recipe.objective.get("backwards"):
            raise ValueError(f"objective.backwards: {recipe.kind} counts from left to right; train a network instead")
        if world.size > 1:
            raise ValueError(f"{recipe.kind} is counted by one process, and there are {world.size}")
        return Counting(cls, recipe, corpus, config)
    if recipe.train.memory is not None:
        raise ValueError(f"--memory is for counting n-grams on disk; {recipe.kind} is a network, so leave it out")
    job = FineTuning if recipe.objective["kind"] in TASKS else Training
    origin = None if recipe.objective.get("method") == "scratch" else origin
    return job(cls, recipe, corpus, config, frame=frame, origin=origin, world=world)


def _frame(recipe: Recipe, corpus: Corpus, config: object) -> Frame | None:
    """The frame of a run, which is saved as `frame.json`; None if it reads no text."""
    if corpus.tokenizer is None:
        return None
    return make_frame(
        find(recipe.kind).frame,
        corpus.text_tokenizer,
        corpus.source_tokenizer,
        start=getattr(config, "start", None),
        backwards=bool(recipe.objective.get("reverse_source") or recipe.objective.get("backwards")),
    )


def model_config(recipe: Recipe, corpus: Corpus) -> Any:
    """The settings of the model, including those that depend on the data.

    A model that starts from the weights of a run keeps the vocabulary of that run; special tokens may be added.
    """
    cls = load_class(recipe.kind)
    known: dict[str, Any] = cls.Config.from_corpus(corpus)
    if recipe.origin is None:
        for name, value in known.items():
            if recipe.model.get(name, value) != value:
                whose = "the data's" if corpus.tokenizer is None else "the tokenizer's"
                raise ValueError(f"model.{name} = {recipe.model[name]} is not {whose} {value}; omit it")
        return build(cls.Config, {**cls.Config.usual(corpus), **recipe.model, **known}, where="model")
    free = cls.changeable(recipe.model)
    settings = {**known, **recipe.model, **{name: value for name, value in known.items() if name in free}}
    if "vocabulary" in known:
        settings["vocabulary"] = max(known["vocabulary"], settings["vocabulary"])
    return build(cls.Config, settings, where="model")


def _write_settings(path: Path, record: RecipeRecord, corpus: Corpus, config: Any, frame: Frame | None) -> None:
    """Write all that describes a run: tokenizers, frame, configuration, recipe, task and manifest."""
    recipe = record.recipe
    if corpus.tokenizer is not None:
        corpus.tokenizer.save(path / "tokenizer.json")
    elif corpus.sequence_tokenizer is not None:
        corpus.sequence_tokenizer.save(path / PROCESSOR)
    if corpus.source_tokenizer is not None:
        corpus.source_tokenizer.save(path / "source_tokenizer.json")
    if corpus.media is not None:
        corpus.media.save(path / PROCESSOR)
    if frame is not None:
        frame.save(path / FILE)
    write_config(path, recipe.kind, config.model_dump())
    write_recipe(path, record)
    if recipe.objective["kind"] in TASKS:
        write_json(path / TASK, complete_settings(recipe.objective, corpus))
    elif recipe.origin is not None and (Path(recipe.origin) / CHAT).is_file():
        ChatTemplate.load(Path(recipe.origin)).save(path)
    write_manifest(path)


def _run(
    job: RunJob,
    plan: RunPlan,
    reporter: Reporter,
    interrupted: Callable[[], bool],
    on_begin: Callable[[TrainingProgress], RecipeRecord],
    world: World,
) -> Outcome:
    """Run a job and write the model card; `on_begin` is called before the first step, if there is one to take."""
    records: list[RecipeRecord] = []
    recipe, corpus = plan.recipe, plan.corpus
    reporter.begin(plan)
    try:
        with connected(world), codecarbon(find_grid(recipe.train.country)) as measured:
            calls = Callbacks(reporter, interrupted, lambda progress: records.append(on_begin(progress)))
            progress, parameters = job.run(plan.path, calls)
        bits = None if recipe.data.parallel else progress.best_bits
        commands = next_commands(recipe.kind, corpus, recipe.objective)
        if progress.ended and records and world.writes:
            card = model_card(
                recipe,
                corpus,
                progress,
                parameters=parameters,
                bits=bits,
                codecarbon=measured.text,
                commands=commands,
                changes=records[0].describe_changes(),
            )
            write_bytes(plan.path / "README.md", card.encode())
    except (FullDiskError, LostProcessError) as error:
        cause = "free some space" if isinstance(error, FullDiskError) else "see what it said"
        raise type(error)(f"{error}; {_what_is_left(plan.path, cause)}") from None
    is_task = recipe.objective["kind"] in TASKS
    country = recipe.train.country if records else read_record(plan.path).recipe.train.country
    return Outcome(
        plan.path,
        progress,
        bits,
        parameters.total,
        interrupted=not progress.ended,
        embedding_parameters=parameters.embedding,
        grams=find_grid(country).grams(Cost(*progress.cost).joules),
        commands=commands,
        lossy=not is_task and corpus.loses(corpus.valid),
        judged_on=_name_validation(corpus) if not is_task else "validation examples",
        score=describe_quality(progress, bits, corpus.processor),
        trained=bool(records),
    )


def _name_validation(corpus: Corpus) -> str:
    """What a run is validated on, in words."""
    item = getattr(corpus.media or corpus.processor, "item", None)  # a tokenizer of text has none
    return "validation text" if item is None else f"validation {item}s"


def _what_is_left(path: Path, cause: str) -> str:
    """What remains of a run that could not go on, and what to do: first about the cause."""
    for folder in (path / "last", path / "previous"):
        if (folder / MANIFEST).is_file():
            step = read_json(folder / "progress.json")["step"]
            return (
                f"nothing is lost, the last checkpoint is {folder} (step {step}): {cause}, then "
                f"lmlab train --resume {shlex.quote(str(path))}"
            )
    return f"no checkpoint had been written yet: {cause} and start again"
