"""Runs from elsewhere join where their text and tokenizer allow it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from comparison_texts import SETTINGS, lines, small
from lmlab.comparison.folder import Published, add, run_comparison
from lmlab.comparison.joining import shared_lines
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe


@pytest.fixture
def compared(done: Published, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    folder = tmp_path / "compared"
    shutil.copytree(done.report.parent, folder)
    return folder


def trained(path: Path, text: Path, kind: str = "ngram", **tokenizer: str) -> Path:
    values: dict[str, Any] = {
        "data": {"text": str(text), "split": [0.8, 0.1, 0.1]},
        "tokenizer": {"spec": "bpe:300", **tokenizer},
        "model": {"kind": kind, "size": "tiny"},
        "train": {**SETTINGS, "budget": "640tokens"},
    }
    run.start(make_recipe(values), path)
    return path


def test_a_run_on_the_same_text_joins_with_its_curve_and_cost(compared: Path, book: Path, tmp_path: Path) -> None:
    other = trained(tmp_path / "gpt2", book, "rnn")
    done = add([other], compared)
    (entry,) = [entry for entry in done.board["entries"] if "added" in entry]
    assert entry["name"] == "gpt2-2", "its name was taken"
    assert entry["kind"] == "rnn"
    assert "same text" in entry["added"]
    assert entry["perplexity"] is not None
    assert entry["training"]["tokens"] == 640
    assert entry["curve"]
    assert "†" in done.report.read_text()
    again = run_comparison(small(book), compared)
    assert [entry["name"] for entry in again.board["entries"]] == [entry["name"] for entry in done.board["entries"]]
    twice = add([other], compared)
    assert len(twice.board["entries"]) == 4, "the same run joins once"


def test_another_tokenizer_joins_by_bits_per_byte_alone(compared: Path, book: Path, tmp_path: Path) -> None:
    done = add([trained(tmp_path / "bytes", book, spec="bytes")], compared)
    assert all(entry["perplexity"] is None for entry in done.board["entries"])
    assert any("use different tokenizers" in note for note in done.board["notes"])


def test_a_lossy_tokenizer_cannot_join(compared: Path, book: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"words:\d+, which is lossy"):
        add([trained(tmp_path / "words", book, spec="words")], compared)


def test_a_run_that_has_seen_the_test_text_cannot_join(compared: Path, book: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.txt"
    more.write_text(book.read_text() + lines(900, seed=7))
    with pytest.raises(ValueError, match=r"100% of the test text is also in its training text"):
        add([trained(tmp_path / "cheat", more)], compared)


def test_a_run_on_another_text_joins_and_what_was_checked_is_reported(compared: Path, tmp_path: Path) -> None:
    text = tmp_path / "other.txt"
    text.write_text(lines(900, seed=100_000))
    done = add([trained(tmp_path / "other", text)], compared)
    (entry,) = [entry for entry in done.board["entries"] if "added" in entry]
    assert "0.0% of the long lines" in entry["added"]
    assert entry["curve"] == [], "another validation text"


def test_what_cannot_be_checked_is_reported(compared: Path, book: Path, tmp_path: Path) -> None:
    path = trained(tmp_path / "imported", book)
    for name in ("recipe.json", "metrics.jsonl", "manifest.json"):
        (path / name).unlink()
    done = add([path], compared)
    (entry,) = [entry for entry in done.board["entries"] if "added" in entry]
    assert "it is unknown" in entry["added"]
    assert entry["training"] == {}
    assert "it is unknown" in done.report.read_text()


def test_adding_needs_a_comparison_and_a_run(compared: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a comparison"):
        add([compared / "gpt2"], tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        add([tmp_path / "nothing"], compared)


def test_shared_lines_by_hand() -> None:
    long, longer = "x" * 40, "y" * 60
    assert shared_lines([f"{long}\n{longer}\nshort\n"], iter([f"other\n  {long} \nshort"])) == pytest.approx(0.4)
    assert shared_lines(["short\n"], iter(["short\n"])) == 0.0


def test_characters_that_have_no_token_are_lost_text(compared: Path, tmp_path: Path) -> None:
    """`characters` is lossless on its own text alone."""
    text = tmp_path / "other.txt"
    text.write_text(lines(900, seed=100_000).replace("&", "and"))
    with pytest.raises(ValueError, match=r"characters, which is lossy"):
        add([trained(tmp_path / "letters", text, spec="characters")], compared)


def test_nothing_else_joins_where_the_comparison_itself_loses_text(book: Path, tmp_path: Path) -> None:
    folder = run_comparison(small(book, models="ngram", tokenizers=["words"]), tmp_path / "words").report.parent
    with pytest.raises(ValueError, match=r"the comparison's tokenizer is lossy"):
        add([trained(tmp_path / "bytes", book, spec="bytes")], folder)
    done = add([trained(tmp_path / "same", book, spec="words")], folder)
    assert len(done.board["entries"]) == 2
    assert "lossy" in done.report.read_text()


def test_what_a_run_cost_is_reported_as_the_run_has_it(
    compared: Path, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPU seconds are kept, and grams are those of the country of the run, wherever it joins."""
    path = trained(tmp_path / "mine", book, "rnn")
    metrics = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in metrics:
        line["cost"] |= {"gpu_seconds": 7.5, "grams": 0.125}
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    monkeypatch.setenv("LMLAB_COUNTRY", "NO")
    done = add([path], compared)
    (entry,) = [entry for entry in done.board["entries"] if "added" in entry]
    assert entry["training"]["gpu_seconds"] == 7.5
    assert entry["training"]["grams"] == 0.125
    rate = [line["cost"]["tokens_per_second"] for line in metrics if "tokens_per_second" in line["cost"]][-1]
    assert entry["training"]["seconds"] == pytest.approx(640 / rate), "of training alone"
    assert entry["training"]["wall_seconds"] > entry["training"]["seconds"]
