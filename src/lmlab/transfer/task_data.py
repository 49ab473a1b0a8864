"""The labelled examples of a fine-tuning: read once, split and checked, and shared by all its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lmlab.config import build
from lmlab.data import make_config
from lmlab.data.config import DataConfig
from lmlab.data.corpora.checking import Check, check
from lmlab.data.corpora.corpus import Corpus, Processor
from lmlab.data.corpora.example_splits import FEWEST_TO_SELECT, SELECTED
from lmlab.data.corpora.examples import ExamplesConfig, fingerprint, make_corpus, parts_of, read, sample_examples
from lmlab.data.corpora.pictures.checking import PictureCheck
from lmlab.data.corpora.pictures.images import ImagesConfig, Pictures, open_pictures
from lmlab.data.corpora.pictures.images import make_corpus as make_picture_corpus
from lmlab.data.corpora.preparing import ReportStage
from lmlab.data.corpora.splitting import NAMES
from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.text import is_pipe
from lmlab.models import find
from lmlab.runs.model_files import load_tokenizer
from lmlab.tasks import load_task
from lmlab.tasks.pictures import PictureClassification
from lmlab.tasks.task import Task
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.processors import load_processor
from lmlab.transfer.from_scratch import is_architecture
from lmlab.transfer.recipe import read_origin


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """The examples of a task, read once for all trials."""

    config: ExamplesConfig | ImagesConfig
    labelled: Labelled
    pictures: Pictures | None = None
    """The pictures of the examples, where these have pictures."""

    @property
    def task(self) -> type[Task]:
        """The task of the examples."""
        return load_task(self.labelled.task)

    @property
    def held_out(self) -> tuple[str, Sequence[Example]]:
        """The examples that are scored: those of test, or of validation where there is no test."""
        if self.labelled.test:
            return "test", self.labelled.test
        return "valid", self.labelled.valid or ()

    @property
    def selecting(self) -> Sequence[Example]:
        """The examples that choose checkpoints and settings of baselines, where these are not scored."""
        apart = bool(self.labelled.test) or self.labelled.selection is not None
        return parts_of(self.labelled)[1] or () if apart else ()

    @property
    def is_pair(self) -> bool:
        """Whether an example is two texts."""
        return self.labelled.train[0].b is not None

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of all examples."""
        if self.pictures is not None:
            return self.pictures.digest
        return fingerprint(parts_of(self.labelled))

    def limited(self, count: int | None, *, seed: int) -> TaskData:
        """The same with a random sample of `count` training examples; None for all of them."""
        if count is None or count >= len(self.labelled.train):
            return self
        if self.pictures is not None:
            raise ValueError(f"--examples {count}: learning curves are for examples of text; leave it out for pictures")
        config = make_config({**dict(self.config), "max_examples": count, "sample_seed": seed})
        assert isinstance(config, ExamplesConfig)
        train = sample_examples(self.labelled.train, count, seed=seed)
        return TaskData(config=config, labelled=replace(self.labelled, train=train))

    def prepare(
        self,
        config: DataConfig,
        *,
        processor: str | Processor | None,
        source: str | Tokenizer | None = None,
        specials: Sequence[str] = (),
        media: Processor | None = None,
        progress: ReportStage | None = None,
    ) -> Corpus:
        """The corpus of these examples, without reading their files again; called as `lmlab.data.prepare` is."""
        if self.pictures is not None:
            return make_picture_corpus(self.pictures)
        name = ", ".join(config.named)
        return make_corpus(self.labelled, processor, name=name, media=media).with_specials(specials)


