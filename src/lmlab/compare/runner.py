"""Where systems meet: each is trained or gone on with in its own run directory, and scored on the same test text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lmlab.compare.conditions import describe_conditions
from lmlab.compare.held_out import Tests, make_test_text, shorten_for_pseudo
from lmlab.compare.plan import (
    SWEEP_SHARE,
    SWEPT,
    Conditions,
    Entrant,
    Refusal,
    budget_of,
    check_corpora,
    plan,
    trains,
    write_budget,
)
from lmlab.compare.records import Record, add_costs, read_curve, read_record, spent, write_record
from lmlab.compare.tracks import Track, contests_of, track_of
from lmlab.costs.parameters import count_parameters
from lmlab.data import prepare
from lmlab.data.corpora.corpus import Corpus
from lmlab.language_model import LanguageModel, load
from lmlab.runs import run
from lmlab.runs.jobs import Plan, Reporter
from lmlab.runs.recipe import Recipe
from lmlab.runs.run_files import LOCK, SWEEP, clear, clear_comparison, is_run
from lmlab.runs.storage import digest
from lmlab.training.budget import Budget, parse_budget
from lmlab.training.devices import choose_device
from lmlab.training.metrics_log import NotFiniteError
from lmlab.training.progress import TrainingProgress


class Watcher(Protocol):
    """Who is told how the comparison goes: the terminal, or nobody."""

    def stage(self, name: str, done: int, total: int) -> None:
        """The preparation of the text has come so far."""

    def ready(self, entrants: list[Entrant], refusals: list[Refusal]) -> None:
        """The text is prepared; these runs are to be made."""

    def begin(self, entrant: Entrant, doing: str) -> None:
        """A run is now being trained, or scored."""

    def log(self, entrant: Entrant, line: dict[str, Any], progress: TrainingProgress) -> None:
        """A line of metrics of a run."""

    def scored(self, entrant: Entrant, record: Record, score: float) -> None:
        """A run is finished; the score is that in the track of what its system is known for."""

    def failed(self, entrant: Entrant, error: str) -> None:
        """A run has failed; the others go on."""


class Unwatched:
    """Tells nobody."""

    def stage(self, name: str, done: int, total: int) -> None: ...

    def ready(self, entrants: list[Entrant], refusals: list[Refusal]) -> None: ...

    def begin(self, entrant: Entrant, doing: str) -> None: ...

    def log(self, entrant: Entrant, line: dict[str, Any], progress: TrainingProgress) -> None: ...

    def scored(self, entrant: Entrant, record: Record, score: float) -> None: ...

    def failed(self, entrant: Entrant, error: str) -> None: ...


class Interruption(Exception):  # noqa: N818 (it is no error)
    """The user has ended the comparison; what is done so far is saved."""


class Results(NamedTuple):
    """What a comparison came to, before it is ranked."""

    description: dict[str, Any]  # conditions.json
    tests: Tests
    entrants: list[Entrant]
    records: dict[str, Record]  # by the name of the run
    failures: list[Refusal]


def carry_out(
    conditions: Conditions,
    folder: Path,
    *,
    replacing: bool = False,
    watcher: Watcher | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Results:
    """Train and score every system; what an earlier, interrupted call has done is not done again.

    With `replacing`, the comparison that is there is removed as soon as all is ready for the new one.
    """
    watcher = watcher or Unwatched()
    corpora = prepare_corpora(conditions, watcher)
    check_corpora(corpora, conditions)
    entrants, failures = plan(conditions, corpora)
    if not entrants:
        raise ValueError("no model can be trained:\n" + "\n".join(failure.reason for failure in failures))
    tests = read_tests(conditions, corpora)
    if replacing:
        clear_comparison(folder, new=[entrant.name for entrant in entrants])
    description = describe_conditions(conditions, corpora, folder, part=tests.part)
    watcher.ready(entrants, failures)
    _warm_up()
    records: dict[str, Record] = {}
    for entrant in entrants:
        corpus = corpora[conditions.tokenizers[entrant.system]]
        try:
            record = read_record(folder, entrant.name)
            if record is None:
                record = _enter(entrant, conditions, corpus, folder, tests, watcher, interrupted)
        except Interruption:
            raise
        except Exception as error:
            reason = str(error).strip() or type(error).__name__
            failures.append(Refusal(entrant.name, entrant.system, reason))
            watcher.failed(entrant, reason)
            continue
        records[entrant.name] = record
        watcher.scored(entrant, record, track_of(entrant.system).score(record, tests))
    return Results(description, tests, entrants, records, failures)


def _warm_up() -> None:
    """One small step, so that the first system does not pay for waking torch up."""
    import torch

    layer = torch.nn.Linear(64, 64)
    layer(torch.zeros(64, 64)).sum().backward()


def prepare_corpora(conditions: Conditions, watcher: Watcher) -> dict[str, Corpus]:
    """The text as tokens of each tokenizer that is in use; the documents and their split are the same for all."""
    corpora = {}
    for spec in dict.fromkeys(conditions.tokenizers.values()):
        corpora[spec] = prepare(conditions.data, processor=spec, progress=watcher.stage)
    return corpora


def read_tests(conditions: Conditions, corpora: Mapping[str, Corpus]) -> Tests:
    """The test documents, which are the same whatever the tokenizer; the part is as short as the finest wants it."""
    in_part = [
        spec
        for system, spec in conditions.tokenizers.items()
        if any(track.text == "part" for track in contests_of(system))
    ]
    splits = [corpora[spec].test for spec in in_part or conditions.tokenizers.values()]
    tokens = max(split.size + 1 for split in splits if split is not None)
    assert splits[0] is not None, "checked before"
    whole = make_test_text(list(splits[0].texts()), prompt=conditions.prompt)
    return Tests(whole, shorten_for_pseudo(whole, tokens=tokens))


def measure(
    model: LanguageModel,
    path: Path,
    tests: Tests,
    *,
    system: str,
    progress: Callable[[int, int], None] | None = None,
) -> Record:
    """The scores and curve of a run in the track that its system is known for; those in others are under `also`."""

    def enter(track: Track) -> Record:
        return {"curve": read_curve(path, measure=track.curve), **track.measure(model, path, tests, progress)}

    first, *others = contests_of(system)
    also = {track.name: enter(track) for track in others}
    return {**enter(first), **({"also": also} if also else {})}


def _enter(
    entrant: Entrant,
    conditions: Conditions,
    corpus: Corpus,
    folder: Path,
    tests: Tests,
    watcher: Watcher,
    interrupted: Callable[[], bool],
) -> Record:
    """Train one system with one seed, score it and write its record."""
    budget = parse_budget(budget_of(conditions, entrant.system, corpus))
    sweep: list[dict[str, Any]] = []
    recipe = entrant.recipe
    if conditions.sweep and trains(entrant.system):
        sweep = _sweep(entrant, budget, folder, watcher, interrupted)
        best = min(sweep, key=lambda tried: math.inf if (loss := tried["valid_loss"]) is None else loss)
        budget = Budget(budget.amount * (1 - SWEEP_SHARE), budget.unit)
        recipe = _with_training(recipe, rate=best["rate"])
    recipe = _with_training(recipe, budget=write_budget(budget))
    watcher.begin(entrant, "training")
    outcome = _train(recipe, folder / entrant.name, _Relay(entrant, watcher), interrupted)
    watcher.begin(entrant, "scoring")

    def scoring(done: int, total: int) -> None:
        watcher.begin(entrant, f"scoring {done / max(1, total):.0%}")

    model = load(folder / entrant.name, device=choose_device(recipe.train.device))
    record = {
        "name": entrant.name,
        "system": entrant.system,
        "seed": entrant.seed,
        "weights_sha256": digest(folder / entrant.name / "model.safetensors"),
        "parameters": outcome.parameters,
        "embedding_parameters": count_parameters(model.model).embedding,
        "rate": recipe.train.rate if trains(entrant.system) else None,
        "sweep": sweep,
        "training": add_costs([spent(outcome.progress, recipe), *(tried["training"] for tried in sweep)]),
        "energy_method": outcome.progress.energy_method,
        **measure(model, folder / entrant.name, tests, system=entrant.system, progress=scoring),
    }
    write_record(folder, entrant.name, record)
    return record


def _sweep(
    entrant: Entrant, budget: Budget, folder: Path, watcher: Watcher, interrupted: Callable[[], bool]
) -> list[dict[str, Any]]:
    """Three short runs with lower, usual and higher learning rates, out of the same budget."""
    share = Budget(budget.amount * SWEEP_SHARE / len(SWEPT), budget.unit)
    tried = []
    for factor in SWEPT:
        rate = entrant.recipe.train.rate * factor
        watcher.begin(entrant, f"rate {rate:.2g}")
        recipe = _with_training(entrant.recipe, rate=rate, budget=write_budget(share), evaluations=1)
        relay = _Relay(entrant, watcher)
        loss: float | None = None
        bits: float | None = None
        try:
            outcome = _train(recipe, folder / SWEEP / f"{entrant.name}-rate{rate:.2g}", relay, interrupted)
            loss, bits, progress = outcome.progress.best, outcome.bits_per_byte, outcome.progress
        except NotFiniteError:  # too high a rate is a result like any other; it cost what it cost
            progress = relay.last
        cost = spent(progress, recipe)
        tried.append({"rate": rate, "valid_loss": loss, "valid_bits_per_byte": bits, "training": cost})
    if all(found["valid_loss"] is None for found in tried):
        raise ValueError("training failed with every learning rate of the sweep; give a lower --set train.rate")
    return tried


def _train(recipe: Recipe, path: Path, reporter: Reporter, interrupted: Callable[[], bool]) -> run.Outcome:
    """Start a run, or go on with it; what was left before its recipe was written is made anew."""
    if is_run(path):
        outcome = run.resume(path, reporter=reporter, interrupted=interrupted)
    else:
        if (path / LOCK).exists():
            clear(path)
        outcome = run.start(recipe, path, reporter=reporter, interrupted=interrupted)
    if outcome.interrupted:
        raise Interruption
    return outcome


def _with_training(recipe: Recipe, **settings: Any) -> Recipe:
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=settings)})


class _Relay:
    """Passes on to a watcher what a run reports."""

    def __init__(self, entrant: Entrant, watcher: Watcher) -> None:
        self.entrant, self.watcher, self.last = entrant, watcher, TrainingProgress()

    def stage(self, name: str, done: int, total: int) -> None: ...

    def begin(self, plan: Plan) -> None: ...

    def log(self, line: dict[str, Any], progress: TrainingProgress) -> None:
        self.last = progress
        self.watcher.log(self.entrant, line, progress)
