"""The page of a fine-tuned run, a learning curve or a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmlab.pages.scores import within
from lmlab.pages.transfer import make_page
from lmlab.runs.storage import write_bytes
from lmlab.transfer.commands import use_commands
from lmlab.transfer.differences import ahead_of, find_reference
from lmlab.transfer.evidence import find_shown, gather_evidence
from lmlab.transfer.results import Result, key_of, label_of
from lmlab.transfer.study import Study

REPORT = "report.html"
Facts = dict[str, Any]


def write_report(study: Study, folder: Path) -> Path:
    """Write `report.html` into a folder."""
    return write_page(gather_facts(study, folder), folder)


def write_page(facts: Facts, folder: Path) -> Path:
    """Write `report.html` from what `gather_facts` found."""
    path = folder / REPORT
    write_bytes(path, make_page(facts).encode())
    return path


def gather_facts(study: Study, folder: Path) -> Facts:
    """All that the page shows, as plain values; what is no number is None."""
    first = study.results[0] if study.results else None
    shown = find_shown(study)
    return {
        "kind": study.kind,
        "task": study.task,
        "data": study.data,
        "scored": study.scored,
        "format": study.format,
        "labels": study.labels,
        "counts": study.counts,
        "metric": study.metric,
        "split": first.split if first else "test",
        "count": first.count if first else 0,
        "check": study.check,
        "rows": _rows(study, shown),
        "tests": len(study.differences),
        "untested": [row.label for row in study.table] if not study.rows else study.untested,
        "shown": None if shown is None else key_of(shown),
        "pretraining": {
            name: study.pretraining.get(run)
            for name, run in {each.name: each.run for each in study.results if each.run is not None}.items()
        },
        "mixes": _mixes(study.results),
        "evidence": gather_evidence(study, folder),
        "commands": _commands(study, folder, shown),
    }


def _rows(study: Study, shown: Result | None) -> list[Facts]:
    """One for each way of learning, over its seeds, with what a seed costs on average."""
    about = label_of(study.table, shown)
    rows = []
    for row in study.table:
        group = [result for result in study.results if key_of(result) == key_of(row)]
        reference = find_reference(study.kind, study.table, row, about=about)
        found = ahead_of(study.differences, reference, row.label)
        rows.append(
            {
                **row.model_dump(),
                "values": {
                    name: within(value.model_dump(exclude={"better"}), name) for name, value in row.values.items()
                },
                "better": group[0].values[group[0].main].better,
                "key": key_of(row),
                "joules": sum(each.joules for each in group) / len(group),
                "flops": sum(each.flops for each in group) / len(group),
                "difference": found and found._asdict(),
            }
        )
    return rows


def _mixes(results: Sequence[Result]) -> list[Facts]:
    """What each layer weighs, over the seeds of each way of learning that mixes layers."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        if result.mix is not None:
            groups.setdefault(tuple(key_of(result)), []).append(result)
    found = []
    for group in groups.values():
        shares = list(zip(*(each.mix or [] for each in group), strict=True))
        gammas = [each.gamma for each in group if each.gamma is not None]
        found.append(
            {
                "name": group[0].name,
                "examples": group[0].examples,
                "seeds": len(group),
                "shares": [sum(each) / len(each) for each in shares],
                "low": [min(each) for each in shares],
                "high": [max(each) for each in shares],
                "gamma": sum(gammas) / len(gammas) if gammas else None,
            }
        )
    return found


def _commands(study: Study, folder: Path, shown: Result | None) -> list[tuple[str, str]]:
    """What to type next, each with what it does."""
    if study.kind == "run":
        return use_commands(folder, task=study.task, data=study.data)
    if shown is None or not shown.command:
        return []
    fewer = shown.examples < study.counts.get("train", 0)
    what = "the best of these again, " + "with all examples, " * fewer + "as a run that can be used"
    return [(shown.command, what)]
