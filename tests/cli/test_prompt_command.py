"""`lmlab prompt` as users run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from standins import write_run
from toy_tasks import write_reviews


def test_scores_beside_the_commonest_answer(run_command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    run = str(write_run(tmp_path / "book", "ngram"))
    reviews = str(write_reviews(tmp_path / "reviews.tsv"))
    said = run_command("prompt", run, reviews, "--task", "sentiment", "--shots", "0,2", "--examples", "20")
    assert said.code == 0, said.err
    assert "sentiment: 20 items" in said.out
    assert "commonest answer" in said.out
    said = run_command("prompt", run, reviews, "--task", "sentiment", "--shots", "0,2", "--examples", "20", "--json")
    found = json.loads(said.out)
    assert [each["shots"] for each in found["shots"]] == [0, 2]
    assert 0 <= found["shots"][0]["scores"]["accuracy"]["low"] <= found["shots"][0]["scores"]["accuracy"]["value"]
    assert found["majority"]["value"] >= 0.3


def test_mistakes_are_told(run_command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    run = str(write_run(tmp_path / "book", "ngram"))
    reviews = str(write_reviews(tmp_path / "reviews.tsv"))
    assert "such as 0,1,8" in run_command("prompt", run, reviews, "--task", "sentiment", "--shots", "x").err
    assert "unknown task" in run_command("prompt", run, reviews, "--task", "sentimental").err
    said = run_command("prompt", run, reviews, "--task", "sentiment", "--finetuned", run)
    assert "has not learnt a task" in said.err
