"""Where systems meet: each is trained or gone on with in its own run directory, and scored on the same test text."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lmlab import __version__, run
from lmlab.checkpoint import digest, read_json, write_json
from lmlab.compare.evaluation import TestText, evaluate, make_test_text
from lmlab.compare.plan import (
    SWEEP_SHARE,
    SWEPT,
    Conditions,
    Entrant,
    Refusal,
    budget_of,
    check_corpora,
    matched_parameters,
    plan,
    trains,
    write_budget,
)
from lmlab.config import build
from lmlab.costs.countries import find_grid
from lmlab.costs.parameters import count_parameters
from lmlab.data.corpus import Corpus
from lmlab.language_model import load
from lmlab.recipe import Recipe
from lmlab.training.budget import Budget, parse_budget
from lmlab.training.costs import Cost
from lmlab.training.loop import NotFiniteError, Progress

Record = dict[str, Any]
"""What is known of one finished run: its score, what it cost and how it came there. See `evaluate` and `spent`."""
CONDITIONS = "conditions.json"


class Watcher(Protocol):
    """Who is told how the comparison goes: the terminal, or nobody."""

    def stage(self, name: str, done: int, total: int) -> None:
        """The preparation of the text has come so far."""

    def ready(self, entrants: list[Entrant], refusals: list[Refusal]) -> None:
        """The text is prepared; these runs are to be made."""

    def begin(self, entrant: Entrant, doing: str) -> None:
        """A run is now being trained, or scored."""

    def log(self, entrant: Entrant, line: dict[str, Any], progress: Progress) -> None:
        """A line of metrics of a run."""

    def scored(self, entrant: Entrant, record: Record, bits_per_byte: float) -> None:
        """A run is finished."""

    def failed(self, entrant: Entrant, error: str) -> None:
        """A run has failed; the others go on."""


class Unwatched:
    """Tells nobody."""

    def stage(self, name: str, done: int, total: int) -> None: ...

    def ready(self, entrants: list[Entrant], refusals: list[Refusal]) -> None: ...

    def begin(self, entrant: Entrant, doing: str) -> None: ...

    def log(self, entrant: Entrant, line: dict[str, Any], progress: Progress) -> None: ...

    def scored(self, entrant: Entrant, record: Record, bits_per_byte: float) -> None: ...

    def failed(self, entrant: Entrant, error: str) -> None: ...


class Interruption(Exception):  # noqa: N818 (it is no error)
    """The user has ended the comparison; what is done so far is saved."""


class Results(NamedTuple):
    """What a comparison came to, before it is ranked."""

    description: dict[str, Any]  # conditions.json
    test: TestText
    entrants: list[Entrant]
    records: dict[str, Record]  # by the name of the run
    failures: list[Refusal]


def carry_out(
    conditions: Conditions,
    folder: Path,
    *,
    watcher: Watcher | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Results:
    """Train and score every system; what an earlier, interrupted call has done is not done again."""
    watcher = watcher or Unwatched()
    corpora = prepare_corpora(conditions, watcher)
    check_corpora(corpora, conditions)
    entrants, failures = plan(conditions, corpora)
    if not entrants:
        raise ValueError("no system can take part:\n" + "\n".join(failure.reason for failure in failures))
    description = describe_conditions(conditions, corpora, folder)
    test = read_test(conditions, corpora)
    watcher.ready(entrants, failures)
    _warm_up()
    records: dict[str, Record] = {}
    for entrant in entrants:
        corpus = corpora[conditions.tokenizers[entrant.system]]
        try:
            record = read_record(folder, entrant.name)
            if record is None:
                record = _enter(entrant, conditions, corpus, folder, test, watcher, interrupted)
        except Interruption:
            raise
        except Exception as error:
            reason = str(error).strip() or type(error).__name__
            failures.append(Refusal(entrant.name, entrant.system, reason))
            watcher.failed(entrant, reason)
            continue
        records[entrant.name] = record
        watcher.scored(entrant, record, sum(record["bits"]) / float(test.sizes.sum()))
    return Results(description, test, entrants, records, failures)


def _warm_up() -> None:
    """One small step, so that the first system does not pay for waking torch up."""
    import torch

    layer = torch.nn.Linear(64, 64)
    layer(torch.zeros(64, 64)).sum().backward()


def check_folder(conditions: Conditions, folder: Path) -> None:
    """The folder is new, or holds this very comparison."""
    if not folder.exists() or (folder.is_dir() and all(entry.name == ".lock" for entry in folder.iterdir())):
        return
    if not (folder / CONDITIONS).is_file():
        raise ValueError(f"{folder} exists and is not a comparison; choose another -o")
    before, now = read_conditions(folder).model_dump(), conditions.model_dump()
    if changed := [name for name in now if now[name] != before[name]]:
        how = "; ".join(f"{name} was {_short(before[name])}, now {_short(now[name])}" for name in changed)
        raise ValueError(
            f"{folder} holds a comparison under other conditions ({how}); choose another -o, or replace it with "
            "--overwrite"
        )


def _short(value: Any) -> str:
    return str(value) if len(str(value)) < 120 else f"{str(value)[:120]}…"


def read_conditions(folder: Path) -> Conditions:
    """The conditions of the comparison in a folder."""
    if not (folder / CONDITIONS).is_file():
        raise ValueError(
            f"{folder} is not a comparison: it has no {CONDITIONS} (make one with: lmlab compare TEXT -o {folder})"
        )
    values = read_json(folder / CONDITIONS)
    return build(
        Conditions, {name: values[name] for name in Conditions.model_fields if name in values}, where=CONDITIONS
    )


def prepare_corpora(conditions: Conditions, watcher: Watcher) -> dict[str, Corpus]:
    """The text as tokens of each tokenizer that is in use; the documents and their split are the same for all."""
    return {
        spec: run.prepare_corpus(conditions.data, tokenizer=spec, progress=watcher.stage)
        for spec in dict.fromkeys(conditions.tokenizers.values())
    }


def read_test(conditions: Conditions, corpora: Mapping[str, Corpus]) -> TestText:
    """The test documents, which are the same whatever the tokenizer."""
    test = next(iter(corpora.values())).test
    assert test is not None, "checked before"
    return make_test_text(list(test.texts()), prompt=conditions.prompt)


def describe_conditions(conditions: Conditions, corpora: Mapping[str, Corpus], folder: Path) -> dict[str, Any]:
    """Write and give `conditions.json`: what was asked for, the text in figures, versions and the machine."""
    import numpy
    import tokenizers
    import torch

    corpus = next(iter(corpora.values()))
    splits = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test}
    grid = find_grid(conditions.train.get("country"))
    path = folder / CONDITIONS
    before = read_json(path) if path.is_file() else {}
    if before and before["text_sha256"] != corpus.text_fingerprint:
        raise ValueError(
            f"the text of {folder} has changed since the comparison began; start a new one with another -o"
        )
    described = {
        **conditions.model_dump(),
        "text_sha256": corpus.text_fingerprint,
        "text": {
            name: {"documents": len(split.documents), "bytes": split.bytes, "words": split.words}
            for name, split in splits.items()
            if split is not None
        },
        "vocabularies": {spec: each.tokenizer.vocabulary for spec, each in corpora.items()},
        "tokenizer_fingerprints": {spec: each.tokenizer.fingerprint for spec, each in corpora.items()},
        "lossy": corpus.tokenizer.lossy,
        "matched_parameters": matched_parameters(conditions, corpora),
        "versions": {
            "lmlab": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "grid": f"{grid.grams_per_kwh:g} g/kWh ({grid.name}; {grid.source})",
        "added": before.get("added", []),
    }
    if before and before["versions"] != described["versions"]:
        warnings.warn(
            f"{folder} was begun with other versions ({before['versions']}): figures may differ", stacklevel=2
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, described)
    return described


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or sys.platform


def read_record(folder: Path, name: str) -> Record | None:
    """The record of a run that is finished, if its weights are still those that were scored."""
    path, weights = folder / "scores" / f"{name}.json", folder / name / "model.safetensors"
    if not path.is_file() or not weights.is_file():
        return None
    record: Record = read_json(path)
    return record if record["weights_sha256"] == digest(weights) else None


def write_record(folder: Path, name: str, record: Record) -> None:
    """Keep what is known of a run."""
    (folder / "scores").mkdir(exist_ok=True)
    write_json(folder / "scores" / f"{name}.json", record)


def _enter(
    entrant: Entrant,
    conditions: Conditions,
    corpus: Corpus,
    folder: Path,
    test: TestText,
    watcher: Watcher,
    interrupted: Callable[[], bool],
) -> Record:
    """Train one system with one seed, score it and write its record."""
    budget = parse_budget(budget_of(conditions, entrant.system, corpus))
    sweep: list[dict[str, Any]] = []
    recipe = entrant.recipe
    if conditions.sweep and trains(entrant.system):
        sweep = _sweep(entrant, budget, folder, watcher, interrupted)
        best = min(sweep, key=lambda tried: math.inf if (bits := tried["valid_bits_per_byte"]) is None else bits)
        budget = Budget(budget.amount * (1 - SWEEP_SHARE), budget.unit)
        recipe = _with_training(recipe, rate=best["rate"])
    recipe = _with_training(recipe, budget=write_budget(budget))
    watcher.begin(entrant, "training")
    outcome = _train(recipe, folder / entrant.name, _Told(entrant, watcher), interrupted)
    watcher.begin(entrant, "scoring")
    model = load(folder / entrant.name)
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
        "curve": read_curve(folder / entrant.name),
        **evaluate(model, test),
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
        told = _Told(entrant, watcher)
        bits: float | None = None
        try:
            outcome = _train(recipe, folder / "sweep" / f"{entrant.name}-rate{rate:.2g}", told, interrupted)
            bits, progress = outcome.bits_per_byte, outcome.progress
        except NotFiniteError:  # too high a rate is a result like any other; it cost what it cost
            progress = told.last
        tried.append({"rate": rate, "valid_bits_per_byte": bits, "training": spent(progress, recipe)})
    if all(found["valid_bits_per_byte"] is None for found in tried):
        raise ValueError("none of the learning rates of the sweep leads anywhere; give a lower --set train.rate")
    return tried


def _train(recipe: Recipe, path: Path, reporter: run.Reporter, interrupted: Callable[[], bool]) -> run.Outcome:
    """Start a run, or go on with it; a folder that was left before its recipe was written is made anew."""
    if (path / "recipe.json").is_file():
        outcome = run.resume(path, reporter=reporter, interrupted=interrupted)
    else:
        shutil.rmtree(path, ignore_errors=True)
        outcome = run.start(recipe, path, reporter=reporter, interrupted=interrupted)
    if outcome.interrupted:
        raise Interruption
    return outcome


def _with_training(recipe: Recipe, **settings: Any) -> Recipe:
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=settings)})


class _Told:
    """Passes on what a run reports."""

    def __init__(self, entrant: Entrant, watcher: Watcher) -> None:
        self.entrant, self.watcher, self.last = entrant, watcher, Progress()

    def stage(self, name: str, done: int, total: int) -> None: ...

    def begin(self, plan: run.Plan) -> None: ...

    def log(self, line: dict[str, Any], progress: Progress) -> None:
        self.last = progress
        self.watcher.log(self.entrant, line, progress)


def spent(progress: Progress, recipe: Recipe) -> dict[str, float]:
    """What training took: `seconds` is what a budget in time counts; the rest includes validation and checkpoints."""
    cost = Cost(*progress.cost)
    return {
        "tokens": progress.tokens,
        "steps": progress.step,
        "flops": progress.flops,
        "seconds": progress.seconds,
        "wall_seconds": cost.seconds,
        "cpu_seconds": cost.cpu_seconds,
        "gpu_seconds": cost.gpu_seconds,
        "joules": cost.joules,
        "grams": find_grid(recipe.train.country).grams(cost.joules),
    }


def add_costs(costs: list[dict[str, float]]) -> dict[str, float]:
    """The sum of what several runs took."""
    return {name: sum(cost[name] for cost in costs) for name in costs[0]}


def read_curve(path: Path) -> list[dict[str, float]]:
    """The validations of a run: what was spent until then, and bits per byte."""
    curve = []
    for text in (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line.get("valid_bits_per_byte") is None:
            continue
        cost = line["cost"]
        rate = cost.get("tokens_per_second")
        curve.append(
            {
                "tokens": line["tokens"],
                "seconds": line["tokens"] / rate if rate else cost["seconds"],
                "flops": line.get("flops", 0.0),
                "joules": cost["joules"],
                "valid_bits_per_byte": line["valid_bits_per_byte"],
            }
        )
    return curve
