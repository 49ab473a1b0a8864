"""`lmlab prompt` as users run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from standins import write_run
from toy_tasks import write_reviews, write_toy_run


def test_scores_beside_the_commonest_answer(run_command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    run = str(write_run(tmp_path / "book", "ngram"))
    reviews = str(write_reviews(tmp_path / "reviews.tsv"))
    said = run_command("prompt", run, reviews, "--task", "sentiment", "--shots", "0,2", "--limit", "20")
    assert said.code == 0, said.err
    assert "sentiment: 20 items" in said.out
    assert "commonest answer" in said.out
    said = run_command("prompt", run, reviews, "--task", "sentiment", "--shots", "0,2", "--limit", "20", "--json")
    found = json.loads(said.out)
    assert [each["shots"] for each in found["shots"]] == [0, 2]
    assert 0 <= found["shots"][0]["scores"]["accuracy"]["low"] <= found["shots"][0]["scores"]["accuracy"]["value"]
    assert found["majority"]["value"] >= 0.3


def test_prompts_that_the_window_cuts_are_reported(run_command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    run = str(write_run(tmp_path / "book", "gpt2"))  # 16 tokens
    reviews = str(write_reviews(tmp_path / "reviews.tsv"))
    given = ("prompt", run, reviews, "--task", "sentiment", "--shots", "0,8", "--limit", "5")
    said = run_command(*given, "--show")
    assert said.code == 0, said.err
    assert "8 shots: 5 of 5 prompts are longer than the window of 16 tokens" in said.err
    assert "0 of 8 examples were seen" in said.err
    assert "0 of 0 examples" not in said.err
    assert "cut" in said.out
    assert said.out.rstrip().rpartition("--- answered ---")[2].strip() in ("positive", "negative")
    few, many = json.loads(run_command(*given, "--json").out)["shots"]
    assert (many["cut"], many["shots_seen"]) == (5, 0.0)
    assert few["shots_seen"] == 0.0


def test_a_fine_tuned_run_beside_it_is_checked_as_by_evaluate(run_command: Callable[..., Any], tmp_path: Path) -> None:
    from lmlab.transfer.finetune import finetune

    (tmp_path / "book").mkdir()
    run = str(write_run(tmp_path / "book", "ngram"))
    bert = write_toy_run(tmp_path / "bert", "bert")
    reviews = write_reviews(tmp_path / "reviews.tsv")
    finetune(bert, reviews, output=tmp_path / "stars", controls=False, train={"budget": "2steps", "evaluations": 1})
    given = ("prompt", run, str(reviews), "--task", "sentiment", "--limit", "20", "--versus", "stars")
    said = run_command(*given)
    assert said.code == 0, said.err
    assert "stars was trained on" in said.err
    assert "too good" in said.err
    assert json.loads(run_command(*given, "--json").out)["finetuned"]["trained_on"] > 0
    (tmp_path / "other.tsv").write_text("text\tlabel\n" + "a film\tyes\nno film\tno\n" * 10)
    said = run_command("prompt", run, "other.tsv", "--task", "sentiment", "--versus", "stars")
    assert said.code == 2
    assert "is not known from training" in said.err


def test_mistakes_are_reported(run_command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    run = str(write_run(tmp_path / "book", "ngram"))
    reviews = str(write_reviews(tmp_path / "reviews.tsv"))
    assert "such as 0,1,8" in run_command("prompt", run, reviews, "--task", "sentiment", "--shots", "x").err
    assert "unknown task" in run_command("prompt", run, reviews, "--task", "sentimental").err
    said = run_command("prompt", run, reviews, "--task", "sentiment", "--versus", run)
    assert "has not learnt a task" in said.err
