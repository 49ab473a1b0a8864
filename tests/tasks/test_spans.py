"""Answers in contexts: spans against enumeration, windows that overlap, no answer, and texts that are read back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lmlab.data.readers.examples import Answer, Example
from lmlab.data.readers.labelled import read_labelled
from lmlab.models import load_class
from lmlab.tasks.predicting import Predictor
from lmlab.tasks.spans import Spans, best_spans, find_pieces
from lmlab.tokenizers import Tokenizer, train
from lmlab.tokenizers.words import read_text
from toy_tasks import EXAMPLES, toy_heads, toy_model, toy_task, toy_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
CONTEXT = " ".join(f"w{number}" for number in range(40))
QUESTION = "who ?"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train("words", [f"{QUESTION} {CONTEXT}\n" * 3]).with_specials(["cls", "sep"])


def spans_task(tokenizer: Tokenizer, *, kind: str = "bert", **settings: Any) -> Spans:
    task = toy_task("spans", load_class(kind), tokenizer=tokenizer, **settings)
    assert isinstance(task, Spans)
    return task


@pytest.mark.parametrize("seed", range(20))
def test_best_spans_are_those_of_enumeration(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size, longest, best = (int(number) for number in generator.integers(1, 12, 3))
    begin, end = generator.normal(size=(2, size)).astype(np.float32)
    every = [
        (float(begin[first] + end[last]), first, last)
        for first, last in itertools.product(range(size), repeat=2)
        if first <= last < first + longest
    ]
    expected = sorted(every, key=lambda span: (-span[0], span[1], span[2]))[:best]
    found = best_spans(begin, end, longest=longest, best=best)
    assert [span[1:] for span in found] == [span[1:] for span in expected]
    np.testing.assert_allclose([span[0] for span in found], [span[0] for span in expected], rtol=1e-6)
    assert best_spans(begin[:0], end[:0], longest=longest, best=best) == []


@pytest.mark.parametrize("seed", range(20))
def test_of_equal_spans_the_first_are_best(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size, longest, best = (int(number) for number in generator.integers(1, 40, 3))
    begin, end = generator.integers(0, 3, (2, size)).astype(np.float32)
    begin[generator.random(size) < 0.2] = -np.inf
    every = [
        (float(begin[first] + end[last]), first, last)
        for first, last in itertools.product(range(size), repeat=2)
        if first <= last < first + longest and np.isfinite(begin[first])
    ]
    expected = sorted(every, key=lambda span: (-span[0], span[1], span[2]))[:best]
    assert best_spans(begin, end, longest=longest, best=best) == expected


def test_a_context_is_read_once_for_all_its_questions(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    task = spans_task(tokenizer, window=24)
    examples = [Example(f"{QUESTION} {number}", CONTEXT) for number in range(5)] + [Example(QUESTION, "w1 w2")]
    items = task.items(examples)
    decoded = [([(1.0, 0, 1)], 0.0) for _ in items]
    read: list[str] = []

    def note(text: str, own: Tokenizer) -> Any:
        read.append(text)
        return read_text(text, own)

    monkeypatch.setattr("lmlab.tasks.spans.read_text", note)
    found = task.predictions(examples, items, decoded)
    assert read == [CONTEXT, "w1 w2"]
    assert [each.value for each in found] == ["w0 w1"] * 5 + ["w1 w2"]


@pytest.mark.parametrize(("window", "stride"), [(16, 4), (16, 1), (12, 64), (64, 8)])
@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 40])
def test_windows_cover_the_context(window: int, stride: int, length: int, tokenizer: Tokenizer) -> None:
    """Every piece is in a window, neighbours overlap, and every short answer is whole in one of them."""
    task = spans_task(tokenizer, window=window, stride=stride)
    context = " ".join(CONTEXT.split()[:length])
    items = task.items([Example(QUESTION, context, label=())])
    covered = [set(item.positions or ()) for item in items]
    assert set().union(*covered) == set(range(length))
    for row in task.frame.rows([item.parts for item in items]):
        assert len(row.inputs["tokens"].pieces) <= window
        assert len(row.inputs["tokens"].positions("b")) == row.inputs["tokens"].parts.count("b")
    content = window - 3 - 2
    overlap = min(stride, content // 2)
    for one, other in itertools.pairwise(covered):
        assert len(one & other) >= overlap
    for first in range(length):
        answer = set(range(first, min(length, first + overlap)))
        assert any(answer <= own for own in covered)


def test_labels_stand_where_the_answer_is(tokenizer: Tokenizer) -> None:
    task = spans_task(tokenizer, window=16, stride=4)
    for first, last in itertools.combinations_with_replacement(range(40), 2):
        if last - first > 5:
            continue
        words = CONTEXT.split()[first : last + 1]
        answer = Answer(" ".join(words), len(" ".join(CONTEXT.split()[:first])) + (first > 0))
        items = task.items([Example(QUESTION, CONTEXT, label=(answer,))])
        inside = [item for item in items if {first, last} <= set(item.positions or ())]
        assert [item.label != (0, 0) for item in items] == [item in inside for item in items]
        for item in inside:
            begin, end = item.label
            read = task.frame.rows([item.parts])[0].inputs["tokens"].pieces
            at = task.batch([item]).labels["at"][0].tolist()
            assert [tokenizer.decode([read[place]]).strip() for place in at[begin : end + 1]] == words


class Oracle(torch.nn.Module):
    """A head that knows the ids with which the answer begins and ends."""

    def __init__(self, begin: int, end: int, none: float = 0.0) -> None:
        super().__init__()
        self.begin, self.end, self.none = begin, end, none

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        ids = ids[..., 0]
        scores = torch.stack([(ids == self.begin) * 9.0, (ids == self.end) * 9.0], -1)
        scores[:, 0] = self.none / 2
        return scores


class Ids(torch.nn.Module):
    """A model whose vectors are the ids that it reads."""

    device = torch.device("cpu")

    def vectors(self, *, tokens: torch.Tensor, at: torch.Tensor, **_: Any) -> torch.Tensor:
        return tokens.gather(1, at)[..., None].float()


def answer_of(task: Spans, head: Oracle, context: str = CONTEXT) -> Any:
    predictor = Predictor(task=task, model=Ids(), heads={"label": head}, batch_tokens=40)  # type: ignore[arg-type]
    return predictor.answer(QUESTION, context)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_answers_are_found_in_whatever_window(kind: str, tokenizer: Tokenizer) -> None:
    """Also at the edges of windows and of the context, and where two windows have them."""
    task = spans_task(tokenizer, kind=kind, window=16, stride=6, unanswerable=False)
    for first, size in itertools.product(range(40), (1, 2, 5)):
        words = CONTEXT.split()[first : first + size]
        begin, end = (tokenizer.encode(word)[0] for word in (words[0], words[-1]))
        found = answer_of(task, Oracle(begin, end))
        assert found.value == " ".join(words)
        assert CONTEXT[slice(*found.span)] == found.value
        assert next(iter(found.scores)) == found.value
        assert len(found.scores) <= 5


def test_no_answer_is_a_matter_of_the_threshold(tokenizer: Tokenizer) -> None:
    begin = tokenizer.encode("w25")[0]
    for threshold, none, answered in ((0.0, 17.0, True), (0.0, 19.0, False), (2.0, 19.0, True), (-2.0, 17.0, False)):
        task = spans_task(tokenizer, window=16, stride=6, unanswerable=True, threshold=threshold)
        found = answer_of(task, Oracle(begin, begin, none))
        assert found.value == ("w25" if answered else "")
        assert (found.span is None) == (not answered)
        assert "" in found.scores
    without = spans_task(tokenizer, window=16, stride=6, unanswerable=False)
    assert answer_of(without, Oracle(begin, begin, 99.0)).value == "w25"
    assert answer_of(without, Oracle(begin, begin), context="").value == ""


def test_no_answer_is_read_where_the_model_has_seen_all(tokenizer: Tokenizer) -> None:
    """At [CLS]; a model that reads from left to right knows of nothing yet at its first token."""
    for kind, pool, place in (("bert", "cls", 0), ("gpt2", "last", -1)):
        task = spans_task(tokenizer, kind=kind, pool=pool)
        batch = task.batch(task.items([Example(QUESTION, CONTEXT)]))
        assert int(batch.labels["at"][0, 0]) == range(batch.inputs["tokens"].shape[1])[place]


def test_a_window_without_room_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="a window of 4 tokens is too short"):
        spans_task(tokenizer, window=4).items([Example(QUESTION, CONTEXT)])


def test_the_loss_is_that_of_both_ends() -> None:
    tokenizer = toy_tokenizer()
    task, model = spans_task(tokenizer), toy_model("bert", tokenizer)
    heads, items = toy_heads(task, model), task.items(EXAMPLES["spans"])
    scores, sums = task.scores_and_losses(model, heads, task.batch(items))
    total = 0.0
    for row, item in zip(scores.detach(), items, strict=True):
        size = len(item.positions or ()) + 1
        for end in (0, 1):
            total -= 0.5 * float(row[:size, end].log_softmax(0)[item.label[end]])
    assert float(sums["label"].detach()) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("spec", ["characters", "bytes", "wordpiece:2000", "bpe:2000", "unigram:2000"])
def test_answers_of_squad_are_read_back(spec: str, shared_data: Callable[[str], Path]) -> None:
    """The pieces of every answer, as text, are the answer, or hold it where a piece is longer than its end."""
    folder = shared_data("squad")
    labelled = read_labelled(folder / "squad_subset_train.json", valid=folder / "squad_subset_valid.json")
    examples = labelled.valid or []
    tokenizer = train(spec, [example.b or "" for example in examples] + [str(example.a) for example in examples])
    texts = {context: read_text(context, tokenizer) for context in {example.b or "" for example in examples}}
    exact, total = 0, 0
    for example in examples:
        for answer in example.label:
            context = example.b or ""
            span = find_pieces(texts[context], answer)
            assert span is not None
            first, last = texts[context].offsets[span[0]][0], texts[context].offsets[span[1]][1]
            found = context[first:last].strip()
            assert answer.text.strip() in found
            exact, total = exact + (found == answer.text.strip()), total + 1
    assert total >= 500
    assert exact / total > (0.999 if spec in ("characters", "bytes") else 0.97), f"{exact} of {total}"
