"""Columns of numbers with a few values that are none: missing ones, commas, slips, and numbers too large to learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lmlab.data.readers.examples import Labelled
from lmlab.data.readers.labelled import read_labelled
from lmlab.data.readers.labelled.labels import find_labels


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


NUMBERS = [f"{n * 0.37 % 5:.2f}" for n in range(90)]


def read_scores(folder: Path, labels: list[str], **options: Any) -> Labelled:
    rows = "".join(f"a text number {n}\t{label}\n" for n, label in enumerate(labels))
    return read_labelled(write(folder / "scores.tsv", f"text\tscore\n{rows}"), **options)


@pytest.mark.parametrize("odd", ["nan", "N/A", "inf", "3,5", "three"])
def test_a_few_values_that_are_not_numbers_do_not_make_classes(odd: str, tmp_path: Path) -> None:
    labels = [odd if n in (3, 40) else "" if n == 50 else value for n, value in enumerate(NUMBERS)]
    with pytest.raises(ValueError, match=r"2 of 89 values in score are not numbers") as error:
        read_scores(tmp_path, labels)
    assert f"line 5 {odd!r}, line 42 {odd!r}" in str(error.value)
    assert "--drop-bad-labels" in str(error.value)
    kept = read_scores(tmp_path, labels, drop_bad_labels=True)
    assert kept.task == "regression"
    assert [each.label for each in kept.train] == [float(v) for n, v in enumerate(NUMBERS) if n not in (3, 40, 50)]
    assert kept.skipped == {"no label": 1, "a label that is not a number": 2}
    bare = "".join(f"a text number {n}\t{label}\n" for n, label in enumerate(labels))
    without = read_labelled(write(tmp_path / "bare.tsv", bare), drop_bad_labels=True)
    assert [each.label for each in without.train] == [each.label for each in kept.train], "by its values alone"


def test_decimal_commas_are_read_where_all_numbers_have_them(tmp_path: Path) -> None:
    commas = [value.replace(".", ",") for value in NUMBERS]
    found = read_scores(tmp_path, [*commas, "4"])
    assert found.task == "regression"
    assert [each.label for each in found.train] == [*map(float, NUMBERS), 4.0]
    assert any("decimal comma" in note for note in found.notes)
    with pytest.raises(ValueError, match=r"are not numbers: .* \(1,250 may be 1.250 or 1250: write it without a comma"):
        read_scores(tmp_path, ["1,250", "2,500", "3,750", "1,125"], task="regression")
    rows = "".join(f"a text number {n};{label}\n" for n, label in enumerate(commas))
    assert len(read_labelled(write(tmp_path / "x.csv", f"text;score\n{rows}")).train) == len(NUMBERS)


@pytest.mark.parametrize("huge", ["1e308", "-1e308", "1e31"])
def test_numbers_too_large_to_learn_are_named(huge: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"2 of 91 values in score are larger than 1e\+30: line 91 '{huge}', line 92"):
        read_scores(tmp_path, [*NUMBERS[1:], huge, huge])


def test_a_missing_value_among_classes_is_reported(tmp_path: Path) -> None:
    found = read_scores(tmp_path, ["0", "1", "nan", "1", "0"] * 4)
    assert (found.task, find_labels(found.train)) == ("classification", ("0", "1", "nan"))
    assert any("'nan' in score (lines 4, 9, 14, 19) is read as a class" in note for note in found.notes)
