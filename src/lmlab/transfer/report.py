"""The page of a fine-tuned run, a learning curve or a comparison."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lmlab.files import write_bytes
from lmlab.pages.evidence import Evidence
from lmlab.pages.headline import LayerMix, ShownCost, StudyFacts
from lmlab.pages.scores import ScoreRow, ShownScore, clamp, format_learner
from lmlab.pages.study import make_page
from lmlab.tasks import load_task
from lmlab.transfer.commands import use_commands
from lmlab.transfer.differences import ahead_of, find_reference
from lmlab.transfer.results import Key, Result, Row, key_of, label_of
from lmlab.transfer.study import Study
from lmlab.transfer.trials import PREDICTIONS, Trial

REPORT = "report.html"
FEW_LABELS, SHOWN_LABELS = 6, 5
"""Up to 6 classes are all named; of more, the first 5."""


def write_report(study: Study, folder: Path) -> Path:
    """Write `report.html` into a folder."""
    return write_page(gather_facts(study, folder), folder)


def write_page(facts: StudyFacts, folder: Path) -> Path:
    """Write `report.html` from the facts of a study."""
    path = folder / REPORT
    write_bytes(path, make_page(facts).encode())
    return path


def gather_facts(study: Study, folder: Path) -> StudyFacts:
    """All that the page shows."""
    wording, shown = load_task(study.task).wording, find_shown(study)
    first = study.results[0] if study.results else None
    names = {each.name: each.run for each in study.results if each.run is not None}
    rows = {key_of(row): _make_row(study, row, shown) for row in study.table}
    lead = None if shown is None else rows[key_of(shown)]
    found = None if shown is None else gather_evidence(study, shown, folder)
    return StudyFacts(
        kind=study.kind,
        goal=wording.goal.format(classes=_name_classes(study.labels)),
        resampled=wording.resampled,
        data=study.data,
        scored=study.scored,
        format=study.format,
        labels=study.labels,
        counts=study.counts,
        metric=study.metric,
        split=first.split if first else "test",
        count=first.count if first else 0,
        check=study.check,
        rows=list(rows.values()),
        tests=len(study.differences),
        untested=study.untested if study.rows else [row.label for row in study.table],
        lead=lead,
        pretraining={name: _cost(study.pretraining.get(run)) for name, run in names.items()},
        mixes=_mixes(study.results),
        evidence=found,
        evidence_of=_describe_source(shown, lead, found),
        commands=_commands(study, folder, shown),
    )


def find_shown(study: Study) -> Result | None:
    """The result whose predictions are shown: the run, or the first seed of the best row with the most examples.

    The best row has the best mean; its best seed would be too optimistic.
    """
    learnt = [result for result in study.results if result.method != "baseline"]
    if study.kind == "run" or not learnt:
        return learnt[0] if learnt else None

    def rank(row: Row) -> tuple[int, float]:
        found = row.values[study.metric]
        value = -math.inf if found.value is None else found.value if found.better == "higher" else -found.value
        return row.examples, value

    best = key_of(max((row for row in study.table if row.method != "baseline"), key=rank))
    return next(result for result in learnt if key_of(result) == best)


def gather_evidence(study: Study, result: Result, folder: Path) -> Evidence | None:
    """What the predictions of a result show; None where they are not in the folder."""
    path = find_predictions(study, result, folder)
    if path is None:
        return None
    text = path.read_text(encoding="utf-8")
    lines = [_read_line(line) for line in text.split("\n") if line]  # a text may hold other ends of lines
    lines = [line for line in lines if line["true"] is not None and line["predicted"] is not None]
    return load_task(study.task).show_evidence(lines, study.labels) if lines else None


def find_predictions(study: Study, result: Result, folder: Path) -> Path | None:
    """The file with the predictions of a result, if there is one."""
    if study.kind == "run":
        folders = [folder]
    else:
        origin = Path(result.run or result.name)
        trials = (
            Trial(origin=origin, method=result.method, limit=limit, seed=result.seed, layers=result.layers)
            for limit in (None, result.examples)
        )
        folders = [folder / "trials" / trial.name for trial in trials]
    return next((each / PREDICTIONS for each in folders if (each / PREDICTIONS).is_file()), None)


def _read_line(text: str) -> Mapping[str, Any]:
    """A prediction; NaN and infinity, as of weights that diverged, are None."""
    return dict(json.loads(text, parse_constant=lambda _: None))


def _name_classes(labels: Sequence[str]) -> str:
    names = ", ".join(labels) if len(labels) <= FEW_LABELS else f"{', '.join(labels[:SHOWN_LABELS])} …"
    return f"{len(labels)} classes ({names})" if labels else "classes"


def _describe_source(shown: Result | None, lead: ScoreRow | None, found: Evidence | None) -> str:
    """Whose predictions are shown: `bert, full, seed 0, 100 test examples.`"""
    if shown is None or lead is None or found is None:
        return ""
    seed = f", seed {shown.seed}" if len(lead.seeds) > 1 else ""
    return f"{format_learner(shown)}{seed}, {found.count:,} {shown.split} examples."


def _make_row(study: Study, row: Row, shown: Result | None) -> ScoreRow:
    """A row with the mean cost of a seed, and its difference from the row that it is compared with."""
    group = [result for result in study.results if key_of(result) == key_of(row)]
    reference = find_reference(study.kind, study.table, row, default=label_of(study.table, shown))
    return ScoreRow(
        label=row.label,
        name=row.name,
        method=row.method,
        examples=row.examples,
        layers=row.layers,
        seeds=row.seeds,
        values={name: clamp(ShownScore(each.value, each.low, each.high), name) for name, each in row.values.items()},
        better=group[0].values[group[0].main].better,
        seconds=row.seconds,
        joules=sum(each.joules for each in group) / len(group),
        flops=sum(each.flops for each in group) / len(group),
        steps=row.steps,
        rate=row.rate,
        note=row.note,
        difference=ahead_of(study.differences, reference, row.label),
    )


def _cost(known: Mapping[str, float] | None) -> ShownCost | None:
    return None if not known else ShownCost(**known)


def _mixes(results: Sequence[Result]) -> list[LayerMix]:
    """The weight of each layer, over the seeds of each row that mixes layers."""
    groups: dict[Key, list[Result]] = {}
    for result in results:
        if result.mix is not None:
            groups.setdefault(key_of(result), []).append(result)
    found = []
    for group in groups.values():
        weights = list(zip(*(each.mix or [] for each in group), strict=True))
        gammas = [each.gamma for each in group if each.gamma is not None]
        found.append(
            LayerMix(
                name=group[0].name,
                examples=group[0].examples,
                seeds=len(group),
                weights=[sum(each) / len(each) for each in weights],
                low=[min(each) for each in weights],
                high=[max(each) for each in weights],
                gamma=sum(gammas) / len(gammas) if gammas else None,
            )
        )
    return found


def _commands(study: Study, folder: Path, shown: Result | None) -> list[tuple[str, str]]:
    """Commands to type next, each with what it does."""
    if study.kind == "run":
        return use_commands(folder, task=study.task, data=study.data)
    if shown is None or not shown.command:
        return []
    fewer = shown.examples < study.counts.get("train", 0)
    return [(shown.command, f"train the best of these again{', with all examples' * fewer}, as a run that can be used")]
