"""The quick version of each figure of benchmarks/RELIABILITY.md, and the files on which a reader once failed."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from benchmarks.reliability.__main__ import FIGURES
from benchmarks.reliability.fuzzing import crashes, try_file
from benchmarks.reliability.parsers import PARSERS, make_parser

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The lines of each figure, all measured in one process of their own: some are forked, killed and limited."""
    folder = tmp_path_factory.mktemp("reliability")
    command = [sys.executable, "-m", "benchmarks.reliability", "--quick", "--folder", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (folder / "figures.jsonl").exists(), done.stdout + done.stderr
    found: dict[str, list[dict[str, Any]]] = {"": [{"said": done.stdout + done.stderr, "status": done.returncode}]}
    for line in (folder / "figures.jsonl").read_text().splitlines():
        found.setdefault(json.loads(line)["name"], []).append(json.loads(line))
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_in_small(name: str, measured: dict[str, list[dict[str, Any]]]) -> None:
    assert name in measured, measured[""][0]["said"]
    assert all(each["tried"] > 0 for each in measured[name]), "a figure that tries nothing cannot fail"
    assert not [wrong for each in measured[name] for wrong in each["wrong"]]


@pytest.mark.parametrize(
    ("parser", "path"), [pytest.param(*each, id=f"{each[0]}-{each[1].stem}") for each in crashes()]
)
def test_a_file_that_failed_once_is_refused_or_read(parser: str, path: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not try_file(make_parser(parser, tmp_path), parser, path.read_bytes())


@pytest.mark.parametrize("name", PARSERS)
def test_the_valid_files_of_a_parser_are_valid(name: str, tmp_path: Path) -> None:
    """Else only refusals would be tested."""
    parser = make_parser(name, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data in parser.seeds:
            parser.read(data)
