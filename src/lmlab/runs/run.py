"""Carry out a recipe in a run directory, from text to trained weights; or go on where one was interrupted."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import nn

from lmlab.runs.checkpoint import load_source_tokenizer, load_tokenizer, write_config
from lmlab.config import build
from lmlab.costs.countries import find_grid
from lmlab.data import prepare
from lmlab.data.corpora.corpus import Corpus
from lmlab.data.readers.text import STANDARD_INPUT
from lmlab.runs.finetuning import FineTuning
from lmlab.runs.jobs import Counting, Job, Plan, Reporter, Silent, Training
from lmlab.models import find, load_class
from lmlab.objectives import TASKS, load_objective
from lmlab.runs.run_files import check_not_read, check_place, clear, remove_begun
from lmlab.runs.recipe import Recipe, Record, read_record, write_recipe
from lmlab.runs.storage import (
    MANIFEST,
    TASK,
    FullDiskError,
    digest_weights,
    read_json,
    write_bytes,
    write_json,
    write_manifest,
)
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.files import without_last
from lmlab.tokenizers.frames import FILE, Frame, make_frame
from lmlab.tokenizers.training import is_path
from lmlab.runs.card import LOSSY, describe_quality, model_card
from lmlab.training.energy_meter import Cost, codecarbon
from lmlab.runs.first_commands import next_commands
from lmlab.runs.lock import hold
from lmlab.training.devices import choose_device
from lmlab.training.metrics_log import NotFiniteError
from lmlab.training.progress import TrainingProgress
from lmlab.training.settings import FIXED


class Outcome(NamedTuple):
    """What a run came to."""

    path: Path
    progress: TrainingProgress
    bits_per_byte: float | None  # on validation text, of the best weights
    parameters: int
    interrupted: bool
    embedding_parameters: int = 0
    grams: float = 0.0  # of CO2e
    commands: tuple[str, ...] = ()  # what a user may want to do with it now, {run} being its folder
    lossy: bool = False  # whether its tokenizer loses text
    judged_on: str = "validation text"
    trained: bool = True  # whether anything was done; else all is as it was

    @property
    def quality(self) -> str:
        """How well it does on validation text, in words."""
        lossy = f" ({LOSSY})" if self.lossy else ""
        return f"{describe_quality(self.progress, self.bits_per_byte)}{lossy} on {self.judged_on}"

    @property
    def next_step(self) -> str:
        """The same as one line, with the folder filled in."""
        return "   or: ".join(command.replace("{run}", shlex.quote(str(self.path))) for command in self.commands)


def start(
    recipe: Recipe,
    path: str | Path,
    *,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train a new model in a new run directory."""
    if not isinstance(recipe, Recipe):
        raise ValueError(f"recipe = {recipe!r} is no recipe; make one with lmlab.runs.recipe.make_recipe")
    path = _as_path(path)
    check_not_read(path, recipe.inputs())
    check_place(path, overwrite=overwrite, go_on=f"--resume {path}")
    reporter = reporter or Silent()
    recipe = recipe.model_copy(update={"data": recipe.data.absolute()})
    corpus = prepare(
        recipe.data,
        processor=recipe.tokenizer.spec,
        source=recipe.tokenizer.source,
        specials=_specials(recipe),
        progress=reporter.stage,
    )
    config = model_config(recipe, corpus)
    frame = _frame(recipe, corpus, config)
    job = create_job(recipe, corpus, config, frame=frame, origin=recipe.origin)
    origin_sha256 = None if recipe.origin is None else digest_weights(Path(recipe.origin))
    created = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    with hold(path):
        clear(path)
        try:
            if corpus.tokenizer is not None:
                corpus.tokenizer.save(path / "tokenizer.json")
            if corpus.source_tokenizer is not None:
                corpus.source_tokenizer.save(path / "source_tokenizer.json")
            if frame is not None:
                frame.save(path / FILE)
            write_config(path, recipe.kind, config.model_dump())
            encoder = corpus.encoder
            record = Record(
                recipe,
                corpus.text_fingerprint,
                None if encoder is None else encoder.fingerprint,
                origin_sha256=origin_sha256,
            )
            write_recipe(path, record)
            if recipe.objective["kind"] in TASKS:
                write_json(path / TASK, recipe.objective)
            write_manifest(path)
            outcome = _carry_out(
                job, Plan(recipe, path, corpus, job.parameters), reporter, interrupted, lambda _: record
            )
        except NotFiniteError:
            raise
        except (Exception, KeyboardInterrupt):
            remove_begun(path, created)
            raise
        if outcome.interrupted:
            remove_begun(path, created)
        return outcome


def create_job(recipe: Recipe, corpus: Corpus, config: Any, *, frame: Frame | None, origin: str | None = None) -> Job:
    """Counting for an n-gram, gradients for a network, which begins with the weights of the run `origin`."""
    cls = load_class(recipe.kind)
    find_grid(recipe.train.country)
    choose_device(recipe.train.device)
    if find(recipe.kind).trained_by == "counting":
        if recipe.objective.get("backwards"):
            raise ValueError(f"objective.backwards: {recipe.kind} counts from left to right; train a network instead")
        return Counting(cls, recipe, corpus, config)
    work = FineTuning if recipe.objective["kind"] in TASKS else Training
    return work(cls, recipe, corpus, config, frame=frame, origin=origin)


