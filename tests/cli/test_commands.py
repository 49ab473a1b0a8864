"""The command line as a user meets it: what it says when all is well, and when it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TEXT = "".join(f"Line {i} of {i * 7 % 11} has {i % 13} words, and {i % 5} commas.\n" for i in range(300))
TINY = ["--size", "tiny", "--tokenizer", "characters", "--budget", "3steps", "--set", "train.batch=2"]


@pytest.fixture
def lmlab(run_command, tmp_path: Path):
    """Run a command in a folder that holds book.txt."""
    (tmp_path / "book.txt").write_text(TEXT)
    return run_command


def test_train_score_generate_next(lmlab) -> None:
    trained = lmlab("train", "gpt2", "book.txt", "-o", "run", *TINY)
    assert trained.code == 0, trained.err
    assert "bits per byte on validation text" in trained.out
    assert "Next: lmlab generate run" in trained.out
    score = lmlab("score", "run", "book.txt", "--json")
    assert {
        "bits_per_byte",
        "perplexity",
        "word_perplexity",
        "nats",
        "tokens",
        "words",
        "bytes",
        "lossy",
    } <= json.loads(score.out).keys()
    first, second = (lmlab("generate", "run", "Line", "--tokens", "12", "--seed", "3") for _ in range(2))
    assert first.code == 0
    assert first.out == second.out
    assert first.out.startswith("Line")
    assert "%" in lmlab("next", "run", "Line").out


def test_a_recipe_and_settings_over_it(lmlab, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(
        '[data]\ntext = "$HERE/book.txt"\n[tokenizer]\nspec = "bytes"\n[model]\nkind = "lstm"\nsize = "tiny"\n'
        '[train]\nbudget = "3steps"\nbatch = 2\n'
    )
    import os

    os.environ["HERE"] = str(tmp_path)
    done = lmlab("train", "--recipe", "r.toml", "-o", "run", "--set", "model.layers=2", "--seed", "5")
    assert done.code == 0, done.err
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert recipe["model"]["layers"] == 2
    assert recipe["train"]["seed"] == 5
    assert recipe["tokenizer"]["spec"] == "bytes"


def test_an_ngram_that_was_killed_is_counted_again(lmlab, tmp_path: Path) -> None:
    assert lmlab("train", "ngram", "book.txt", "-o", "run", "--tokenizer", "words").code == 0
    weights = (tmp_path / "run" / "model.safetensors").read_bytes()
    (tmp_path / "run" / "model.safetensors").unlink()
    assert lmlab("train", "--resume", "run").code == 0
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == weights


def test_a_run_whose_text_has_moved_is_found_again(lmlab, tmp_path: Path) -> None:
    assert lmlab("train", "gpt2", "book.txt", "-o", "run", *TINY).code == 0
    (tmp_path / "book.txt").rename(tmp_path / "moved.txt")
    (tmp_path / "other.txt").write_text(TEXT[:-1])
    lost = lmlab("train", "--resume", "run", "--budget", "4steps")
    assert lost.code == 2
    assert "run learns from" in lost.err
    assert "book.txt, which is not there any more" in lost.err
    other = lmlab("train", "--resume", "run", "--text", "other.txt", "--budget", "4steps")
    assert "other.txt is not the text that run was trained on" in other.err
    found = lmlab("train", "--resume", "run", "--text", "moved.txt", "--budget", "4steps", "--country", "SE")
    assert found.code == 0, found.err
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert recipe["data"]["text"] == [str(tmp_path / "moved.txt")]
    assert recipe["train"]["country"] is None, "as it was begun"
    assert recipe["changes"] == [{"step": 3, "train": {"budget": "4steps", "country": "SE"}}]


def test_pairs_that_have_moved(lmlab, tmp_path: Path) -> None:
    for name in ("s", "t", "vs", "vt"):
        (tmp_path / name).write_text("".join(f"{name} {i} {i % 7}\n" for i in range(60)))
    sides = ("--source", "s", "--target", "t", "--valid-source", "vs", "--valid-target", "vt")
    assert lmlab("train", "transformer", *sides, "-o", "run", *TINY).code == 0
    for name in ("s", "vs"):
        (tmp_path / name).rename(tmp_path / f"new-{name}")
    lost = lmlab("train", "--resume", "run", "--budget", "4steps")
    assert "--source NEW --target NEW" in lost.err
    found = lmlab("train", "--resume", "run", "--budget", "4steps", "--source", "new-s", "--valid-source", "new-vs")
    assert found.code == 0, found.err


def test_ngrams_go_through_arpa_files(lmlab, tmp_path: Path) -> None:
    assert lmlab("train", "ngram", "book.txt", "-o", "run", "--tokenizer", "words", "--size", "tiny").code == 0
    assert lmlab("convert", "run", "run.arpa").code == 0
    assert (tmp_path / "run.arpa").read_text().startswith("\\data\\")
    assert lmlab("convert", "run.arpa", "back").code == 0
    one, two = (json.loads(lmlab("score", run, "book.txt", "--json").out) for run in ("run", "back"))
    assert one["nats"] == pytest.approx(two["nats"], rel=1e-5)
    assert one["tokens"] == two["tokens"]
    assert lmlab("convert", "run", "run.arpa").code == 2, "nothing is overwritten"


def test_list(lmlab) -> None:
    assert "transformer-xl" in lmlab("list").out
    one = lmlab("list", "gpt2").out
    assert "124M" in one
    assert "window" in one
    assert "jelinek-mercer" in lmlab("list", "ngram").out, "what may be chosen is named"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "gpt3", "book.txt", "-o", "run"], "unknown model 'gpt3'; did you mean 'gpt'?"),
        (["train", "gpt2", "book.txt"], "give -o RUN"),
        (["train", "gpt2", "-o", "run"], "give MODEL and TEXT"),
        (["train"], "give MODEL and TEXT"),
        (["train", "gpt2", "book.txt", "-o", "run", "--budget", "1.5steps"], "steps must be a whole number"),
        (["train", "gpt2", "book.txt", "-o", "run", "--valid-source", "book.txt"], "valid_source belongs to pairs"),
        (["train", "gpt2", "missing.txt", "-o", "run"], "missing.txt"),
        (["train", "gpt2", "book.txt", "-o", "run", "--size", "huge"], "unknown size 'huge'"),
        (["train", "gpt2", "book.txt", "-o", "run", "--budget", "soon"], "budget 'soon' is not understood"),
        (["train", "gpt2", "book.txt", "-o", "run", "--set", "model.layer=3"], "did you mean 'layers'?"),
        (["train", "gpt2", "book.txt", "-o", "run", "--set", "model.layers=none"], "model.layers = None"),
        (["train", "gpt2", "book.txt", "-o", "run", "--set", "model.layers=many"], "model.layers = 'many'"),
        (["train", "gpt2", "book.txt", "-o", "run", "--set", "layers=3"], "GROUP.KEY=VALUE"),
        (["train", "gpt2", "book.txt", "-o", "run", "--set", "modle.layers=3"], "unknown group of settings 'modle'"),
        (["train", "gpt2", "book.txt", "-o", "run", "--set", "model.heads=3", "--size", "tiny"], "do not divide"),
        (["train", "gpt2", "book.txt", "-o", "run", "--set", "model.vocabulary=7"], "not the tokenizer's"),
        (["train", "gpt2", "book.txt", "-o", "run", "--set", "train.window=4096"], "more than the"),
        (["train", "gpt2", "book.txt", "-o", "run", "--tokenizer", "bqe:300"], "bqe"),
        (
            ["train", "gpt2", "book.txt", "-o", "run", "--device", "abacus"],
            "device 'abacus' is not known; give auto, cpu",
        ),
        (["train", "gpt2", "book.txt", "-o", "run", "--split", "half"], "0.9,0.05,0.05"),
        (["train", "gpt2", "book.txt", "-o", "run", "--budget", "3tokens"], "does not pay for one step"),
        (["train", "gpt2", "book.txt", "-o", "book.txt"], "book.txt is read by this command"),
        (["train", "--resume", "run"], "nothing to resume"),
        (["train", "gpt2", "--text", "book.txt", "-o", "run"], "name the text after MODEL"),
        (["train", "gpt2", "book.txt", "-o", "run", "--set", "data.alpha=0.3"], "alpha belongs to languages"),
        (["train", "gpt2", "book.txt", "-o", "run", "--set", "data.documnts=lines"], "did you mean 'documents'?"),
        (["train", "gpt2", "book.txt", "-o", "run", "--source-tokenizer", "bytes"], "which only pairs have"),
        (["train", "--recipe", "missing.toml", "-o", "run"], "missing.toml does not exist"),
        (["train", "--recipe", "book.txt", "-o", "run"], "not readable as TOML"),
        (["score", "missing", "book.txt"], "missing does not exist"),
        (["generate", ".", "x"], "not a run directory"),
        (["convert", "missing.arpa", "run"], "missing.arpa"),
    ],
)
def test_bad_input_is_one_clear_message(lmlab, arguments: list[str], message: str, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    said = lmlab(*arguments)
    assert said.code == 2
    assert "error: " in said.err
    assert message in said.err
    assert "Traceback" not in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == before, "nothing is left behind"
