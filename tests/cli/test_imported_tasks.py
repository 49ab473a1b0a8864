"""Classifiers from Hugging Face folders are evaluated as our own runs are, and texts that are cut are named."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lmlab
from interop.hf_references import make_task_run, transformers
from lmlab.interop.huggingface import export_run

TASK: dict[str, Any] = {"kind": "classification", "labels": ["story", "planet", "other"]}


def write_examples(path: Path, names: dict[str, str] | None = None) -> list[tuple[str, str]]:
    """A file of labelled texts; with other `names` of the classes, if given."""
    labels = ["story", "planet", "other"]
    rows = [(f"The planet Mars goes round the sun {n} times", labels[n % 3]) for n in range(30)]
    named = [f"{text}\t{(names or {}).get(label, label)}" for text, label in rows]
    path.write_text("\n".join(["text\tlabel", *named]) + "\n")
    return rows


def test_an_imported_classifier_is_evaluated_and_a_run_comes_back_with_the_same_scores(
    run_command: Callable[..., Any], tmp_path: Path
) -> None:
    make_task_run(tmp_path / "run", "bert", "wordpiece:200", TASK)
    rows = write_examples(tmp_path / "test.tsv")
    export_run(tmp_path / "run", tmp_path / "hf")
    folder = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf")
    folder.save_pretrained(tmp_path / "theirs")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "hf").save_pretrained(tmp_path / "theirs")
    for source, target in (("hf", "back"), ("theirs", "imported")):
        assert run_command("convert", source, target).code == 0
        assert not (tmp_path / target / "recipe.json").exists()
    found = {}
    for name in ("run", "back", "imported"):
        said = run_command("evaluate", name, "test.tsv", "--json")
        assert said.code == 0, said.err
        found[name] = {key: value for key, value in json.loads(said.out).items() if key != "seconds"}
    assert found["run"] == found["back"] == found["imported"]
    judge = transformers.pipeline("text-classification", str(tmp_path / "theirs"))
    right = sum(judge(text)[0]["label"] == label for text, label in rows)
    assert found["imported"]["accuracy"] == pytest.approx(right / len(rows))
    assert (found["imported"]["examples"], found["imported"]["trained_on"]) == (30, 0)


@pytest.mark.parametrize(
    "names", [{"story": "0", "planet": "1", "other": "2"}, {"story": "Story"}, {"planet": "sun", "other": "moon"}]
)
def test_labels_that_the_run_does_not_have_are_named_on_both_sides(
    run_command: Callable[..., Any], tmp_path: Path, names: dict[str, str]
) -> None:
    make_task_run(tmp_path / "run", "bert", "wordpiece:200", TASK)
    write_examples(tmp_path / "test.tsv", names)
    said = run_command("evaluate", "run", "test.tsv")
    assert said.code == 2
    for name in (*names.values(), "story", "planet", "other"):
        assert name in said.err


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_texts_that_are_truncated_are_reported(run_command: Callable[..., Any], tmp_path: Path, task: str) -> None:
    given = TASK if task == "classification" else {"kind": "regression"}
    predictor = make_task_run(tmp_path / "run", "bert", "wordpiece:200", given)
    window = predictor.model.window
    long = " ".join(["planet Mars"] * 50_000)
    tokens = len(predictor.task.tokenizer.encode(long))
    note = f"the text was truncated: it is longer than the {window:,} tokens that this run reads, and "
    note += f"{tokens + 2 - window:,} tokens were not read"
    said = run_command("predict", "run", long, "--json")
    assert said.err.endswith(f"warning: {note}")
    assert json.loads(said.out)["left_out"] == tokens + 2 - window
    lm = lmlab.load(tmp_path / "run")
    with pytest.warns(UserWarning, match="the text was truncated") as warned:
        found = lm.classify(long)
    assert str(warned[0].message) == note
    cut = lm.text_tokenizer.decode(predictor.task.tokenizer.encode(long)[: window - 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = lm.classify(cut)
    assert same.left_out is None
    assert found.value == pytest.approx(same.value) if task == "regression" else found.value == same.value
    label = "1.5" if task == "regression" else "planet"
    (tmp_path / "test.tsv").write_text(f"text\tlabel\n{long}\t{label}\nMars\t{label}\nsun\t{label}\n")
    said = run_command("evaluate", "run", "test.tsv")
    assert "warning: 1 of 3 texts were truncated" in said.err


def test_sentences_and_contexts_are_read_in_parts_and_nothing_is_left_out(tmp_path: Path) -> None:
    labels = ["O", "B-X", "I-X"]
    tagger = make_task_run(tmp_path / "tags", "bert", "wordpiece:200", {"kind": "tagging", "labels": labels})
    assert tagger.tag(["Mars"] * 300).left_out is None
    reader = make_task_run(tmp_path / "spans", "bert", "wordpiece:200", {"kind": "spans"})
    assert reader.answer("Mars", "planet Venus " * 300).left_out is None
