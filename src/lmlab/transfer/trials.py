"""Trials: each is one run, one method, one number of examples and one seed. Finished trials are not run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lmlab.config import build
from lmlab.data.corpora.examples import ExamplesConfig
from lmlab.data.readers.examples import Example
from lmlab.language_model import load
from lmlab.runs import run as runs
from lmlab.runs.jobs import Reporter
from lmlab.runs.recipe import Recipe
from lmlab.runs.recipe_record import read_record
from lmlab.runs.run_files import OtherSettingsError, clear, is_run, remove
from lmlab.runs.storage import read_json, write_bytes, write_json
from lmlab.tasks.predicting import to_json_with_truth
from lmlab.tasks.records import Prediction
from lmlab.training.devices import choose_device
from lmlab.training.energy_meter import Cost
from lmlab.training.progress import TrainingProgress
from lmlab.training.settings import TrainConfig
from lmlab.transfer.from_scratch import CacheFile, is_architecture, plan_from_scratch
from lmlab.transfer.recipe import find_trial_changes, plan_finetuning, read_origin
from lmlab.transfer.results import Result, read_result, score_predictions
from lmlab.transfer.task_data import TaskData
from lmlab.transfer.ulmfit import ENDING, language_model_folder, plan_tuning, tune

PREDICTIONS = "predictions.jsonl"
WEIGHTS = ("model.safetensors", "head.safetensors", "last", "previous", "checkpoints")
"""Files of a trial that are removed once it is scored."""
OLD_NAMES = {"how": "method", "take": "limit"}
"""Fields of a trial as versions before 0.6.0 wrote them."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One way to learn a task."""

    origin: Path
    method: str = "full"
    limit: int | None = None
    """Number of training examples; None for all."""
    seed: int = 0
    layers: str = "last"
    epochs: float | None = None
    task: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the task."""
    train: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of training."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of a model that is trained from scratch."""
    language: Mapping[str, Any] = field(default_factory=dict)
    """Of ulmfit: settings of the training of its language model."""
    note: str = ""

    @property
    def name(self) -> str:
        """The name of its folder."""
        parts = [self.origin.name, self.method, "all" if self.limit is None else str(self.limit), f"seed-{self.seed}"]
        if self.layers != "last":
            parts.append(self.layers.replace(":", "_").strip("_"))
        return "-".join(parts)

    def old_fields(self) -> dict[str, Any]:
        """The fields by the names of versions before 0.6.0."""
        old = {new: name for name, new in OLD_NAMES.items()}
        return {old.get(name, name): value for name, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """A trial with its recipe. Planning writes nothing: `files` of the cache are written when it is run."""

    trial: Trial
    data: TaskData
    """With as many examples as the trial has."""
    key: str
    """What the result depends on."""
    old_key: str
    """The same by the rules of versions before 0.5.0."""
    recipe: Recipe
    language: Recipe | None = None
    """Of ulmfit: how its language model is tuned."""
    files: Sequence[CacheFile] = ()

    def find_changes(self, path: Path) -> list[str]:
        """In what a run that was started differs from this trial."""
        return find_trial_changes(path, self.recipe, fingerprint=self.data.fingerprint)

    def is_done(self, path: Path) -> bool:
        """Whether a file holds the result of this trial."""
        return path.is_file() and read_json(path).get("key") in (self.key, self.old_key)

    def result_file(self, folder: Path) -> Path:
        """The file of its result, in the folder of all trials."""
        return folder / f"{self.trial.name}.json"


def plan_trial(trial: Trial, data: TaskData) -> PlannedTrial:
    """The recipe of a trial; a ValueError says what is wrong with its settings."""
    build(TrainConfig, trial.train, where="train")  # before others are derived from them
    own, language, files = data.limited(trial.limit, seed=trial.seed), None, []
    labels = data.task.labels_of(data.labelled)  # all of them, even where the limited examples lack some
    task = {
        **({"labels": list(labels)} if labels else {}),
        **({"layers": trial.layers} if trial.method == "frozen" else {}),
        **trial.task,
    }
    given: dict[str, Any] = {"method": trial.method, "seed": trial.seed, "epochs": trial.epochs, "task": task}
    given["train"] = trial.train
    if is_architecture(trial.origin):
        assert isinstance(own.config, ExamplesConfig)
        recipe, file = plan_from_scratch(trial.origin, own.labelled, own.config, model=trial.model, **given)
        files.append(file)
    else:
        recipe = plan_finetuning(trial.origin, own.labelled, own.config, **given)
    if trial.method == "ulmfit":
        language, file = plan_language_model(trial, data)
        files.append(file)
    return PlannedTrial(
        trial=trial,
        data=own,
        key=_key(trial, data, _plain(trial)),
        old_key=_key(trial, data, f"Trial({', '.join(f'{k}={v!r}' for k, v in trial.old_fields().items())})"),
        recipe=recipe,
        language=language,
        files=files,
    )


def plan_language_model(trial: Trial, data: TaskData) -> tuple[Recipe, CacheFile]:
    """How ulmfit tunes its language model: on all training texts, whatever the number of labels."""
    if read_origin(trial.origin)["kind"] == "word2vec":
        raise ValueError(f"--how ulmfit tunes a language model first, and {trial.origin} is a word2vec: leave it out")
    device = {name: trial.train[name] for name in ("device", "country") if name in trial.train}
    return plan_tuning(trial.origin, data.labelled.train, seed=trial.seed, train={**device, **trial.language})


def run_trial(
    planned: PlannedTrial,
    path: Path,
    *,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    overwrite: bool = False,
    tuned: Path | None = None,
) -> Result | None:
    """Train in the folder `path`, or resume there, and score the result; None where it was interrupted.

    Ulmfit tunes its language model in the folder `tuned`, by default next to `path`, or uses the one there.
    """
    trial = planned.trial
    for file in planned.files:
        file.write()
    if planned.language is not None:
        tuned = tuned or language_model_folder(path)
        language = tune(
            planned.language,
            tuned,
            overwrite=overwrite,
            owner=path,
            reporter=reporter,
            interrupted=interrupted,
        )
        if language is None:
            return None
        seconds = Cost(*language.progress.cost).seconds
        trial = replace(trial, note=f"after {seconds:.0f} s of tuning its language model")
        planned = from_tuned(planned, tuned)
    if is_run(path) and not overwrite:
        if changed := planned.find_changes(path):
            raise OtherSettingsError(path, changed)
        data = planned.recipe.data
        texts = {name: value for name in data.PATHS if (value := getattr(data, name)) is not None}
        outcome = runs.resume(
            path, texts=texts, reporter=reporter, interrupted=interrupted, prepare=planned.data.prepare
        )
    else:
        outcome = runs.start(
            planned.recipe,
            path,
            overwrite=overwrite,
            reporter=reporter,
            interrupted=interrupted,
            prepare=planned.data.prepare,
        )
    return None if outcome.interrupted else score_run(path, trial, planned.data, outcome.progress)


def from_tuned(planned: PlannedTrial, tuned: Path) -> PlannedTrial:
    """A trial of ulmfit that starts from its tuned language model."""
    labels = planned.recipe.objective["labels"]
    task = {**({"labels": labels} if labels else {}), **planned.trial.task}
    trial = replace(planned.trial, origin=tuned, method="gradual", limit=None, task=task)
    return replace(planned, recipe=plan_trial(trial, planned.data).recipe)


def score_run(path: Path, trial: Trial, data: TaskData, progress: TrainingProgress) -> Result:
    """The result of a finished trial; its predictions are written into its folder."""
    split, examples = data.held_out
    recipe = read_record(path).recipe
    predictor = load(path, device=choose_device(recipe.train.device)).predictor
    predictions = predictor.predict(examples)
    write_predictions(path / PREDICTIONS, predictions, examples)
    mix = predictor.mix
    cost = Cost(*progress.cost)
    return Result(
        name=trial.origin.name,
        method=trial.method,
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
        mix=None if mix is None else mix.weights().tolist(),
        gamma=None if mix is None else mix.gamma.item(),
        note=trial.note,
    )


def write_predictions(path: Path, predictions: Sequence[Prediction], examples: Sequence[Example]) -> None:
    """One line for each example: its texts, the prediction, and the true label."""
    lines = [f"{to_json_with_truth(*pair)}\n" for pair in zip(examples, predictions, strict=True)]
    write_bytes(path, "".join(lines).encode())


def run_trials(
    trials: Sequence[PlannedTrial],
    folder: Path,
    *,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Trial, Result]]:
    """Each trial with its result, in order; results that are in this folder already are read from it.

    The weights of a trial are removed once it is scored; its predictions stay.
    """
    for planned in trials:
        trial, result_path = planned.trial, planned.result_file(folder)
        path = folder / trial.name
        if planned.is_done(result_path):
            yield trial, read_result(result_path)
            continue
        if interrupted():
            return
        anew = is_run(path) and (result_path.is_file() or bool(planned.find_changes(path)))
        result_path.unlink(missing_ok=True)
        tuned = folder / f"{trial.origin.name}-seed-{trial.seed}{ENDING}"
        if planned.language is not None and is_run(tuned) and find_trial_changes(tuned, planned.language):
            clear(tuned)
        result = run_trial(planned, path, reporter=reporter, interrupted=interrupted, overwrite=anew, tuned=tuned)
        if result is None:
            return
        write_json(result_path, {"key": planned.key, "result": result.model_dump()})
        for name in WEIGHTS:
            remove(path / name)
        yield trial, result


def _plain(trial: Trial) -> str:
    """A trial as JSON, whatever the folder of its run and the device; names are those of the first version."""
    train = {name: value for name, value in trial.train.items() if name != "device"}
    plain = {**trial.old_fields(), "origin": trial.origin.name, "train": train}
    return json.dumps(plain, sort_keys=True, default=str)


def _key(trial: Trial, data: TaskData, description: str) -> str:
    """A hash of a trial, of its data and of its weights."""
    weights = trial.origin / "manifest.json"
    content = [data.fingerprint, weights.read_text() if weights.is_file() else "", description]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()