def open_data(
    examples: str | Path,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    split: Sequence[float] | None = None,
    select: float = SELECTED,
    leaks: str | None = None,
    drop_bad_labels: bool | None = None,
    run: Path | None = None,
) -> TaskData:
    """Read labelled examples and split them; pictures where `run`, which learns from them, reads pictures.

    With `valid` and no `test`, a fraction `select` of the training examples chooses the checkpoint.
    """
    if run is not None and reads_pictures(run):
        if task not in (None, "picture_classification") or leaks not in (None, "keep") or drop_bad_labels:
            raise ValueError(f"{run} reads pictures: --task, --leaks and --drop-bad-labels are for examples of text")
        given: dict[str, Any] = {"valid": valid, "test": test}
        values: dict[str, Any] = {name: [str(path)] for name, path in given.items() if path is not None}
        values |= {"kind": "images", "images": [str(examples)], "columns": dict(columns or {})}
        values |= {} if split is None else {"split": list(split)}
        return open_picture_data(build(ImagesConfig, values, where="data"), run)
    if run is not None and reads_regions(run):
        task = task or "picture_texts"
    given = {"valid": valid, "test": test, "task": task, "split": split}
    given["columns"] = dict(columns or {}) or None
    given |= {"leaks": leaks, "drop_bad_labels": drop_bad_labels}
    for path in (examples, valid, test):
        if path is not None and is_pipe(path):
            raise ValueError(f"{path}: examples are read more than once; save them to a file, and give the file")
    values = {"kind": "examples", "examples": [str(examples)], "select": select}
    for name, value in given.items():
        if value is not None:
            values[name] = [str(value)] if name in ("valid", "test") else value
    config = make_config(values)
    assert isinstance(config, ExamplesConfig)
    return TaskData(config=config, labelled=read(config)[0])


def reads_pictures(run: Path) -> bool:
    """Whether a run learns from pictures alone."""
    return not is_architecture(run) and find(read_origin(run)["kind"]).reads == ("images",)


def reads_regions(run: Path) -> bool:
    """Whether a run reads texts with the regions of pictures."""
    return not is_architecture(run) and "words and regions" in find(read_origin(run)["kind"]).does


def open_picture_data(config: ImagesConfig, run: Path) -> TaskData:
    """The pictures of a folder with their classes, in the size that a run reads."""
    found = open_pictures(config, config.images, given=load_processor(run), progress=None)
    train, valid, test = ((found.splits[name].examples if name in found.splits else None) for name in NAMES)
    labelled = Labelled(task="picture_classification", train=train or (), valid=valid, test=test, format="pictures")
    PictureClassification.settings_from_corpus(PictureClassification.Config(), make_picture_corpus(found))
    return TaskData(config=config, labelled=labelled, pictures=found)


def check_select(data: TaskData, select: float) -> None:
    """A ValueError where `select` has no effect."""
    if data.labelled.selection is None:
        raise ValueError(
            f"--select {select:g}: it is for --valid without test examples, which are scored; leave it out"
        )


def check_data(run: Path, data: TaskData) -> Check | PictureCheck:
    """Sizes, labels, leaks and lengths of examples, for the tokenizer and the window of a run."""
    if data.pictures is not None:
        return data.pictures.check
    task, found = data.task, data.labelled
    options: dict[str, Any] = {"labels": task.summarise_labels(found), "if_too_long": task.wording.too_long}
    if is_architecture(run):
        return check(found, **options)  # it reads the letters of words, so no word is unknown
    window = read_origin(run)["model"].get("window")
    return check(found, tokenizer=load_tokenizer(run), frame_overhead=3, window=window, **options)


def describe_selection(data: TaskData) -> list[str]:
    """A line on which examples choose the checkpoint, where those of validation are only scored; otherwise nothing."""
    labelled = data.labelled
    if labelled.selection is None:
        return []
    if chosen := len(labelled.selection):
        total = chosen + len(labelled.train)
        return [
            f"selection: {chosen:,} of the {total:,} training examples are held out and choose the checkpoint; valid "
            "is only scored"
        ]
    select = data.config.select if isinstance(data.config, ExamplesConfig) else None
    why = f"fewer than {FEWEST_TO_SELECT} different training texts" if select else "--select 0"
    return [f"selection: none ({why}), the last checkpoint is kept; valid is only scored"]
