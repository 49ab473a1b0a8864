"""Trials: one run, one way of learning, one number of examples and one seed each; what is done is not done again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from lmlab.config import build
from lmlab.data.corpora.examples import ExamplesConfig, draw, fingerprint, parts_of
from lmlab.data.readers.examples import Example, Labelled
from lmlab.language_model import load
from lmlab.runs import run as runs
from lmlab.runs.jobs import Reporter
from lmlab.runs.recipe import Recipe, read_record
from lmlab.runs.run_files import clear, is_run, remove
from lmlab.runs.storage import read_json, write_bytes, write_json
from lmlab.tasks.example_io import to_json_with_truth
from lmlab.tasks.task import Prediction
from lmlab.training.devices import choose_device
from lmlab.training.energy_meter import Cost
from lmlab.training.progress import TrainingProgress
from lmlab.training.settings import TrainConfig
from lmlab.transfer.from_scratch import is_body, plan_body
from lmlab.transfer.planning import labels_of, plan_finetuning, read_origin
from lmlab.transfer.results import Result, score_predictions
from lmlab.transfer.ulmfit import ENDING, is_the_same, plan_tuning, tune, tuned_for

PREDICTIONS = "predictions.jsonl"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One way to learn a task."""

    origin: Path
    how: str = "full"
    take: int | None = None
    """How many training examples; None for all."""
    seed: int = 0
    layers: str = "last"
    epochs: float | None = None
    task: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the task."""
    train: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of training."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Of a body: further settings of it."""
    language: Mapping[str, Any] = field(default_factory=dict)
    """Of ulmfit: settings of the training of its language model."""
    note: str = ""

    @property
    def name(self) -> str:
        """The name of its folder."""
        parts = [self.origin.name, self.how, "all" if self.take is None else str(self.take), f"seed-{self.seed}"]
        if self.layers != "last":
            parts.append(self.layers.replace(":", "_").strip("_"))
        return "-".join(parts)


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """The examples of a task as they were read, once for all trials."""

    config: ExamplesConfig
    labelled: Labelled

    @property
    def held_out(self) -> tuple[str, Sequence[Example]]:
        """What scores are told of: the test examples, or those of validation where there are no others."""
        if self.labelled.test:
            return "test", self.labelled.test
        return "valid", self.labelled.valid or ()

    @property
    def selecting(self) -> Sequence[Example]:
        """What chooses between checkpoints, and between settings of a baseline; none where all else is scored."""
        return parts_of(self.labelled)[1] or () if self.chosen_apart else ()

    @property
    def chosen_apart(self) -> bool:
        """Whether what is scored chooses nothing."""
        return bool(self.labelled.test) or self.labelled.selection is not None

    def taken(self, trial: Trial) -> TaskData:
        """The same with as many training examples as a trial has."""
        if trial.take is None or trial.take >= len(self.labelled.train):
            return self
        config = self.config.model_copy(update={"take": trial.take, "draw": trial.seed})
        train = draw(self.labelled.train, trial.take, seed=trial.seed)
        return TaskData(config=config, labelled=replace(self.labelled, train=train))


def carry_out(
    trial: Trial,
    data: TaskData,
    path: Path,
    *,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    overwrite: bool = False,
    tuned: Path | None = None,
) -> Result | None:
    """Learn in the folder `path`, or go on there, and score what was learnt; None where it was interrupted.

    Of ulmfit the language model is tuned in the folder `tuned`, by default beside `path`, or taken from there.
    """
    note = trial.note
    own, recipe = data.taken(trial), plan(trial, data)
    if trial.how == "ulmfit":
        place = tuned or tuned_for(path)
        language = tune(
            plan_language(trial, data),
            place,
            overwrite=overwrite,
            owner=path,
            reporter=reporter,
            interrupted=interrupted,
        )
        if language is None:
            return None
        note = f"after {Cost(*language.progress.cost).seconds:.0f} s of tuning its language model"
        recipe = plan(replace(trial, origin=place), data)
    if is_run(path) and not overwrite:
        if changed := find_changes(path, recipe, own):
            raise ValueError(
                f"{path} was begun with other settings ({', '.join(changed)}): go on with the same ones, or replace it "
                "with --overwrite"
            )
        texts = {name: value for name in recipe.data.PATHS if (value := getattr(recipe.data, name)) is not None}
        outcome = runs.resume(path, texts=texts, reporter=reporter, interrupted=interrupted)
    else:
        outcome = runs.start(recipe, path, overwrite=overwrite, reporter=reporter, interrupted=interrupted)
    if outcome.interrupted:
        return None
    return score_run(path, replace(trial, note=note), own, outcome.progress)


def plan_language(trial: Trial, data: TaskData) -> Recipe:
    """How the language model is tuned that ulmfit begins with: on all training texts, however many labels are taken."""
    if read_origin(trial.origin)["kind"] == "word2vec":
        raise ValueError(f"--how ulmfit tunes a language model first, and {trial.origin} is a word2vec: leave it out")
    device = {name: trial.train[name] for name in ("device", "country") if name in trial.train}
    return plan_tuning(trial.origin, data.labelled.train, seed=trial.seed, train={**device, **trial.language})


