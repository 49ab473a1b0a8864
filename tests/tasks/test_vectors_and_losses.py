"""What tasks read of a model and what they make of it, against loops written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lmlab.data.readers.examples import Example
from lmlab.layers.layer_mix import Mix
from lmlab.models import load_class
from lmlab.tasks.predicting import Predictor
from lmlab.tasks.task import Task
from lmlab.tokenizers import Tokenizer
from tolerances import of_blocks
from toy_tasks import EXAMPLES, toy_heads, toy_model, toy_task, toy_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
TOLERANCE = of_blocks(2, width=16, growth=8)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return toy_tokenizer()


def vectors_of(task: Task, model: Any, example: Example) -> tuple[list[list[float]], list[bool]]:
    """The vectors of an example read alone, and which of its places are text."""
    (item,) = task.items([example])
    row = task.frame.rows(task.parts_of(item))[0].inputs["tokens"]
    inputs = {"tokens": torch.tensor([row.pieces])}
    if row.segments is not None:
        inputs["segments"] = torch.tensor([row.segments])
    with torch.no_grad():
        return model(**inputs).hidden[0].tolist(), [part != "" for part in row.parts]


def pooled_by_hand(vectors: list[list[float]], real: list[bool], pool: str) -> list[float]:
    text = [vector for vector, one in zip(vectors, real, strict=True) if one]
    largest = [max(column) for column in zip(*text, strict=True)]
    mean = [sum(column) / len(text) for column in zip(*text, strict=True)]
    return {"cls": vectors[0], "last": vectors[-1], "mean": mean, "max": largest, "concat": text[-1] + largest + mean}[
        pool
    ]


@pytest.mark.parametrize("kind", ["gpt2", "lstm"])
def test_what_has_no_cls_is_not_read_there(kind: str, tokenizer: Tokenizer) -> None:
    """The first token of a left-to-right model has seen nothing of the text."""
    task = toy_task("classification", load_class(kind), tokenizer=tokenizer, pool="cls")
    with pytest.raises(ValueError, match="without a cls; use last, mean, max or concat"):
        task.batch(task.items([Example("a cat sat")]))


def test_a_mean_of_layers_that_is_not_learnt_is_one_vector(tokenizer: Tokenizer) -> None:
    task = toy_task(
        "classification", load_class("bert"), tokenizer=tokenizer, method="frozen", layers="mix", pool="mean"
    )
    model = toy_model("bert", tokenizer)
    with torch.no_grad():
        batch = task.batch(task.items([Example("a cat sat"), Example("a dog")]))
        assert task.read(model, batch).shape == (2, 1, model.config.width)
        layers = torch.stack(model.layers(**batch.inputs)).mean(0)
    np.testing.assert_allclose(
        task.read(model, batch)[0, 0].detach(), layers[0, 1:-1].mean(0), atol=TOLERANCE, rtol=TOLERANCE
    )


@pytest.mark.parametrize(
    ("kind", "pool"),
    [
        *(("bert", pool) for pool in ("cls", "last", "mean", "max", "concat")),
        *((kind, pool) for kind in ("gpt2", "lstm") for pool in ("last", "mean", "max", "concat")),
    ],
)
def test_pooled_vectors(kind: str, pool: str, tokenizer: Tokenizer) -> None:
    task, model = (
        toy_task("classification", load_class(kind), tokenizer=tokenizer, pool=pool),
        toy_model(kind, tokenizer),
    )
    examples = [*EXAMPLES["classification"], Example("a cat sat", "a dog ran", label="pos")]
    with torch.no_grad():
        found = task.read(model, task.batch(task.items(examples)))
    for row, example in zip(found, examples, strict=True):
        expected = pooled_by_hand(*vectors_of(task, model, example), pool)
        np.testing.assert_allclose(row[0].numpy(), expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("pool", ["mean", "max", "concat"])
def test_a_text_of_nothing_has_a_vector(pool: str, tokenizer: Tokenizer) -> None:
    task, model = (
        toy_task("classification", load_class("bert"), tokenizer=tokenizer, pool=pool),
        toy_model("bert", tokenizer),
    )
    found = task.read(model, task.batch(task.items([Example(""), Example("a cat sat on the mat")])))
    assert found.isfinite().all()


def test_the_mix_is_that_of_elmo() -> None:
    layers = torch.randn(5, 3, 4, 7)
    mix = Mix(4)
    torch.testing.assert_close(mix(layers), layers.mean(-2))
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([1.0, -2.0, 0.5, 0.0]))
        mix.gamma.fill_(1.7)
        fractions = np.exp([1.0, -2.0, 0.5, 0.0])
        fractions /= fractions.sum()
        expected = 1.7 * sum(fraction * layers[..., number, :] for number, fraction in enumerate(fractions.tolist()))
        torch.testing.assert_close(mix(layers), expected)
        np.testing.assert_allclose(mix.weights().numpy(), fractions, rtol=1e-6)


@pytest.mark.parametrize("kind", ["gpt2", "lstm", "nplm"])
def test_the_auxiliary_loss_is_the_models_own(kind: str, tokenizer: Tokenizer) -> None:
    """Radford et al. 2018, equation 5: L(task) + λ L(language), over all tokens of the row but the first."""
    task = toy_task("regression", load_class(kind), tokenizer=tokenizer, auxiliary=0.5, both_orders=True)
    model = toy_model(kind, tokenizer)
    heads, items = toy_heads(task, model), task.items(EXAMPLES["regression"])
    batch = task.batch(items)
    _, sums = task.scores_and_losses(model, heads, batch)
    total, count = 0.0, 0
    for row in task.frame.rows([item.parts for item in items]):
        tokens = torch.tensor([row.inputs["tokens"].pieces])
        nats, _ = model.score(tokens[:, :-1], tokens[:, 1:], model.start(1))
        total, count = total + float(nats.sum().detach()), count + nats.numel()
    assert float(sums["language"].detach()) == pytest.approx(total, rel=TOLERANCE)
    assert batch.counts["language"] == count
    assert task.loss_weights == {"label": 1.0, "language": 0.5}
    without = toy_task("regression", load_class(kind), tokenizer=tokenizer, both_orders=True)
    _, alone = without.scores_and_losses(model, heads, batch)
    torch.testing.assert_close(alone["label"], sums["label"], rtol=TOLERANCE, atol=TOLERANCE)


def test_the_auxiliary_loss_needs_a_model_that_learns(tokenizer: Tokenizer) -> None:
    task = toy_task("classification", load_class("gpt2"), tokenizer=tokenizer, auxiliary=0.5, method="frozen")
    with pytest.raises(ValueError, match=r"auxiliary.*--how frozen"):
        task.needs(task.config)


@pytest.mark.parametrize("kind", ["gpt2", "xlnet", "elmo"])
def test_segments_are_for_what_carries_its_state_from_left_to_right(kind: str, tokenizer: Tokenizer) -> None:
    task = toy_task("classification", load_class(kind), tokenizer=tokenizer, segment=2)
    with pytest.raises(ValueError, match=r"objective\.segment = 2 .*reads it as a whole: leave it out"):
        task.heads(toy_model(kind, tokenizer))


@pytest.mark.parametrize("kind", ["gpt2", "bert", "bart"])
def test_both_orders_are_added(kind: str, tokenizer: Tokenizer) -> None:
    """The score of (a, b) is that of (b, a): the head reads the sum of both vectors."""
    cls, model = load_class(kind), toy_model(kind, tokenizer)
    both = toy_task("regression", cls, tokenizer=tokenizer, both_orders=True, activation=None)
    single = toy_task("regression", cls, tokenizer=tokenizer, activation=None)
    heads, examples = toy_heads(both, model), EXAMPLES["regression"]
    swapped = [example._replace(a=example.b or "", b=str(example.a)) for example in examples]

    def read(task: Task, examples: list[Example]) -> torch.Tensor:
        with torch.no_grad():
            return task.read(model, task.batch(task.items(examples)))[:, 0]

    expected = heads["label"](read(single, examples) + read(single, swapped))[:, 0].detach()
    scores = torch.cat(
        [both.scores_and_losses(model, heads, both.batch([item]))[0][:, 0] for item in both.items(examples)]
    ).detach()
    torch.testing.assert_close(scores, expected, atol=TOLERANCE, rtol=TOLERANCE)
    predictor = Predictor(task=both, model=model, heads=heads)  # type: ignore[arg-type]
    for one, other in zip(predictor.predict(examples), predictor.predict(swapped), strict=True):
        assert one.value == pytest.approx(other.value, rel=TOLERANCE, abs=TOLERANCE)
    mixed = predictor.predict([examples[0], Example("a cat"), examples[1]])
    assert mixed[2].value == pytest.approx(predictor.predict([examples[1]])[0].value, rel=TOLERANCE, abs=TOLERANCE)


def test_regression_is_on_the_scale_of_the_data(tokenizer: Tokenizer) -> None:
    task, model = toy_task("regression", load_class("bert"), tokenizer=tokenizer), toy_model("bert", tokenizer)
    heads = toy_heads(task, model)
    examples = EXAMPLES["regression"]
    scores, sums = task.scores_and_losses(model, heads, task.batch(task.items(examples)))
    found = Predictor(task=task, model=model, heads=heads).predict(examples)  # type: ignore[arg-type]
    expected = [2.6 + 1.5 * float(score) for score in scores[:, 0].detach()]
    assert [each.value for each in found] == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
    errors = [((example.label - value) / 1.5) ** 2 for example, value in zip(examples, expected, strict=True)]
    assert float(sums["label"].detach()) == pytest.approx(sum(errors), rel=100 * TOLERANCE)


def test_scores_that_are_no_numbers_are_not_hidden(tokenizer: Tokenizer) -> None:
    task, model = toy_task("regression", load_class("bert"), tokenizer=tokenizer), toy_model("bert", tokenizer)
    heads = toy_heads(task, model)
    heads["label"].out.bias.data.fill_(float("nan"))
    assert task.scores_and_losses(model, heads, task.batch(task.items(EXAMPLES["regression"])))[1]["label"].isnan()


@pytest.mark.parametrize("both_orders", [False, True])
def test_choices_of_differing_number(both_orders: bool, tokenizer: Tokenizer) -> None:
    task = toy_task("choice", load_class("gpt2"), tokenizer=tokenizer, both_orders=both_orders)
    model = toy_model("gpt2", tokenizer)
    heads, examples = toy_heads(task, model), EXAMPLES["choice"]
    items = task.items(examples)
    scores, sums = task.scores_and_losses(model, heads, task.batch(items))
    total, end = 0.0, tokenizer.boundary
    for row, example in zip(scores.detach(), examples, strict=True):
        each = []
        for choice in example.choices:
            pairs = [(example.a, choice), (choice, example.a)] if both_orders else [(example.a, choice)]
            rows = [[end, *tokenizer.encode(str(a)), end, *tokenizer.encode(str(b)), end] for a, b in pairs]
            vectors = [model(torch.tensor([ids])).hidden[0, -1] for ids in rows]
            each.append(float(heads["label"](sum(vectors)).detach()))
        np.testing.assert_allclose(row[: len(each)].numpy(), each, atol=TOLERANCE, rtol=TOLERANCE)
        assert (row[len(each) :] == -torch.inf).all()
        total -= float(torch.tensor(each).log_softmax(0)[example.label])
    assert float(sums["label"].detach()) == pytest.approx(total, rel=TOLERANCE)
    found = Predictor(task=task, model=model, heads=heads).predict(examples)  # type: ignore[arg-type]
    for prediction, example in zip(found, examples, strict=True):
        assert list(prediction.scores) == list(example.choices)
        assert sum(prediction.scores.values()) == pytest.approx(1)
        assert prediction.scores[example.choices[prediction.value]] == pytest.approx(prediction.probability)


def test_long_texts_are_cut_to_the_window(tokenizer: Tokenizer) -> None:
    task = toy_task("classification", load_class("bert"), tokenizer=tokenizer, window=8)
    (item,) = task.items([Example("the cat sat on the mat " * 10, "a dog " * 10, label="pos")])
    batch = task.batch([item])
    assert batch.inputs["tokens"].shape == (1, 8)
    assert batch.units["tokens"] <= 8, "what is not read is not counted"
