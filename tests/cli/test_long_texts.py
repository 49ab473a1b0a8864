"""Settings of models for long texts, as a user gives them: what cannot be is one line, and what can be trains."""

from __future__ import annotations

from pathlib import Path

import pytest

TEXT = "".join(f"Line {i} of {i * 7 % 11} has {i % 13} words.\n" for i in range(60))
TINY = ["--size", "tiny", "--tokenizer", "characters", "--budget", "2steps", "--set", "train.batch=2"]


@pytest.fixture
def run(run_command, tmp_path: Path):
    """Train in a folder that holds book.txt."""
    (tmp_path / "book.txt").write_text(TEXT)

    def train(kind: str, *settings: str):
        named = [part for setting in settings for part in ("--set", setting)]
        return run_command("train", kind, "book.txt", "-o", "run", *TINY, *named)

    return train


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        (
            "reformer",
            ["model.buckets=1000"],
            "error: model.buckets = [1000]: 1000 buckets for a window of 128 tokens; give at most as many as tokens, "
            "or none for 16",
        ),
        ("reformer", ["model.buckets=7"], "error: model.buckets = [7]: each factor must be even"),
        ("reformer", ["model.heads=3"], "error: model: 3 heads do not divide the width 64"),
        ("xlnet", ["model.memory=-1"], "error: model.memory = -1: input should be greater than or equal to 0"),
        ("xlnet", ["objective.directions=back"], "error: objective.directions = 'back'"),
        (
            "xlnet",
            ["objective.directions=both", "train.order=shuffled"],
            "error: objective.directions = 'both' reads contiguous text from either end",
        ),
    ],
)
def test_what_cannot_be_is_one_line(run, tmp_path: Path, kind: str, settings: list[str], says: str) -> None:
    said = run(kind, *settings)
    assert said.code == 2
    assert said.err.startswith(says)
    assert "{" not in said.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["transformer-xl", "xlnet"])
def test_a_memory_longer_than_the_text_is_never_full(run, kind: str) -> None:
    said = run(kind, "model.memory=100000")
    assert said.code == 0
    assert "warning: model.memory = 100000 is longer than the training text of" in said.err
    assert "warning" not in run(kind, "model.memory=50", "train.seed=1").err


def test_chunks_need_not_divide_the_window(run) -> None:
    assert run("reformer", "model.chunk=7", "model.local_chunk=5", "train.window=50", "model.attends=chunk").code == 0


def test_it_is_reported_where_the_seed_of_an_approximation_stands(run, run_command) -> None:
    assert run("reformer").code == 0
    said = run_command("score", "run", "book.txt").out
    assert "another seed hashes otherwise (model.hash_seed: lmlab list reformer)" in " ".join(said.split())
    assert "hash_seed" in run_command("list", "reformer").out
