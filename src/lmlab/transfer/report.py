"""The page of a fine-tuned run, a learning curve or a comparison."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lmlab.pages.scores import within
from lmlab.pages.transfer import make_page
from lmlab.storage import write_bytes
from lmlab.transfer.evidence import find_shown, gather_evidence, key_of
from lmlab.transfer.results import Result, Row, rows_of
from lmlab.transfer.study import Study

REPORT = "report.html"
Facts = dict[str, Any]


def write_report(study: Study, folder: Path) -> Path:
    """Write `report.html` into a folder."""
    path = folder / REPORT
    write_bytes(path, make_page(gather_facts(study, folder)).encode())
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
        "rows": _rows(study.results),
        "leads": [lead.model_dump() for lead in study.leads],
        "shown": None if shown is None else key_of(shown),
        "pretraining": {
            name: study.pretraining.get(run)
            for name, run in {each.name: each.run for each in study.results if each.run is not None}.items()
        },
        "mixes": _mixes(study.results),
        "evidence": gather_evidence(study, folder),
        "commands": _commands(study, folder, shown),
    }


def _rows(results: Sequence[Result]) -> list[Facts]:
    """One for each way of learning, over its seeds, with what a seed costs on average."""
    rows = []
    for row in rows_of(results):
        group = [result for result in results if key_of(result) == key_of(row)]
        rows.append(
            {
                **row.model_dump(),
                "values": {
                    name: within(found.model_dump(exclude={"better"}), name) for name, found in row.values.items()
                },
                "better": group[0].values[group[0].main].better,
                "reach": _reach(row, group),
                "key": key_of(row),
                "seeds": [None if math.isnan(value) else value for value in row.seeds],
                "joules": sum(each.joules for each in group) / len(group),
                "flops": sum(each.flops for each in group) / len(group),
                "steps": round(sum(each.steps for each in group) / len(group)),
            }
        )
    return rows


def _reach(row: Row, group: Sequence[Result]) -> list[float] | None:
    """The widest that the main score may be apart: over seeds, and over draws of the held-out examples."""
    main = group[0].main
    intervals = [row.values[main], *(each.values[main] for each in group)]
    ends = [(each.low, each.high) for each in intervals if each.low is not None and each.high is not None]
    return [min(low for low, _ in ends), max(high for _, high in ends)] if ends else None


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


EXAMPLES: Mapping[str, str] = {
    "tagging": '"words of a sentence"',
    "spans": '--context page.txt "a question?"',
    "choice": '"a question?" "first choice" "second choice"',
}


def _commands(study: Study, folder: Path, shown: Result | None) -> list[tuple[str, str]]:
    """What to type next, each with what it does."""
    path = shlex.quote(str(folder))
    if study.kind == "run":
        suffix = Path(study.data.split(", ")[0]).suffix or ".tsv"
        given = EXAMPLES.get(study.task, '"a text"')
        return [
            (f"lmlab predict {path} {given}", "what it says of something new"),
            (f"lmlab evaluate {path} more{suffix}", "its score on other examples, with an interval"),
        ]
    if shown is None or shown.run is None:
        return []
    data = " ".join(shlex.quote(each) for each in study.data.split(", "))
    layers = f" --layers {shlex.quote(shown.layers)}" if shown.how == "frozen" and shown.layers != "last" else ""
    command = f"lmlab finetune {shlex.quote(shown.run)} {data} --how {shown.how}{layers} -o runs/best"
    return [(command, "the best of these again, as a run that can be used")]