def _as_path(path: Any) -> Path:
    if not isinstance(path, (str, Path)) or not str(path):
        raise ValueError(f"path = {path!r}: give the folder of a run as a str or a Path")
    return Path(path)


def _specials(recipe: Recipe) -> tuple[str, ...]:
    """The special tokens that the objective needs."""
    specials: tuple[str, ...] = load_objective(recipe.objective["kind"]).specials
    return specials


def _frame(recipe: Recipe, corpus: Corpus, config: object) -> Frame | None:
    """What stands around the texts of a run, which it keeps as `frame.json`; None where it reads no text."""
    if corpus.tokenizer is None:
        return None
    return make_frame(
        find(recipe.kind).frame,
        corpus.text_tokenizer,
        corpus.source_tokenizer,
        start=getattr(config, "start", None),
        backwards=bool(recipe.objective.get("reverse_source") or recipe.objective.get("backwards")),
    )


def resume(
    path: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    texts: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Go on with a run: the same text, the same random numbers, as if it had never stopped.

    `settings` of training may be changed on the way: a larger budget extends the run, a lower rate saves it. The run
    keeps a history of such changes. Nothing is written where the run is finished and they do not let it go on. Where
    the text has moved, `texts` says where it is now (`{"text": ["new.txt"]}`): it must be the very same text.
    """
    path = _as_path(path)
    if not (path / "recipe.json").is_file():
        raise ValueError(f"{path} is not a run directory: it has no recipe.json, so there is nothing to resume")
    reporter = reporter or Silent()
    with hold(path):
        record = read_record(path, texts=texts)
        recipe = record.change(settings or {}, step=0).recipe
        _check_unchanged(path, record.recipe, recipe)
        corpus = reopen_corpus(record, path, reporter)
        begun = any((path / name).exists() for name in ("last", "last.new", "previous"))
        if not begun and differs_from_origin(record, recipe.origin):
            raise ValueError(
                f"{path} was to begin with the weights of {recipe.origin}, which are others now; start it again"
            )
        config = model_config(recipe, corpus)
        frame = Frame.load(path) if (path / FILE).is_file() else _frame(recipe, corpus, config)
        job = create_job(recipe, corpus, config, frame=frame, origin=None if begun else recipe.origin)

        def begin(progress: TrainingProgress) -> Record:
            changed = record.change(settings or {}, step=progress.step)
            if texts or changed.changes != record.changes:
                write_recipe(path, changed)
                write_manifest(path)
            return changed

        return _carry_out(job, Plan(recipe, path, corpus, job.parameters), reporter, interrupted, begin)


def differs_from_origin(record: Record, origin: str | None) -> bool:
    """Whether the weights of a run are known to be others than those that a run began with."""
    if origin is None or record.origin_sha256 is None:
        return False
    return digest_weights(Path(origin)) not in (None, record.origin_sha256)


def _check_unchanged(path: Path, begun: Recipe, wanted: Recipe) -> None:
    """A ValueError where settings would be others that a run must keep."""
    if wrong := [f"train.{name}" for name in FIXED if getattr(wanted.train, name) != getattr(begun.train, name)]:
        raise ValueError(f"--resume continues {path} as it was started: {', '.join(wrong)} cannot be changed")


class HeldOut(NamedTuple):
    """The text that a run did not learn from."""

    split: Literal["test", "validation"]
    items: list[Any]  # documents; pairs of a source and a target, of a translator


def held_out(path: str | Path) -> list[Any]:
    """The documents that a run did not learn from; pairs, of a translator."""
    return find_held_out(path).items


def find_held_out(path: str | Path) -> HeldOut:
    """The test text of a run, or its validation text where no test text was kept."""
    path = _as_path(path)
    corpus = reopen_corpus(read_record(path), path, Silent())
    if corpus.tokenizer is None:
        raise ValueError(f"{path} did not learn from text, so it has none that was held out")
    split = corpus.test or corpus.valid
    if split is None:
        raise ValueError(f"no text of {path} was held out")
    return HeldOut("test" if split is corpus.test else "validation", list(split.texts()))


def reopen_corpus(record: Record, path: Path, reporter: Reporter) -> Corpus:
    """The text of a run, encoded as it was when the run began: from the cache if it is still there.

    The run's own tokenizer does it, wherever it came from. One that was trained on the text is trained again where that
    finds the text in the cache or gives the same tokenizer, as it should. A ValueError where the text is not there, or
    is another: it would be split in another way, and what was learnt would pass for held-out text.
    """
    recipe = record.recipe
    if STANDARD_INPUT in recipe.data.named:
        raise ValueError(f"{path} learnt from standard input, which is not there any more")
    if missing := recipe.data.missing():
        option = "--source NEW --target NEW (or --pairs NEW)" if recipe.data.parallel else "--text NEW"
        if recipe.data.kind == "examples":
            option += " (--valid NEW and --test NEW, if they are files of their own)"
        raise ValueError(
            f"{path} learns from {', '.join(missing)}, which is not there any more; "
            f"say where it is now: lmlab train --resume {shlex.quote(str(path))} {option}"
        )
    if pipes := recipe.data.irregular():
        raise ValueError(
            f"{path} learns from {', '.join(pipes)}, which is a pipe or a device now; give the text as a regular file"
        )
    specials = _specials(recipe)
    specs = recipe.tokenizer
    tokenizer, source = load_tokenizer(path, needed=specs.spec is not None), load_source_tokenizer(path)
    own = None if tokenizer is None else _encoder(tokenizer, specials, record.encoder_sha256)

    def prepared(encoder: str | Tokenizer | None, source_encoder: str | Tokenizer | None) -> Corpus:
        return prepare(recipe.data, processor=encoder, source=source_encoder, specials=specials, progress=reporter.stage)

    corpus = prepared(
        own if specs.spec is None or is_path(specs.spec) else specs.spec,
        source if specs.source is None or is_path(specs.source) else specs.source,
    )
    again = (corpus.tokenizer, corpus.source_tokenizer)
    if [each and each.fingerprint for each in again] != [each and each.fingerprint for each in (tokenizer, source)]:
        corpus = prepared(own, source)
    if record.text_sha256 is not None and corpus.text_fingerprint != record.text_sha256:
        raise ValueError(
            f"{', '.join(recipe.data.named)} is not the text that {path} was trained on: its SHA-256 is another, so it "
            f"has changed since the run began; give the same text, split in the same way, or start a new run"
        )
    return corpus


def _encoder(tokenizer: Tokenizer, specials: Sequence[str], fingerprint: str | None) -> Tokenizer:
    """A run's tokenizer as it was when it encoded the text, before it got special tokens for the objective.

    It matters only where a text happens to contain such a token, written out.
    """
    for added in range(len(specials) + 1):
        before = without_last(tokenizer, added)
        if before.fingerprint == fingerprint:
            return before
    return tokenizer


def model_config(recipe: Recipe, corpus: Corpus) -> Any:
    """The model's settings, with what only the data know filled in.

    A model that begins with the weights of a run keeps its vocabulary, but for special tokens that come in addition.
    """
    cls = load_class(recipe.kind)
    known: dict[str, Any] = cls.Config.from_corpus(corpus)
    if recipe.origin is None:
        for name, value in known.items():
            if recipe.model.get(name, value) != value:
                whose = "the data's" if corpus.tokenizer is None else "the tokenizer's"
                raise ValueError(f"model.{name} = {recipe.model[name]} is not {whose} {value}; omit it")
        return build(cls.Config, {**recipe.model, **known}, where="model")
    settings = {**known, **recipe.model}
    if "vocabulary" in known:
        settings["vocabulary"] = max(known["vocabulary"], settings["vocabulary"])
    return build(cls.Config, settings, where="model")


def _carry_out(
    job: Job,
    plan: Plan,
    reporter: Reporter,
    interrupted: Callable[[], bool],
    begin: Callable[[TrainingProgress], Record],
) -> Outcome:
    """Do the work; `begin` writes down what is new before it goes on, and is not asked where nothing is to be done."""
    records: list[Record] = []
    reporter.begin(plan)
    try:
        with codecarbon(find_grid(plan.recipe.train.country)) as measured:
            progress, parameters = job.carry_out(
                plan.path, reporter, interrupted, lambda progress: records.append(begin(progress))
            )
        bits = None if plan.recipe.data.parallel else progress.best_bits
        task = plan.recipe.objective["kind"] if plan.recipe.objective["kind"] in TASKS else None
        commands = next_commands(plan.recipe.kind, plan.corpus, plan.recipe.objective)
        if progress.ended and records:
            card = model_card(
                plan.recipe,
                plan.corpus,
                progress,
                parameters=parameters,
                bits=bits,
                codecarbon=measured.text,
                commands=commands,
                changes=records[0].describe_changes(),
            )
            write_bytes(plan.path / "README.md", card.encode())
    except FullDiskError as error:
        raise FullDiskError(f"{error}; {_what_is_left(plan.path)}") from None
    country = plan.recipe.train.country if records else read_record(plan.path).recipe.train.country
    return Outcome(
        plan.path,
        progress,
        bits,
        parameters.total,
        interrupted=not progress.ended,
        embedding_parameters=parameters.embedding,
        grams=find_grid(country).grams(Cost(*progress.cost).joules),
        commands=commands,
        lossy=task is None and plan.corpus.loses(plan.corpus.valid),
        judged_on="validation text" if task is None else "validation examples",
        trained=bool(records),
    )


def _what_is_left(path: Path) -> str:
    """What can be done with a run for which the disk had no room."""
    for folder in (path / "last", path / "previous"):
        if (folder / MANIFEST).is_file():
            step = read_json(folder / "progress.json")["step"]
            return (
                f"nothing is lost, the last checkpoint is {folder} (step {step}): free some space, then "
                f"lmlab train --resume {shlex.quote(str(path))}"
            )
    return "no checkpoint had been written yet: free some space and start again"
