"""Runs of every released version, made by that version, load today: as a model, as a recipe, and to be resumed."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

import lmlab
from lmlab.language_model import LanguageModel
from lmlab.runs.recipe_record import read_groups, read_record
from lmlab.runs.storage import verify

RELEASES = Path(__file__).with_name("releases")
RUNS = sorted(path.parent for path in RELEASES.glob("*/*/recipe.json"))


def test_every_released_version_is_there() -> None:
    """0.1.0 had no command line, and its runs no recipe that a later version knows."""
    minor = int(lmlab.__version__.split(".")[1])
    assert {path.parent.name for path in RUNS} == {f"0.{number}.0" for number in range(2, minor)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.parent.name}-{run.name}")
def test_a_run_of_an_earlier_version_loads(run: Path, tmp_path: Path) -> None:
    path = shutil.copytree(run, tmp_path / "run")
    verify(path)
    assert json.loads((path / "config.json").read_text()).get("version", run.parent.name) == run.parent.name
    assert read_record(path).recipe.kind == run.name
    assert read_groups(path / "recipe.json")["model"]["kind"] == run.name
    model: LanguageModel = lmlab.load(path)
    if run.name == "transformer":
        assert isinstance(model.translate("say 1 and 2"), str)
    else:
        assert 0 < model.score("line 3 of 4 says that 5 is not 6.").nats < math.inf
