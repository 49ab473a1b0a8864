"""Tags: one for each word, however many pieces it has and however long the sentence is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from lmlab.data.readers.examples import Example
from lmlab.models import load_class
from lmlab.tasks.predicting import Predictor, compute_metrics
from lmlab.tasks.tagging import Tagging
from lmlab.tokenizers import Tokenizer, train
from lmlab.tokenizers.words import read_words
from toy_tasks import EXAMPLES, LABELS, TEXT, toy_heads, toy_model, toy_task

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
SENTENCE = "Ada Ada ran to the log in London and the cat sat on the mat"
LONG = Example(
    tuple(SENTENCE.split()),
    label=("B-PER", "I-PER", *"OOOOO", "B-LOC", *"OOOOOOO"),
)


@pytest.fixture(scope="module", params=["wordpiece:300", "bpe:280", "characters", "unigram:300"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train(request.param, [TEXT * 20]).with_specials(["cls", "sep"])


def tagging(tokenizer: Tokenizer, *, kind: str = "bert", **settings: Any) -> Tagging:
    task = toy_task("tagging", load_class(kind), tokenizer=tokenizer, **settings)
    assert isinstance(task, Tagging)
    return task


@pytest.mark.parametrize("window", [None, 40, 12, 5])
def test_long_sentences_are_cut_between_words(tokenizer: Tokenizer, window: int | None) -> None:
    task = tagging(tokenizer, window=window)
    examples = [*EXAMPLES["tagging"], LONG]
    items = task.items(examples)
    for number, example in enumerate(examples):
        own = [item for item in items if item.number == number]
        assert [word for item in own for word in item.positions or ()] == list(range(len(example.a)))
        assert [LABELS["tagging"][tag] for item in own for tag in item.label] == list(example.label)
        pieces = [piece for item in own for piece in item.parts["a"]]
        assert pieces == read_words(list(example.a), tokenizer).pieces, "nothing is lost between parts"
    assert window is None or task.batch(items).inputs["tokens"].shape[1] <= window
    model = toy_model("bert", tokenizer, window=96)
    predictor = Predictor(task=task, model=model, heads=toy_heads(task, model))  # type: ignore[arg-type]
    found = predictor.predict(examples)
    assert [len(each.value) for each in found] == [len(example.a) for example in examples]
    assert 0 <= compute_metrics(task, found, examples)["f1"] <= 1


def test_words_are_read_at_their_first_pieces(tokenizer: Tokenizer) -> None:
    task, model = tagging(tokenizer), toy_model("bert", tokenizer, window=96)
    heads, examples = toy_heads(task, model), EXAMPLES["tagging"]
    scores, sums = task.scores_and_losses(model, heads, task.batch(task.items(examples)))
    total = 0.0
    for row, example in zip(scores, examples, strict=True):
        text = read_words(list(example.a), tokenizer)
        ids = [tokenizer.special("cls"), *text.pieces, tokenizer.special("sep")]
        hidden = model(tokens=torch.tensor([ids]), segments=torch.zeros(1, len(ids), dtype=torch.long)).hidden[0]
        firsts = [1 + text.words.index(word) for word in range(len(example.a))]
        expected = heads["label"](hidden[firsts])
        torch.testing.assert_close(row[: len(firsts)], expected, atol=1e-4, rtol=1e-4)
        tags = torch.tensor([LABELS["tagging"].index(tag) for tag in example.label])
        total += float(F.cross_entropy(expected, tags, reduction="sum").detach())
    assert float(sums["label"].detach()) == pytest.approx(total, rel=1e-4)


def test_a_span_that_is_cut_keeps_a_legal_beginning() -> None:
    """Under a CRF a part of a sentence that began with I would have no probability at all."""
    tokenizer = train("words", [TEXT * 20]).with_specials(["cls", "sep"])
    example = Example(("Ada",) * 9, label=("B-PER", *["I-PER"] * 8))
    task, model = tagging(tokenizer, window=5, crf=True), toy_model("bert", tokenizer)
    items = task.items([example])
    assert len(items) == 3
    heads = toy_heads(task, model)
    assert task.scores_and_losses(model, heads, task.batch(items))[1]["label"].isfinite()
    plain = tagging(tokenizer, window=5).items([example])
    assert [LABELS["tagging"][tag] for item in plain for tag in item.label] == list(example.label)


@pytest.mark.parametrize("crf", [False, True])
def test_sentences_without_words_and_labels(crf: bool, tokenizer: Tokenizer) -> None:
    task, model = tagging(tokenizer, crf=crf), toy_model("bert", tokenizer, window=96)
    predictor = Predictor(task=task, model=model, heads=toy_heads(task, model))  # type: ignore[arg-type]
    found = predictor.predict([Example(()), EXAMPLES["tagging"][0], Example(())])
    assert [len(each.value) for each in found] == [0, 6, 0]
    assert found[0].probability is None
    assert found[1].value == predictor.tag("Ada wrote it in London .").value
    assert predictor.predict([]) == []
    assert predictor.tag("").value == ()


def test_a_crf_gives_legal_tags_and_their_own_probability() -> None:
    tokenizer = train("words", [TEXT * 20]).with_specials(["cls", "sep"])
    task, model = tagging(tokenizer, crf=True), toy_model("bert", tokenizer)
    for seed in range(5):
        heads = toy_heads(task, model, seed=seed)
        items = task.items([LONG])
        scores, _ = task.scores_and_losses(model, heads, task.batch(items))
        prediction = Predictor(task=task, model=model, heads=heads).predict([LONG])[0]  # type: ignore[arg-type]
        for before, tag in zip(("O", *prediction.value), prediction.value, strict=False):
            assert not tag.startswith("I-") or before[1:] == tag[1:]
        fractions = scores[0].softmax(-1)
        tags = [LABELS["tagging"].index(tag) for tag in prediction.value]
        own = min(float(fractions[word, tag].detach()) for word, tag in enumerate(tags))
        assert prediction.probability == pytest.approx(own, rel=1e-4)


def test_an_unknown_tag_is_named() -> None:
    tokenizer = train("words", [TEXT * 20]).with_specials(["cls", "sep"])
    wrong = Example(("Ada",), label=("B-ORG",), source="a.conll", line=7)
    with pytest.raises(ValueError, match=r"a\.conll, line 7: tag 'B-ORG' is not among O, B-LOC"):
        tagging(tokenizer).items([wrong])
