"""The table of scores: whole numbers in any terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lmlab.cli.study_scores import format_with_interval, score_table
from lmlab.transfer.results import Interval, Result
from lmlab.transfer.study import Study
from lmlab.transfer.study_settings import Kind

METRICS = ("f1", "precision", "recall", "accuracy")


def make_study(*, kind: Kind = "run", seeds: int = 1, name: str = "bert", value: float | None = 0.7214) -> Study:
    def result(name: str, how: str, seed: int, note: str = "") -> Result:
        found = Interval(value=value, low=value and value - 0.05, high=value and value + 0.05)
        values = dict.fromkeys(METRICS, found)
        return Result(
            name=name,
            method=how,
            seed=seed,
            note=note,
            examples=1200,
            split="test",
            count=150,
            values=values,
            seconds=1234.5,
        )

    results = [result("majority", "baseline", 0), result("bag of words", "baseline", 0)]
    for how in ("full", "frozen", "scratch"):
        results += [result(name, how, seed, "87% of the steps" if how == "scratch" else "") for seed in range(seeds)]
    counts = {"train": 1200, "valid": 150, "test": 150}
    return Study(
        kind=kind, task="tagging", data="ner.conll", format="", labels=[], counts=counts, metric="f1", results=results
    )


def show(study: Study, width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(score_table(study, width=width))
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [50, 60, 80, 120])
@pytest.mark.parametrize("seeds", [1, 5])
@pytest.mark.parametrize("kind", ["run", "curve"])
@pytest.mark.parametrize("name", ["bert", "all-MiniLM-L6-v2", "a-very-long-name-of-a-run-that-has-no-end"])
def test_no_number_is_cut_or_broken(kind: Kind, seeds: int, width: int, name: str) -> None:
    lines = show(make_study(kind=kind, seeds=seeds, name=name), width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    score = "72.1 [67.1, 77.1]"  # seeds that agree do not make the test set larger
    assert sum(score in line for line in lines) >= 3


def test_only_the_main_measure_has_an_interval_and_seeds_show_where_there_are_several() -> None:
    lines = show(make_study(), 120)
    assert sum(line.count("[") for line in lines) == 5
    assert all(name in "".join(lines) for name in METRICS)
    assert "each seed" not in "".join(lines)
    lines = show(make_study(seeds=5), 120)
    assert "each seed" in "".join(lines)
    assert any("72.1 72.1 72.1" in line for line in lines)


def test_what_is_left_out_is_reported() -> None:
    assert "scores.json: recall, accuracy" in " ".join(line.strip() for line in show(make_study(), 65))
    assert not any("scores.json" in line for line in show(make_study(), 120))
    assert "scores.json: intervals, " in " ".join(line.strip() for line in show(make_study(kind="curve"), 40))


def test_missing_values_are_dashes_and_intervals_keep_to_the_scale() -> None:
    text = "".join(show(make_study(value=None), 80))
    assert "–" in text
    assert "nan" not in text
    wide = Interval(value=0.5, low=-0.4, high=1.4)
    assert format_with_interval(wide, name="accuracy") == "50.0 [0.0, 100.0]"
    assert format_with_interval(wide, name="pearson") == "50.0 [−40.0, 100.0]"
