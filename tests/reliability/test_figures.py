"""The quick version of each figure of benchmarks/RELIABILITY.md, and the files on which a reader once failed."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from benchmarks.reliability.__main__ import FIGURES
from benchmarks.reliability.fuzzing import crashes, try_file
from benchmarks.reliability.parsers import PARSERS, make_parser

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_in_small(name: str, tmp_path: Path) -> None:
    """In a process of its own, because some are forked, killed and limited."""
    command = [sys.executable, "-m", "benchmarks.reliability", name, "--quick", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in (tmp_path / "figures.jsonl").read_text().splitlines()]
    assert found
    assert all(each["tried"] > 0 for each in found), "a figure that tries nothing cannot fail"


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
