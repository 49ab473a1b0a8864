"""lmlab tokenize, as a user calls it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from lmlab.tokenizers import train

TEXT = "The planet Mars goes round the sun.\nSo does Jupiter, and so does Venus.\n" * 5


@pytest.fixture
def book(tmp_path: Path) -> str:
    (tmp_path / "book.txt").write_text(TEXT)
    return "book.txt"


def test_one_tokenizer_shows_pieces_ids_and_figures(run_command, book: str) -> None:
    said = run_command("tokenize", "bpe:280", "the sun\nMars", "--train", book)
    assert said.code == 0, said.err
    assert "t he ·s un ⏎ 84 261 263 262 199 Ma rs" in said.out
    assert "⏎" in said.out
    assert "12 bytes, 3 words" in said.out
    assert "lossless: decoding the ids gives the text back" in said.out


def test_lossy_is_reported_only_of_a_text_that_loses_something(run_command, book: str) -> None:
    seen = run_command("tokenize", "words", "the the", "--train", book).out
    assert "lossless: this text comes back from its ids, byte for byte; others may lose" in seen
    command = ("tokenize", "spelled:5", "the Pluto", "--train", book)
    new = run_command(*command)
    assert "spelled:5 (5 words are predicted, " in new.out
    assert "lossy: 2 of 2 tokens can only be predicted as unknown (they are read by their letters)" in new.out
    assert "unknown: 'the', 'Pluto'" in new.out
    assert json.loads(run_command(*command, "--json").out)["lossless"] is False


def test_json_has_every_token_with_its_place(run_command, book: str) -> None:
    said = run_command("tokenize", "words", "the sun Pluto", "--train", book, "--json")
    found = json.loads(said.out)
    assert found["name"] == "words"
    assert [token["text"] for token in found["tokens"]] == ["the", "sun", "Pluto"]
    assert [token["unknown"] for token in found["tokens"]] == [False, True, True]  # "sun." is another word
    assert (found["tokens"][1]["start"], found["tokens"][1]["end"]) == (4, 7)
    assert found["lossless"] is False
    assert found["bytes_per_token"] == pytest.approx(13 / 3)


def test_several_stand_side_by_side_and_as_json_lines(
    run_command, book: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run_command("tokenize", "bytes", "bpe:280", "words", "the sun", "--train", book)
    assert "bytes/token" in said.out
    assert "t|h|e|·|s|u|n" in said.out
    from lmlab.cli import main

    monkeypatch.setattr(sys, "argv", ["lmlab", "tokenize", "bytes", "words", "sun", "--train", book, "--json"])
    with pytest.raises(SystemExit):
        main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == ["bytes", "words"]


def test_a_file_and_standard_input_are_read(run_command, book: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run_command("tokenize", "bytes", "--file", book, "--json")
    assert json.loads(said.out)["bytes"] == len(TEXT)
    monkeypatch.setattr(sys, "stdin", io.StringIO("the sun"))
    assert json.loads(run_command("tokenize", "bytes", "-", "--json").out)["count"] == 7


def test_a_long_text_is_shown_in_part(run_command, book: str) -> None:
    assert "more tokens (--json has all of them)" in run_command("tokenize", "bytes", "a" * 500).out


def test_a_saved_tokenizer_and_a_folder_are_read(run_command, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    tokenizer = train("characters", [TEXT])
    tokenizer.save(tmp_path / "folder")
    for name in ("folder", "folder/tokenizer.json"):
        found = json.loads(run_command("tokenize", name, "the sun", "--json").out)
        assert [token["id"] for token in found["tokens"]] == tokenizer.encode("the sun")


def test_a_translator_shows_both_sides(run_command, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    train("characters", [TEXT]).save(tmp_path / "run" / "tokenizer.json")
    train("bytes", []).save(tmp_path / "run" / "source_tokenizer.json")
    said = run_command("tokenize", "run", "the sun")
    assert "run (source)" in said.out


def test_markup_in_a_text_is_shown_as_it_is(run_command) -> None:
    assert "[ b o l d ]" in run_command("tokenize", "bytes", "[bold]").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bytes"], "which text? give it after the tokenizer"),
        (["bpe:280", "hello"], "bpe:280 has to be trained first: name a text to train it on with --training-text FILE"),
        (["bqe:280", "hello"], "did you mean 'bpe'?"),
        (["runs/none", "hello"], "runs/none does not exist"),
        (["bytes", "--file", "none.txt"], "none.txt"),
        (["bytes", "half \ud800 of a pair"], "surrogate"),
    ],
)
def test_errors_are_one_plain_line(run_command, arguments: list[str], message: str) -> None:
    said = run_command("tokenize", *arguments)
    assert said.code == 2
    assert message in said.err


def test_training_a_trained_tokenizer_is_refused(run_command, book: str, tmp_path: Path) -> None:
    train("characters", [TEXT]).save(tmp_path / "own.json")
    said = run_command("tokenize", "own.json", "hello", "--train", book)
    assert said.code == 2
    assert "own.json is trained already" in said.err
