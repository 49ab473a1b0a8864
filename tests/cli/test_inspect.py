"""`lmlab inspect`: each analysis as a user calls it, with tables, JSON and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lmlab.cli.inspect import VERBS
from lmlab.cli.verbs import load_command
from standins import write_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning", "ignore:too few n-grams")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for kind in ("gpt2", "lstm", "ngram"):
        (folder / kind).mkdir()
        write_run(folder / kind, kind)
    return folder


@pytest.mark.parametrize("name", VERBS)
def test_a_row_says_what_the_analysis_says(name: str) -> None:
    command = load_command(VERBS[name])
    assert command.name == name
    assert command.help.splitlines()[0] == VERBS[name].help
    assert "Example" in command.help


@pytest.mark.parametrize("kind", ["gpt2", "lstm", "ngram"])
def test_minimal_pairs(run_command, runs: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "pairs.tsv").write_text("good\tbad\nthe cat sat .\tthe cat mat .\na dog ran .\ta dog log .\n")
    said = run_command("inspect", "minimal-pairs", str(runs / kind), "pairs.tsv", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["accuracy"] in (0.0, 0.5, 1.0)
    assert [item["good"] for item in found["items"]] == ["the cat sat .", "a dog ran ."]
    said = run_command("inspect", "minimal-pairs", str(runs / kind), "pairs.tsv", "-o", "pairs.html")
    assert said.code == 0, said.err
    assert "of 2 pairs are right" in said.out
    page = (tmp_path / "pairs.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["minimal-pairs", "RUN", "none.tsv"], "none.tsv does not exist"),
        (
            ["minimal-pairs", "RUN", "pairs.tsv", "--region", "half"],
            "region 'half' is not known; allowed: full, critical",
        ),
        (["minimal-pairs", "RUN", "pairs.tsv", "-o", "out.pdf"], "-o out.pdf: end the name with .html, .png, .json or"),
        (["minimal-pairs", "RUN", "pairs.tsv", "-o", "pairs.tsv"], "end the name with"),
        (["minimal-pears", "RUN"], "Did you mean 'minimal-pairs'?"),
    ],
)
def test_bad_input_is_told_in_one_line(run_command, runs: Path, tmp_path: Path, arguments, message: str) -> None:
    (tmp_path / "pairs.tsv").write_text("good\tbad\nthe cat sat .\tthe cat mat .\n")
    said = run_command("inspect", *(str(runs / "gpt2") if word == "RUN" else word for word in arguments))
    assert said.code == 2
    assert message in said.err
