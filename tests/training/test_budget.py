"""Budgets as users write them: on the command line, with --set, in TOML, in Python, and in runs of older versions."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from lmlab.config import apply_settings
from lmlab.runs.recipe import make_recipe
from lmlab.runs.recipe_record import read_groups, read_record
from lmlab.runs.run import start
from lmlab.training.budget import Budget, parse_budget
from lmlab.training.settings import TrainConfig


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"Line {i} of {i * 7 % 11} has {i % 13} words.\n" for i in range(300)))
    return path


@pytest.mark.parametrize(
    ("written", "amount", "unit"),
    [
        ("90s", 90, "seconds"),
        ("10min", 600, "seconds"),
        ("2h", 7200, "seconds"),
        ("5Mtokens", 5e6, "tokens"),
        ("100000tokens", 1e5, "tokens"),
        ("1.5ktokens", 1500, "tokens"),
        ("300steps", 300, "steps"),
        ("3epochs", 3, "epochs"),
        ("2e13flops", 2e13, "flops"),
        ("2Tflops", 2e12, "flops"),
    ],
)
def test_budgets_are_read(written: str, amount: float, unit: str) -> None:
    assert parse_budget(written) == Budget(amount, unit)


@pytest.mark.parametrize("written", ["", "10", "ten steps", "5 parsecs", "-3steps", "0steps", "1e", "5Mmin"])
def test_other_budgets_are_refused_with_examples(written: str) -> None:
    with pytest.raises(ValueError, match=r"budget") as error:
        parse_budget(written)
    assert "buys nothing" in str(error.value) or "5Mtokens" in str(error.value)


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("5M", ("5min", "5Mtokens")),
        ("2.5 M", ("2.5min", "2.5Mtokens")),
        ("5k", ("5ktokens", "5ksteps")),
        ("3B", ("3Btokens",)),
        ("10", ("10tokens", "10steps")),
    ],
)
def test_an_ambiguous_budget_is_refused_and_both_spellings_are_named(written: str, named: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"budget {written!r}") as error:
        parse_budget(written)
    assert all(each in str(error.value) for each in named)


@pytest.mark.parametrize(
    "written",
    [
        *("1e400steps", "infsteps", "inf", "nan", "nansteps", "-infs", "1e308steps", "1e308", "1e308flops", "1e308min"),
        *("-5min", "0s", "0tokens", "1e-400s"),
    ],
)
def test_a_budget_that_is_no_amount_is_a_clear_error_wherever_it_is_written(written: str, text: Path) -> None:
    with pytest.raises(ValueError, match="budget") as error:
        parse_budget(written)
    assert "write a time (90s, 10min, 2h)" in str(error.value)
    values = {"data": {"text": [str(text)]}, "model": {"kind": "nplm", "size": "tiny"}}
    for groups in (
        {**values, "train": {"budget": written}},
        apply_settings(values, [f"train.budget={written}"]),
        {**values, "train": tomllib.loads(f"budget = '{written}'")},
    ):
        with pytest.raises(ValueError, match=r"train.budget = .*write a time"):
            make_recipe(groups)


@pytest.mark.parametrize("value", [5, 5.5, float("inf"), float("nan"), True, None, ["5min"]])
def test_a_budget_that_is_no_text_is_refused_with_examples(value: object) -> None:
    with pytest.raises(ValueError, match=r"budget .* is not understood; write a time"):
        TrainConfig(budget=value)  # type: ignore[arg-type]


def test_a_budget_that_pays_for_uncountable_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="more than can be counted"):
        Budget(1e30, "flops").steps(units_per_step={}, steps_per_epoch=1, flops_per_step=1.0)


def test_a_saved_run_whose_budget_was_a_bare_m_goes_on_as_minutes(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    values = {
        "data": {"text": str(text)},
        "tokenizer": {"spec": "characters"},
        "model": {"kind": "nplm", "size": "tiny"},
    }
    start(make_recipe({**values, "train": {"budget": "4steps", "batch": 4, "window": 16}}), run)
    saved = json.loads((run / "recipe.json").read_text())
    saved["train"]["budget"] = "5M"
    saved["changes"] = [{"step": 3, "train": {"budget": "1.5M"}}]
    (run / "recipe.json").write_text(json.dumps(saved))
    record = read_record(run)
    assert record.begun is not None
    assert (record.begun.budget, record.recipe.train.budget) == ("5min", "1.5min")
    assert read_groups(run / "recipe.json")["train"]["budget"] == "5min"


def test_a_budget_never_buys_more_than_it_states() -> None:
    costs = {"units_per_step": {"tokens": 300}, "steps_per_epoch": 7.5, "flops_per_step": 1e9}
    assert Budget(1000, "tokens").steps(**costs) == 3
    assert Budget(2, "epochs").steps(**costs) == 15
    assert Budget(2.5e9, "flops").steps(**costs) == 2
    assert Budget(60, "seconds").steps(**costs) is None
    with pytest.raises(ValueError, match="does not pay for one step"):
        Budget(299, "tokens").steps(**costs)
    with pytest.raises(ValueError, match="has no examples; give tokens, steps, epochs, flops or a time"):
        Budget(299, "examples").steps(**costs)
