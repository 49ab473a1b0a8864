"""XLNet in a comparison: under the question of masked models and under that of the others, each with its own score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lmlab
from comparison_texts import lines, small
from lmlab.comparison import shared_test_data
from lmlab.comparison.folder import run_comparison
from lmlab.comparison.plan import choose_systems


@pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
def test_each_ability_is_ranked_separately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text(lines(300))
    conditions = small(tmp_path / "text.txt", models="ngram,roberta,xlnet")
    monkeypatch.setattr(shared_test_data, "PART_TOKENS", 300)
    run_comparison(conditions, tmp_path / "out")
    board = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    bits = {entry["kind"]: entry["bits_per_byte"] for entry in board["entries"]}
    pseudo = {entry["kind"]: entry["pseudo_bits_per_byte"] for entry in board["masked"]}
    assert bits.keys() == {"ngram", "xlnet"}
    assert pseudo.keys() == {"roberta", "xlnet"}
    model = lmlab.load(tmp_path / "out" / "xlnet")
    texts = ["On day 3 the planet A goes at 9 & more.\n"]
    exact, guessed = model.score(texts), model.pseudo_scorer.score(texts)
    assert (exact.pseudo, guessed.pseudo) == (False, True)
    assert exact.nats != guessed.nats
    assert bits["xlnet"] > 0
    assert pseudo["xlnet"] > 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "xlnet" in page


@pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
def test_special_tokens_make_no_other_tokenizer(tmp_path: Path) -> None:
    """A lossy tokenizer is one for all: XLNet's [MASK] does not set the others apart."""
    (tmp_path / "text.txt").write_text(lines(300))
    run_comparison(small(tmp_path / "text.txt", models="ngram,xlnet", tokenizers=["words"]), tmp_path / "out")
    board = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert {entry["kind"] for entry in board["entries"]} == {"ngram", "xlnet"}
    assert not board["apart"]


def test_groups_name_it_once() -> None:
    assert "xlnet" in choose_systems("masked")
    assert choose_systems("all").count("xlnet") == 1
    assert choose_systems("all,masked").count("xlnet") == 1
