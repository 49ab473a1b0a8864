"""What users give and get: texts that become examples, examples of a wrong form, predictions as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

from lmlab.data.readers.examples import Answer, Example
from lmlab.models import load_class
from lmlab.tasks.predicting import Predictor, as_dict, to_json, to_json_with_truth
from lmlab.tasks.records import Prediction
from lmlab.tasks.task import Task
from toy_tasks import EXAMPLES, toy_heads, toy_model, toy_task, toy_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")


def task_of(kind: str, **settings: Any) -> Task:
    return toy_task(kind, load_class("bert"), **settings)


def predictor_of(kind: str, *, system: str = "bert", **settings: Any) -> Predictor:
    tokenizer = toy_tokenizer()
    task = toy_task(kind, load_class(system), tokenizer=tokenizer, **settings)
    model = toy_model(system, tokenizer)
    return Predictor(task=task, model=model, heads=toy_heads(task, model))  # type: ignore[arg-type]


def test_texts_become_examples() -> None:
    assert task_of("classification").make_example(["a film"]) == Example("a film")
    assert task_of("classification").make_example(["a", "b"]) == Example("a", "b")
    assert task_of("regression", pair=True).make_example(["a", "b"]) == Example("a", "b")
    assert task_of("tagging").make_example(["Ada ran", "home"]) == Example(("Ada", "ran", "home"))
    assert task_of("choice").make_example(["who ?", "Ada", "a cat"]) == Example("who ?", choices=("Ada", "a cat"))
    assert task_of("spans").make_example(["who ?", "Ada ran"]) == Example("who ?", "Ada ran")


WRONG_TEXTS: list[tuple[str, dict[str, Any], list[str], str]] = [
    ("classification", {"pair": False}, ["a", "b"], "reads one text, and 2 are given: put several texts into a file"),
    ("classification", {"pair": True}, ["a"], "the two texts of a pair, and 1 text is given"),
    ("classification", {}, ["a", "b", "c"], "3 are given"),
    ("choice", {}, ["who ?", "Ada"], "1 choice"),
    ("spans", {}, ["who ?"], "the text that has its answer"),
    ("tagging", {}, [], "nothing to predict"),
]


@pytest.mark.parametrize(("kind", "settings", "texts", "words"), WRONG_TEXTS)
def test_texts_that_are_too_many_or_too_few(kind: str, settings: dict[str, Any], texts: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        task_of(kind, **settings).make_example(texts)


WRONG_EXAMPLES: list[tuple[str, Any, str]] = [
    ("tagging", Example("Ada ran"), "'Ada ran': tagging reads the words of a sentence"),
    ("tagging", Example(("Ada", 3)), "a list of words"),  # type: ignore[arg-type]
    ("classification", Example(("Ada", "ran")), "'Ada ran': classification reads a text"),
    ("regression", Example("a", 3), "second text"),  # type: ignore[arg-type]
    ("classification", Example("a", choices=("b", "c")), "no choices"),
    ("choice", Example("who ?"), "two choices or more"),
    ("choice", Example("who ?", choices=("Ada",), source="q.tsv", line=7), "q.tsv, line 7: a question needs two"),
    ("spans", Example("who ?"), "the text that has its answer"),
]


@pytest.mark.parametrize(("kind", "example", "words"), WRONG_EXAMPLES)
def test_an_example_of_another_form_is_one_error(kind: str, example: Example, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        predictor_of(kind).predict([*EXAMPLES[kind], example])


def test_a_prediction_as_json() -> None:
    question = Example("who ?", "Ada ran", label=(Answer("Ada", 0),))
    found = Prediction("Ada", 0.5, {"Ada": 0.5, "ran": 0.5}, (0, 3))
    expected = {"text": "who ?", "second": "Ada ran", "predicted": "Ada", "probability": 0.5}
    expected |= {"scores": {"Ada": 0.5, "ran": 0.5}, "span": [0, 3]}
    assert json.loads(to_json(question, found)) == expected
    assert json.loads(to_json_with_truth(question, found)) == {**expected, "true": ["Ada"]}
    assert json.loads(to_json_with_truth(Example("é"), Prediction(1.5)))["true"] is None
    assert "é" in to_json(Example("é"), Prediction(1.5))
    assert as_dict(Example("x", choices=("a", "b")), Prediction(0))["choices"] == ("a", "b")


SCORED: list[tuple[str, dict[str, Any]]] = [
    ("classification", {"method": "mix"}),
    ("classification", {"auxiliary": 0.5}),
    *((kind, {}) for kind in EXAMPLES),
    ("tagging", {"crf": True}),
]


@pytest.mark.parametrize(("kind", "settings"), SCORED)
def test_predicting_computes_no_loss(kind: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = predictor_of(kind, system="gpt2", **settings)
    task, batch = predictor.task, predictor.task.batch(predictor.task.items(EXAMPLES[kind]))
    with torch.inference_mode():
        expected, _ = task.scores_and_losses(predictor.model, predictor.heads, batch)
        torch.testing.assert_close(task.scores(predictor.model, predictor.heads, batch), expected)

    def fail(*args: Any) -> None:
        raise AssertionError("no loss is asked for")

    monkeypatch.setattr(task, "loss_of", fail)
    monkeypatch.setattr(task, "_language_loss", fail)
    assert len(predictor.predict(EXAMPLES[kind])) == len(EXAMPLES[kind])


def test_punctuation_is_a_word_of_its_own() -> None:
    from lmlab.tasks.tagging import split_words

    assert split_words('Ada saw "Venus" (twice), in the U.S. today.') == (
        *("Ada", "saw", '"', "Venus", '"', "(", "twice", ")", ",", "in", "the", "U.S.", "today", "."),
    )
    assert split_words("... ! a-b don't") == ("...", "!", "a-b", "don't")


def test_a_sentence_is_split_for_a_tagger_alone() -> None:
    tagging, classes = (toy_task(kind, load_class("bert")) for kind in ("tagging", "classification"))
    assert tagging.to_input("Ada ran.") == ("Ada", "ran", ".")
    assert tagging.to_input(["Ada", "ran."]) == ("Ada", "ran.")
    assert classes.to_input("Ada ran.") == "Ada ran."
