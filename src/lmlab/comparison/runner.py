"""Trains or resumes each system in its own run directory, and scores it on the same test text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lmlab.comparison.conditions import describe_conditions
from lmlab.comparison.plan import (
    SWEEP_FACTORS,
    SWEEP_FRACTION,
    Conditions,
    PlannedRun,
    Skipped,
    budget_of,
    check_corpora,
    plan,
    trains,
    write_budget,
)
from lmlab.comparison.records import (
    ComparedRun,
    RunScores,
    TrackScores,
    add_costs,
    read_curve,
    read_record,
    spent,
    write_record,
)
from lmlab.comparison.shared_test_data import HeldOutItems, Tests, TestText, make_test_text, shorten_for_pseudo
from lmlab.comparison.tracks import track_of, tracks_of
from lmlab.comparison.tracks.track import Track
from lmlab.costs.parameters import count_parameters
from lmlab.data import prepare
from lmlab.data.corpora.corpus import Corpus
from lmlab.data.corpora.episodes import EpisodeSplit
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.corpora.recordings import SpeechConfig, split_clips
from lmlab.data.corpora.sequences import SequenceSplit
from lmlab.files import digest_file
from lmlab.language_model import LanguageModel, load
from lmlab.runs import run
from lmlab.runs.jobs import Reporter, RunPlan
from lmlab.runs.recipe import Recipe
from lmlab.runs.run_files import CONDITIONS, LOCK, SWEEP, clear, clear_comparison, is_run
from lmlab.runs.storage import write_json
from lmlab.training.budget import Budget, parse_budget
from lmlab.training.devices import choose_device
from lmlab.training.metrics_log import NotFiniteError
from lmlab.training.progress import TrainingProgress


class Watcher(Protocol):
    """Receives the progress of a comparison, for example to show it in the terminal."""

    def stage(self, name: str, done: int, total: int) -> None:
        """The preparation of the text has come so far."""

    def ready(self, planned_runs: list[PlannedRun], skipped: list[Skipped]) -> None:
        """The text is prepared; these runs are to be made."""

    def begin(self, planned: PlannedRun, doing: str) -> None:
        """A run is now being trained, or scored."""

    def log(self, planned: PlannedRun, line: dict[str, Any], progress: TrainingProgress) -> None:
        """A line of metrics of a run."""

    def scored(self, planned: PlannedRun, record: ComparedRun, score: float) -> None:
        """A run is finished; the score is that in the track of what its system is known for."""

    def failed(self, planned: PlannedRun, error: str) -> None:
        """A run has failed; the others continue."""


class Unwatched:
    """A watcher that does nothing."""

    def stage(self, name: str, done: int, total: int) -> None: ...

    def ready(self, planned_runs: list[PlannedRun], skipped: list[Skipped]) -> None: ...

    def begin(self, planned: PlannedRun, doing: str) -> None: ...

    def log(self, planned: PlannedRun, line: dict[str, Any], progress: TrainingProgress) -> None: ...

    def scored(self, planned: PlannedRun, record: ComparedRun, score: float) -> None: ...

    def failed(self, planned: PlannedRun, error: str) -> None: ...


class Interruption(Exception):  # noqa: N818 (it is no error)
    """The user has ended the comparison; what is done so far is saved."""


class Results(NamedTuple):
    """The results of a comparison, before they are ranked."""

    description: dict[str, Any]  # conditions.json
    tests: Tests
    planned_runs: list[PlannedRun]
    records: dict[str, ComparedRun]  # by the name of the run
    failures: list[Skipped]


def train_and_score(
    conditions: Conditions,
    folder: Path,
    *,
    replacing: bool = False,
    processes: int = 1,
    watcher: Watcher | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Results:
    """Train and score every system, `processes` of them at the same time.

    What an earlier, interrupted call has done is not done again.

    With `replacing`, the comparison that is there is removed as soon as all is ready for the new one.
    """
    watcher = watcher or Unwatched()
    corpora = prepare_corpora(conditions, watcher)
    check_corpora(corpora, conditions)
    planned_runs, failures = plan(conditions, corpora)
    if not planned_runs:
        raise ValueError("no model can be trained:\n" + "\n".join(failure.reason for failure in failures))
    tests = read_tests(conditions, corpora)
    if replacing:
        clear_comparison(folder, new=[planned.name for planned in planned_runs])
    description = describe_conditions(conditions, corpora, folder, part=tests.part)
    if processes > 1:
        description["processes"] = processes
        write_json(folder / CONDITIONS, description)
    watcher.ready(planned_runs, failures)
    _warm_up()
    records: dict[str, ComparedRun] = {}
    failed: dict[str, str] = {}
    if processes > 1:
        from lmlab.comparison.side_by_side import train_side_by_side

        missing = [each for each in planned_runs if read_record(folder, each.name) is None]
        failed = train_side_by_side(
            missing, conditions, folder, processes=processes, watcher=watcher, interrupted=interrupted
        )
    for planned in planned_runs:
        corpus = corpora[conditions.tokenizers[planned.system]]
        try:
            if planned.name in failed:
                raise ValueError(failed[planned.name])
            record = read_record(folder, planned.name)
            if record is None:
                record = train_planned(
                    planned, conditions, corpus, tests, folder=folder, watcher=watcher, interrupted=interrupted
                )
        except Interruption:
            raise
        except Exception as error:
            reason = str(error).strip() or type(error).__name__
            failures.append(Skipped(planned.name, planned.system, reason))
            watcher.failed(planned, reason)
            continue
        records[planned.name] = record
        track = track_of(planned.system, record.scores.data)
        watcher.scored(planned, record, track.score_run(record.scores.own, tests))
    return Results(description, tests, planned_runs, records, failures)


def _warm_up() -> None:
    """One small step, so that the first system does not pay for waking torch up."""
    import torch

    layer = torch.nn.Linear(64, 64)
    layer(torch.zeros(64, 64)).sum().backward()


def prepare_corpora(conditions: Conditions, watcher: Watcher) -> dict[str, Corpus]:
    """The text as tokens of each tokenizer that is in use; the documents and their split are the same for all."""
    corpora = {}
    for spec in dict.fromkeys(conditions.tokenizers.values()):
        corpora[spec] = prepare(conditions.data, processor=spec or None, progress=watcher.stage)
    return corpora


def read_tests(conditions: Conditions, corpora: Mapping[str, Corpus]) -> Tests:
    """The test documents, which are the same whatever the tokenizer; the part is as short as the finest wants it."""
    test = next(iter(corpora.values())).test
    empty = TestText([], "")
    if isinstance(conditions.data, SpeechConfig):
        return Tests(empty, empty, media=tuple(split_clips(conditions.data)["test"]))
    if isinstance(test, (PictureSplit, EpisodeSplit)):
        return Tests(empty, empty, media=test)
    if isinstance(test, SequenceSplit):
        return Tests(empty, empty, HeldOutItems(list(test.items()), test.tokenizer))
    in_part = [
        spec for system, spec in conditions.tokenizers.items() if any(track.on_part for track in tracks_of(system))
    ]
    splits = [corpora[spec].test for spec in in_part or conditions.tokenizers.values()]
    tokens = max(split.size + 1 for split in splits if split is not None)
    assert splits[0] is not None, "checked before"
    whole = make_test_text(list(splits[0].texts()), prompt=conditions.prompt)
    return Tests(whole, shorten_for_pseudo(whole, tokens=tokens))


def evaluate_run(
    model: LanguageModel,
    path: Path,
    tests: Tests,
    *,
    system: str,
    progress: Callable[[int, int], None] | None = None,
) -> RunScores:
    """The scores and curve of a run in the track that its system is known for, and in others."""

    def evaluate(track: Track) -> TrackScores:
        curve = read_curve(path, metric=track.curve.field)
        return replace(track.evaluate(model, path, tests, progress), curve=curve)

    data = "" if tests.sequences is None else tests.sequences.tokenizer.kind
    first, *others = tracks_of(system, data)
    also = {track.name: evaluate(track) for track in others}
    return RunScores(evaluate(first), also, data)


def train_planned(
    planned: PlannedRun,
    conditions: Conditions,
    corpus: Corpus,
    tests: Tests,
    *,
    folder: Path,
    watcher: Watcher,
    interrupted: Callable[[], bool],
) -> ComparedRun:
    """Train or resume one run, score it and write its record; an Interruption if it is interrupted."""
    return _Session(folder, watcher, interrupted).train_and_score(planned, conditions, corpus, tests)


class _Session(NamedTuple):
    """Trains and scores the systems of a comparison in its folder."""

    folder: Path
    watcher: Watcher
    interrupted: Callable[[], bool]

    def train_and_score(self, planned: PlannedRun, conditions: Conditions, corpus: Corpus, tests: Tests) -> ComparedRun:
        """Train one system with one seed, score it and write its record."""
        budget = parse_budget(budget_of(conditions, planned.system, corpus))
        sweep: list[dict[str, Any]] = []
        recipe = planned.recipe
        if conditions.sweep and trains(planned.system):
            sweep = self._sweep(planned, budget)
            best = min(sweep, key=lambda tried: math.inf if (loss := tried["valid_loss"]) is None else loss)
            budget = Budget(budget.amount * (1 - SWEEP_FRACTION), budget.unit)
            recipe = _with_training(recipe, rate=best["rate"])
        recipe = _with_training(recipe, budget=write_budget(budget))
        self.watcher.begin(planned, "training")
        outcome = self._train(recipe, self.folder / planned.name, _Relay(planned, self.watcher))
        self.watcher.begin(planned, "scoring")

        def scoring(done: int, total: int) -> None:
            self.watcher.begin(planned, f"scoring {done / max(1, total):.0%}")

        model = load(self.folder / planned.name, device=choose_device(recipe.train.device))
        record = ComparedRun(
            name=planned.name,
            system=planned.system,
            seed=planned.seed,
            weights_sha256=digest_file(self.folder / planned.name / "model.safetensors"),
            parameters=outcome.parameters,
            embedding_parameters=count_parameters(model.model).embedding,
            rate=recipe.train.rate if trains(planned.system) else None,
            sweep=sweep,
            training=add_costs([spent(outcome.progress, recipe), *(tried["training"] for tried in sweep)]),
            energy_method=outcome.progress.energy_method,
            scores=evaluate_run(model, self.folder / planned.name, tests, system=planned.system, progress=scoring),
        )
        write_record(self.folder, record)
        return record

    def _sweep(self, planned: PlannedRun, budget: Budget) -> list[dict[str, Any]]:
        """Three short runs with lower, usual and higher learning rates, out of the same budget."""
        per_rate = Budget(budget.amount * SWEEP_FRACTION / len(SWEEP_FACTORS), budget.unit)
        tried = []
        for factor in SWEEP_FACTORS:
            rate = planned.recipe.train.rate * factor
            self.watcher.begin(planned, f"rate {rate:.2g}")
            recipe = _with_training(planned.recipe, rate=rate, budget=write_budget(per_rate), evaluations=1)
            relay = _Relay(planned, self.watcher)
            loss: float | None = None
            bits: float | None = None
            try:
                outcome = self._train(recipe, self.folder / SWEEP / f"{planned.name}-rate{rate:.2g}", relay)
                loss, bits, progress = outcome.progress.best, outcome.bits_per_byte, outcome.progress
            except NotFiniteError:  # too high a rate is a result like any other; it cost what it cost
                progress = relay.last
            cost = spent(progress, recipe)
            tried.append({"rate": rate, "valid_loss": loss, "valid_bits_per_byte": bits, "training": cost})
        if all(found["valid_loss"] is None for found in tried):
            raise ValueError("training failed with every learning rate of the sweep; give a lower --set train.rate")
        return tried

    def _train(self, recipe: Recipe, path: Path, reporter: Reporter) -> run.Outcome:
        """Start or resume a run; a directory without a recipe is started again."""
        if is_run(path):
            outcome = run.resume(path, reporter=reporter, interrupted=self.interrupted)
        else:
            if (path / LOCK).exists():
                clear(path)
            outcome = run.start(recipe, path, reporter=reporter, interrupted=self.interrupted)
        if outcome.interrupted:
            raise Interruption
        return outcome


def _with_training(recipe: Recipe, **settings: Any) -> Recipe:
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=settings)})


class _Relay:
    """Passes on to a watcher what a run reports."""

    def __init__(self, planned: PlannedRun, watcher: Watcher) -> None:
        self.planned, self.watcher, self.last = planned, watcher, TrainingProgress()

    def stage(self, name: str, done: int, total: int) -> None: ...

    def begin(self, plan: RunPlan) -> None: ...

    def log(self, line: dict[str, Any], progress: TrainingProgress) -> None:
        self.last = progress
        self.watcher.log(self.planned, line, progress)
