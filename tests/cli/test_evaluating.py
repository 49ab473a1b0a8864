"""`lmlab evaluate` on a test file gives the scores of `lmlab finetune`, and says where a file is for another task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmlab.language_model import load
from lmlab.runs.recipe_record import read_record
from lmlab.runs.storage import write_manifest
from lmlab.transfer.evaluation import evaluate_file, read_as_trained
from lmlab.transfer.finetune import finetune
from lmlab.transfer.folder import Finetuned
from lmlab.transfer.task_data import open_data
from toy_tasks import WORDS, write_reviews, write_squad, write_tagged, write_toy_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning", "ignore:too few n-grams")
TRAIN = {"budget": "6steps", "evaluations": 1}
LEAKED = 5


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_run(tmp_path_factory.mktemp("place") / "bert", "bert")


def scores(number: int) -> str:
    return f"{number}\tthe cat {WORDS[number % 20]} was {WORDS[number * 7 % 20]} {number}\t{number * 0.7 % 4:.2f}\tx"


def choice(number: int) -> str:
    choices = [WORDS[(number + i) % 20] for i in range(3)]
    return json.dumps({"question": f"the {WORDS[number % 20]} {number}", "choices": choices, "answer": number % 3})


def write_files(folder: Path, task: str) -> tuple[Path, Path, int]:
    """Examples to train on and to test with, whose first ones are in both; and how many the test has."""
    if task == "spans":
        train = write_squad(folder / "train.json")
        whole = json.loads(write_squad(folder / "all.json", count=16).read_text())
        paragraphs = whole["data"][0]["paragraphs"]
        whole["data"][0]["paragraphs"] = [*paragraphs[:2], *paragraphs[12:]]
        (folder / "test.json").write_text(json.dumps(whole))
        return train, folder / "test.json", 12
    if task == "tagging":
        sentences = write_tagged(folder / "all.conll", count=40).read_text().split("\n\n")
        (folder / "train.conll").write_text("\n\n".join(sentences[:30]) + "\n")
        (folder / "test.conll").write_text("\n\n".join([*sentences[:LEAKED], *sentences[30:]]) + "\n")
        return folder / "train.conll", folder / "test.conll", LEAKED + 10
    header, ending, rows = {
        "classification": ("text\tlabel", "tsv", write_reviews(folder / "all.tsv").read_text().splitlines()[1:]),
        "regression": ("id\twords\tgrade\tother", "tsv", [scores(number) for number in range(60)]),
        "choice": ("", "jsonl", [choice(number) for number in range(60)]),
    }[task]
    train, test = rows[:45], [*rows[:LEAKED], *rows[45:]]
    for name, part in (("train", train), ("test", test)):
        (folder / f"{name}.{ending}").write_text("\n".join([header, *part]).lstrip() + "\n")
    return folder / f"train.{ending}", folder / f"test.{ending}", len(test)


COLUMNS = {"regression": {"text": "words", "label": "grade"}}


def learn(bert: Path, folder: Path, task: str, **options: Any) -> tuple[Finetuned, Path, int]:
    train, test, count = write_files(folder, task)
    done = finetune(
        bert,
        train,
        test=test,
        columns=COLUMNS.get(task),
        output=folder / "run",
        controls=False,
        train=TRAIN,
        **options,
    )
    return done, test, count


@pytest.mark.parametrize("task", ["classification", "tagging", "spans", "regression", "choice"])
def test_evaluate_gives_the_scores_of_finetune(
    task: str, bert: Path, tmp_path: Path, run_command: Callable[..., Any]
) -> None:
    done, test, count = learn(bert, tmp_path, task)
    (result,) = done.study.results
    assert done.study.task == task
    assert result.count == count, "an official test file is scored whole"
    assert any("examples of test also occur in train or valid" in line for line in done.study.check)
    said = run_command("evaluate", str(done.path), str(test), "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["examples"] == count
    for name, each in result.values.items():
        assert found[name] == each.value
        assert found["intervals"][name] == [each.low, each.high]
    assert found["trained_on"] > 0
    own = json.loads(run_command("evaluate", str(done.path), "--json").out)
    assert (own["examples"], own["split"], own["intervals"]) == (count, "test", found["intervals"])
    assert json.loads(run_command("evaluate", str(done.path), "--limit", "2", "--json").out)["examples"] == 2


@pytest.mark.parametrize("task", ["classification", "tagging", "spans"])
def test_the_same_of_validation_examples(task: str, bert: Path, tmp_path: Path) -> None:
    train, valid, count = write_files(tmp_path, task)
    done = finetune(bert, train, valid=valid, output=tmp_path / "run", controls=False, train=TRAIN)
    (result,) = done.study.results
    assert result.count == count
    found = evaluate_file(load(done.path).predictor, valid, run=done.path)
    assert found.values == result.values


@pytest.mark.parametrize(("leaks", "trained"), [("keep", 45), ("train", 40), ("test", 45)])
def test_leaks_are_removed_from_the_side_that_is_asked_for(
    leaks: str, trained: int, bert: Path, tmp_path: Path
) -> None:
    done, test, count = learn(bert, tmp_path, "classification", leaks=leaks)
    (result,) = done.study.results
    counts = done.study.counts
    assert counts["train"] + counts["valid"] == trained
    assert result.count == counts["test"] == (count if leaks != "test" else count - LEAKED)
    said = " ".join(done.study.check)
    assert {
        "keep": "leaks: 5 of 20 examples of test also occur in train or valid",
        "train": "leaks: 5 removed from train",
        "test": "leaks: 5 removed from test",
    }[leaks] in said
    texts = {row.partition("\t")[0] for row in test.read_text().splitlines()[1:]}
    data = open_data(tmp_path / "train.tsv", test=test, leaks=leaks)
    shared = [each for each in (*data.labelled.train, *(data.labelled.valid or ())) if each.a in texts]
    assert len(shared) == (0 if leaks == "train" else LEAKED)
    assert evaluate_file(load(done.path).predictor, test, run=done.path).values == result.values


def test_a_run_of_an_older_version_keeps_its_test_examples(bert: Path, tmp_path: Path) -> None:
    done, test, count = learn(bert, tmp_path, "classification", leaks="test")
    recipe = json.loads((done.path / "recipe.json").read_text())
    del recipe["data"]["leaks"], recipe["data"]["drop_bad_labels"]
    (done.path / "recipe.json").write_text(json.dumps(recipe))
    write_manifest(done.path)
    assert read_record(done.path).recipe.data.leaks == "test"  # type: ignore[union-attr]
    found = evaluate_file(load(done.path).predictor, test, run=done.path)
    assert len(found.examples) == count - LEAKED
    assert found.values == done.study.results[0].values


def test_automatic_splits_share_no_text(bert: Path, tmp_path: Path) -> None:
    rows = write_reviews(tmp_path / "once.tsv").read_text().splitlines()
    (tmp_path / "twice.tsv").write_text("\n".join([*rows, *rows[1:]]) + "\n")
    labelled = open_data(tmp_path / "twice.tsv").labelled
    parts = [{each.a for each in part or ()} for part in (labelled.train, labelled.valid, labelled.test)]
    assert all(parts)
    assert not any(one & other for one, other in ((parts[0], parts[1]), (parts[0], parts[2]), (parts[1], parts[2])))


def test_another_file_is_read_with_the_columns_of_training(bert: Path, tmp_path: Path) -> None:
    done, _, _ = learn(bert, tmp_path, "regression")
    other = tmp_path / "other.tsv"
    other.write_text("id\twords\tgrade\tother\n" + "\n".join(scores(number) for number in range(60, 70)) + "\n")
    chosen = read_as_trained(done.path, other)
    assert chosen is not None
    assert [each.label for each in chosen.examples] == [round(number * 0.7 % 4, 2) for number in range(60, 70)]


def test_a_file_for_another_task_is_reported(bert: Path, tmp_path: Path, run_command: Callable[..., Any]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    classes, named, _ = learn(bert, tmp_path / "a", "classification")
    graded, grades, _ = learn(bert, tmp_path / "b", "regression")
    zero_one = tmp_path / "zero_one.tsv"
    zero_one.write_text("text\tlabel\n" + "".join(f"the cat {i}\t{i % 2}\n" for i in range(20)))
    said = run_command("evaluate", str(graded.path), str(zero_one), "--json")
    assert said.code == 0, said.err
    assert "zero_one.tsv holds 2 classes (0, 1), and this run predicts scores" in said.err
    assert "as numbers" in json.loads(said.out)["notes"][0]
    said = run_command("evaluate", str(classes.path), str(zero_one))
    assert said.code == 2
    assert "zero_one.tsv holds the classes 0, 1, and this run distinguishes neg, pos" in said.err
    said = run_command("evaluate", str(classes.path), str(grades), "--columns", "text=words,label=grade")
    assert said.code == 2
    assert "test.tsv holds the numbers 0, 0.70, 1.40" in said.err.replace("0.00", "0")
    assert "and this run distinguishes neg, pos" in said.err
    said = run_command("evaluate", str(graded.path), str(named))
    assert said.code == 2
    assert "this run gives texts a score, and" in said.err
    said = run_command("evaluate", str(graded.path), str(grades), "--json")
    assert json.loads(said.out)["notes"] == []


def test_bad_labels_of_a_test_file_are_named_and_can_be_left_out(
    bert: Path, tmp_path: Path, run_command: Callable[..., Any]
) -> None:
    train, test, count = write_files(tmp_path, "regression")
    lines = test.read_text().splitlines()
    lines[3] = lines[3].replace(lines[3].split("\t")[2], "nan")
    test.write_text("\n".join(lines) + "\n")
    options = ("--columns", "text=words,label=grade", "--no-controls", "--set", "train.budget=4steps", "--json")
    command = ("finetune", str(bert), str(train), "--test", str(test), *options, "-o", "run")
    said = run_command(*command)
    assert said.code == 2
    assert "1 of 20 values in grade are not numbers: line 4 'nan'" in said.err
    said = run_command(*command, "--drop-bad-labels")
    assert said.code == 0, said.err
    (result,) = json.loads(said.out)["results"]
    assert result["count"] == count - 1
    found = json.loads(run_command("evaluate", "run", str(test), "--json").out)
    assert (found["examples"], found["pearson"]) == (count - 1, result["values"]["pearson"]["value"])


def test_counts_of_music_are_evaluated(run_command: Callable[..., Any]) -> None:
    """An n-gram has no device and no training mode."""
    assert run_command("train", "ngram", "builtin:tunes", "-o", "run").code == 0
    found = run_command("evaluate", "run", "--json")
    assert found.code == 0, found.err
    assert "nats" in found.out


def test_subtitles_are_of_one_recording(run_command: Callable[..., Any]) -> None:
    found = run_command("transcribe", "run", "a.wav", "b.wav", "--srt")
    assert found.code == 2
    assert "--srt with 2 recordings: a subtitle file is of one recording" in found.err
