"""lmlab score knows which text a run was trained on, and which was held out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lmlab
from lmlab.runs.held_out import held_out

pytestmark = pytest.mark.filterwarnings("ignore:too few n-grams")
LINES = [
    f"On day {i} of {i * 7 % 11} somebody counted {i % 13} ships, and {i * i % 17} of them came back."
    for i in range(300)
]
SHORT = ["--size", "tiny", "--tokenizer", "characters"]


@pytest.fixture
def trained(run_command, tmp_path: Path):
    """Commands in a folder with a book and a run that has learnt from it."""
    (tmp_path / "book.txt").write_text("\n".join(LINES) + "\n")
    assert run_command("train", "ngram", "book.txt", "-o", "run", *SHORT).code == 0
    return run_command


def test_the_held_out_text_is_scored_exactly(trained, tmp_path: Path) -> None:
    said = trained("score", "run", "--held-out", "--json")
    assert said.code == 0, said.err
    texts = held_out(tmp_path / "run")
    assert json.loads(said.out)["nats"] == pytest.approx(lmlab.load(tmp_path / "run").score(texts).nats)
    assert "warning" not in said.err
    both = json.loads(trained("score", "run", "--held-out", "--text", "a ship", "--json").out)
    assert [each["name"] for each in both["texts"]] == ["a ship", "the test text"]


def test_text_that_was_trained_on_is_warned_of(trained, tmp_path: Path) -> None:
    whole = trained("score", "run", "book.txt", "--json")
    assert "warning: run was trained on 90% of this text" in whole.err
    assert "lmlab score run --held-out" in whole.err
    assert json.loads(whole.out)["trained_on"] == pytest.approx(0.9, abs=0.02)
    (tmp_path / "part.txt").write_text("A foreword that nobody has seen, of about as many letters.\n" + LINES[3] + "\n")
    assert "run was trained on" in trained("score", "run", "part.txt").err
    (tmp_path / "one-line.txt").write_text(" ".join(LINES[:60]))
    (tmp_path / "long.txt").write_text(" ".join(LINES))
    assert trained("train", "ngram", "long.txt", "-o", "long", *SHORT).code == 0
    assert "long was trained on" in trained("score", "long", "one-line.txt").err


def test_other_text_is_not(trained, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("\n".join(line.replace("ships", "sheep") for line in LINES))
    other = trained("score", "run", "other.txt", "--json")
    assert other.err == ""
    assert json.loads(other.out)["trained_on"] == 0.0
    (tmp_path / "held.txt").write_text("\n".join(held_out(tmp_path / "run")))
    assert "warning" not in trained("score", "run", "held.txt").err


def test_where_the_training_text_is_gone_nothing_is_claimed(trained, tmp_path: Path) -> None:
    (tmp_path / "book.txt").rename(tmp_path / "moved.txt")
    said = trained("score", "run", "moved.txt", "--json")
    assert said.code == 0
    assert said.err == ""
    assert json.loads(said.out)["trained_on"] is None
    lost = trained("score", "run", "--held-out")
    assert lost.code == 2
    assert "book.txt, which is not there any more" in lost.err


def test_runs_without_held_out_text_say_so(trained, tmp_path: Path) -> None:
    (tmp_path / "run" / "recipe.json").unlink()
    (tmp_path / "run" / "manifest.json").unlink()
    said = trained("score", "run", "--held-out")
    assert said.code == 2
    assert "run has no recipe.json" in said.err