def plan(trial: Trial, data: TaskData) -> Recipe:
    """The recipe of a trial; a ValueError says what is wrong with its settings."""
    build(TrainConfig, trial.train, where="train")  # by themselves, before others are derived from them
    own = data.taken(trial)
    labels = labels_of(data.labelled)  # all of them, even where the examples that are taken lack some
    planner = partial(plan_body, model=trial.model) if is_body(trial.origin) else plan_finetuning
    return planner(
        trial.origin,
        own.labelled,
        own.config,
        how=trial.how,
        seed=trial.seed,
        epochs=trial.epochs,
        task={
            **({"labels": list(labels)} if labels else {}),
            **({"layers": trial.layers} if trial.how == "frozen" else {}),
            **trial.task,
        },
        train=trial.train,
    )


def find_changes(path: Path, recipe: Recipe, data: TaskData) -> list[str]:
    """In what a run that was begun differs from a recipe: settings by name, `examples`, or `RUN`, its origin."""
    record = read_record(path)
    found = [] if record.text_sha256 in (None, fingerprint_of(data.labelled)) else ["examples"]
    other = record.recipe.kind != recipe.kind or record.recipe.model != recipe.model
    found += ["RUN"] if other or record.origin_differs(recipe.origin) else []
    for group, begun, wanted in (
        ("objective", record.recipe.objective, recipe.objective),
        ("train", (record.begun or record.recipe.train).model_dump(), recipe.train.model_dump()),
    ):
        found += [f"{group}.{name}" for name in wanted if name != "device" and begun.get(name) != wanted[name]]
    return found


def score_run(path: Path, trial: Trial, data: TaskData, progress: TrainingProgress) -> Result:
    """The result of a finished trial; its predictions are written beside it."""
    split, examples = data.held_out
    recipe = read_record(path).recipe
    device = choose_device(recipe.train.device)
    predictor = load(path, device=device).predictor
    predictions = predictor.predict(examples)
    write_predictions(path / PREDICTIONS, predictions, examples)
    mix = predictor.mix
    cost = Cost(*progress.cost)
    return Result(
        name=trial.origin.name,
        how=trial.how,
        run=str(trial.origin),
        layers=trial.layers,
        examples=len(data.labelled.train),
        seed=trial.seed,
        split=split,
        count=len(examples),
        values=score_predictions(predictor.task.metrics, predictions, examples),
        seconds=cost.seconds,
        joules=cost.joules,
        flops=progress.flops,
        steps=progress.step,
        rate=recipe.train.rate,
        mix=None if mix is None else mix.shares().tolist(),
        gamma=None if mix is None else mix.gamma.item(),
        note=trial.note,
    )


def write_predictions(path: Path, predictions: Sequence[Prediction], examples: Sequence[Example]) -> None:
    """One line for each example: what it is, what was said of it, and what is true."""
    lines = [f"{to_json_with_truth(*pair)}\n" for pair in zip(examples, predictions, strict=True)]
    write_bytes(path, "".join(lines).encode())


def carry_out_all(
    trials: Sequence[Trial],
    data: TaskData,
    folder: Path,
    *,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Trial, Result]]:
    """Each trial with its result, in order; those that were done in this folder before are read from it.

    The weights of a trial are removed once it is scored; its predictions stay.
    """
    for trial in trials:  # before anything is written
        plan(trial, data)
        if trial.how == "ulmfit":
            plan_language(trial, data)
    for trial in trials:
        result_path, path = result_file(folder, trial), folder / trial.name
        if is_done(result_path, trial, data):
            yield trial, build(Result, read_json(result_path)["result"], where=str(result_path))
            continue
        if interrupted():
            return
        anew = is_run(path) and not _may_go_on(path, result_path, trial, data)
        result_path.unlink(missing_ok=True)
        tuned = folder / f"{trial.origin.name}-seed-{trial.seed}{ENDING}"
        if trial.how == "ulmfit" and is_run(tuned) and not is_the_same(tuned, plan_language(trial, data)):
            clear(tuned)
        result = carry_out(trial, data, path, reporter=reporter, interrupted=interrupted, overwrite=anew, tuned=tuned)
        if result is None:
            return
        write_json(result_path, {"key": _key(trial, data), "result": result.model_dump()})
        for name in ("model.safetensors", "head.safetensors", "last", "previous", "checkpoints"):
            remove(path / name)
        yield trial, result


def _may_go_on(path: Path, result_path: Path, trial: Trial, data: TaskData) -> bool:
    """Whether a trial that was begun is this very one; of one that was scored the weights are gone."""
    return not result_path.is_file() and not find_changes(path, plan(trial, data), data.taken(trial))


def result_file(folder: Path, trial: Trial) -> Path:
    """Where the result of a trial is kept, in the folder of all trials."""
    return folder / f"{trial.name}.json"


def is_done(path: Path, trial: Trial, data: TaskData) -> bool:
    """Whether a file holds the result of this very trial."""
    if not path.is_file():
        return False
    plain = repr(trial)  # what keys were made of before 0.5.0
    return read_json(path).get("key") in (_key(trial, data), _key(trial, data, said=plain))


def _key(trial: Trial, data: TaskData, *, said: str | None = None) -> str:
    """What a result depends on: the trial, its data and weights; wherever they are, and on whatever device."""
    weights = trial.origin / "manifest.json"
    train = {name: value for name, value in trial.train.items() if name != "device"}
    plain = {**vars(trial), "origin": trial.origin.name, "train": train}
    said = said or json.dumps(plain, sort_keys=True, default=str)
    content = [fingerprint_of(data.labelled), weights.read_text() if weights.is_file() else "", said]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def fingerprint_of(labelled: Labelled) -> str:
    """The fingerprint of all examples."""
    return fingerprint(parts_of(labelled))
