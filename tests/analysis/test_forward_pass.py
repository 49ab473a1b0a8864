"""The forward pass step by step: its numbers are the model's own, and every sum that is opened gives its number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lmlab.analysis.forward_pass.ngram import Orders
from lmlab.analysis.forward_pass.read import ForwardPass, read_forward
from lmlab.analysis.forward_pass.steps import Facts, Look
from lmlab.language_model import LanguageModel
from lmlab.models.ngram import NGram
from lmlab.ngrams.counting import adjusted_counts, count_ngrams
from lmlab.ngrams.smoothing import find_discounts, histogram
from lmlab.tokenizers import train
from standins import TEXT, random_model

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
BLOCKS = {"width": 12, "heads": 2, "layers": 2, "window": 40}
RECURRENT = {"width": 10, "hidden": 10, "layers": 2}
NEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "bow": ("bow", {"width": 8, "hidden": 9}),
    "nplm": ("nplm", {"width": 8, "hidden": 9, "order": 3}),
    "nplm-direct": ("nplm", {"width": 8, "hidden": 9, "order": 3, "direct": True}),
    "rnn": ("rnn", RECURRENT),
    "gru": ("gru", RECURRENT),
    "lstm": ("lstm", RECURRENT),
    "lstm-residual": ("lstm", {**RECURRENT, "layers": 3, "connections": "residual"}),
    "lstm-tied": ("lstm", {**RECURRENT, "width": 6, "tied": True}),
    "lstm-adaptive": ("lstm", {**RECURRENT, "hidden": 16, "softmax": "adaptive", "cutoffs": [20]}),
    "awd-lstm": ("awd-lstm", {"width": 8, "hidden": 10, "layers": 2}),
    "attention-lm": ("attention-lm", {**BLOCKS, "layers": 1, "inner": 14, "positions": "sinusoidal"}),
    "attention-lm-post": ("attention-lm", {**BLOCKS, "inner": 14, "tricks": "post", "positions": "learned"}),
    "gpt": ("gpt", BLOCKS),
    "gpt2": ("gpt2", BLOCKS),
    "llama": ("llama", {**BLOCKS, "heads": 3, "key_value_heads": 1, "inner": 14}),
    "llama-bias": ("llama", {**BLOCKS, "width": 16, "heads": 4, "key_value_heads": 2, "inner": 14, "bias": True}),
    "music-transformer": ("music-transformer", {**BLOCKS, "inner": 14, "distances": 4}),
    "transformer-xl": ("transformer-xl", {"width": 12, "heads": 2, "layers": 2, "inner": 14, "memory": 8}),
}
MASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {**BLOCKS, "inner": 14}),
    "roberta": ("roberta", {**BLOCKS, "inner": 14}),
    "albert": ("albert", {**BLOCKS, "inner": 14, "layers": 3, "embedding_width": 6}),
    "electra": ("electra", {**BLOCKS, "inner": 14, "embedding_width": 6}),
}


def made(kind: str, settings: dict[str, Any]) -> LanguageModel:
    torch.manual_seed(0)
    return random_model(kind, train("wordpiece:120", [TEXT]), std=0.3, **settings)


def check_origins(found: ForwardPass) -> int:
    """Open numbers of every array that is shown, and those that they are made of; returns how many."""
    look = Look(found.position, min(1, max(step.heads for step in found.steps) - 1) if found.steps else 0, 5)
    look = look._replace(head=max(0, look.head))
    wanted, checked = ["probability:5"], set[str]()
    for step in found.steps:
        for grid in step.grids(look):
            if isinstance(grid, Facts):
                wanted += [cell.at for row in grid.rows for cell in row if hasattr(cell, "at")]
                continue
            width = found.numbers(grid).shape[1]
            for row in (grid.rows[0], grid.rows[-1]):
                last = grid.indices[-1] if grid.indices else width - 1
                wanted += [f"{grid.name}:{','.join(map(str, (*row.prefix, n)))}" for n in (0, last)]
    while wanted:
        address = wanted.pop()
        if address in checked:
            continue
        checked.add(address)
        origin = found.explain(address)
        assert origin.result == pytest.approx(origin.value, rel=2e-4, abs=2e-5), (address, origin)
        if not origin.terms:  # learnt
            continue
        listed = sum(term.value for term in origin.terms) + origin.rest
        assert listed == pytest.approx(origin.total, rel=1e-9, abs=1e-9)
        for term in origin.terms:
            assert np.prod([factor.value for factor in term.factors]) == pytest.approx(term.value, rel=1e-4, abs=1e-6)
        if len(checked) < 400:
            wanted += [f.at for term in origin.terms[:4] for f in term.factors if f.at]
    return len(checked)


@pytest.mark.parametrize("name", NEXT)
def test_every_number_is_the_sum_that_it_is_made_of(name: str) -> None:
    lm = made(*NEXT[name])
    found = read_forward(lm, "the cat sat on the mat .")
    for token, probability in lm.next("the cat sat on the mat .", top=3):
        assert any(
            each.text == token and each.probability == pytest.approx(probability, abs=1e-5)
            for each in found.candidates()
        )
    assert check_origins(found) > 12
    earlier = read_forward(lm, "the cat sat on the mat .", position=3)
    assert check_origins(earlier) > 12
    start = lm.next("the cat sat", top=1)[0]
    assert earlier.candidates(1)[0].probability == pytest.approx(start[1], abs=1e-4)


@pytest.mark.parametrize("name", MASKED)
def test_masked_models_are_explained_at_the_mask(name: str) -> None:
    lm = made(*MASKED[name])
    found = read_forward(lm, "the [MASK] sat on the mat .")
    best = lm.fill("the [MASK] sat on the mat .", top=3).candidates[0]
    assert found.masked
    assert [each.probability for each in found.candidates(3)] == pytest.approx(
        [each.probability for each in best], abs=1e-5
    )
    assert check_origins(found) > 40
    plain = read_forward(lm, "the cat sat on the mat .")
    assert plain.tokens[plain.position] == found.tokens[found.position]
    assert plain.position == len(plain.tokens) - 2  # the last token before [SEP]


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("smoothing", ["modified-kneser-ney", "kneser-ney", "jelinek-mercer", "add-k", "backoff"])
@pytest.mark.filterwarnings("ignore:too few n-grams")
def test_an_ngram_is_made_of_counts_and_lower_orders(smoothing: Any, order: int) -> None:
    tokenizer = train("wordpiece:120", [TEXT])
    stream = np.array([tokenizer.boundary, *tokenizer.encode(TEXT), tokenizer.boundary])
    config = NGram.Config(
        vocabulary=tokenizer.vocabulary, order=order, smoothing=smoothing, boundary=tokenizer.boundary
    )
    model = NGram.from_tensors(config, NGram.fit(stream, config=config).tensors())
    lm = LanguageModel(model=model, tokenizer=tokenizer)
    for text in ("the cat sat on the", "dog cat mat", ""):
        found = read_forward(lm, text)
        assert check_origins(found) >= 4
        best = [probability for _, probability in lm.next(text, top=4)]
        assert [each.probability for each in found.candidates(4)] == pytest.approx(best, rel=1e-4)
    if not smoothing.endswith("kneser-ney"):
        return
    levels = count_ngrams(stream, vocabulary=config.vocabulary, boundary=config.boundary, order=order)
    tables = find_discounts(map(histogram, adjusted_counts(levels)), modified=smoothing.startswith("modified"))
    context = np.array(tokenizer.encode("on the"))[-order + 1 :] if order > 1 else np.array([], np.int64)
    orders = Orders(model, context)
    for n in range(order):
        words = tokenizer.encode("on the")[2 - n :]
        for token in range(config.vocabulary):
            made = orders.explain(n, token)
            known = np.lib.stride_tricks.sliding_window_view(stream, n + 1)
            seen = known[(known == [*words, token]).all(1)] if n else stream[1:][stream[1:] == token]
            before = {
                stream[i - 1] for i in range(1, len(stream) - n) if (stream[i : i + n + 1] == [*words, token]).all()
            }
            assert made.times == (len(seen) if n == order - 1 else len(before))
            if made.times:
                assert made.discount == pytest.approx(tables[n][min(made.times, 3)], abs=1e-6)


def test_counts_are_left_out_where_they_are_not_known() -> None:
    tokenizer = train("wordpiece:120", [TEXT])
    stream = np.array([tokenizer.boundary, *tokenizer.encode(TEXT), tokenizer.boundary])
    config = NGram.Config(vocabulary=tokenizer.vocabulary, order=3, boundary=tokenizer.boundary)
    tensors = {name: each for name, each in NGram.fit(stream, config=config).tensors().items() if "counts" not in name}
    found = read_forward(
        LanguageModel(model=NGram.from_tensors(config, tensors), tokenizer=tokenizer), "the cat sat on"
    )
    assert check_origins(found) >= 4
    assert all(row[1] is None for row in found.steps[-2].grids(Look(3, 0, 5))[0].rows)
