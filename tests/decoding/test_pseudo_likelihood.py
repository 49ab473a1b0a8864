"""Pseudo-log-likelihood against one mask at a time, in ours and in transformers."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from bert_pair import bert_pair
from lmlab.decoding.pseudo_likelihood import cut, pseudo_score_tokens
from lmlab.language_model import LanguageModel
from lmlab.models.abilities import FillsMasks, require
from lmlab.tokenizers import Tokenizer, train
from standins import TEXT, random_model

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
SHAPE: dict[str, Any] = {"width": 24, "heads": 3, "layers": 2, "window": 16, "dropout": 0.0}
TEXTS = ["the cat sat on the mat .", "a dog", "the dog sat on the log ."]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train("bpe:300", [TEXT]).with_specials(("pad", "cls", "sep", "mask"))


@torch.no_grad()
def one_at_a_time(lm: LanguageModel, ids: list[int]) -> list[float]:
    filler = require(lm.model, FillsMasks)
    row = [lm.tokenizer.special("cls"), *ids, lm.tokenizer.special("sep")]
    nats = []
    for place in range(1, len(row) - 1):
        masked = [*row[:place], lm.tokenizer.special("mask"), *row[place + 1 :]]
        scores = filler.fill(tokens=torch.tensor([masked]), at=torch.tensor([[place]]))[0, 0].double().log_softmax(-1)
        nats.append(-scores[row[place]].item())
    return nats


@pytest.mark.parametrize("kind", ["bert", "roberta", "albert", "electra"])
@pytest.mark.parametrize("batch", [1, 2, 50])
def test_each_token_is_masked_in_turn(tokenizer: Tokenizer, kind: str, batch: int) -> None:
    settings = {"generator": 1 / 3} if kind == "electra" else {}
    lm = random_model(kind, tokenizer, **SHAPE, **settings)
    calls: list[tuple[int, int]] = []
    score = lm.score(TEXTS, batch=batch, progress=lambda *reported: calls.append(reported))
    expected = [one_at_a_time(lm, tokenizer.encode(text)) for text in TEXTS]
    for found, nats in zip(score.token_nats, expected, strict=True):
        np.testing.assert_allclose(found, nats, atol=1e-4)
    assert score.pseudo
    assert score.nats == pytest.approx(sum(map(sum, expected)), rel=1e-5)
    assert calls[-1] == (score.tokens, score.tokens)
    assert len(calls) > 1 or batch == 50


def test_the_sum_is_that_of_transformers(tokenizer: Tokenizer) -> None:
    model, reference = bert_pair(tokenizer.vocabulary, width=24, heads=3, layers=2, window=16)
    lm = LanguageModel(model=model, tokenizer=tokenizer)
    total = 0.0
    for text in TEXTS:
        row = torch.tensor([tokenizer.special("cls"), *tokenizer.encode(text), tokenizer.special("sep")])
        for place in range(1, len(row) - 1):
            masked = row.clone()
            masked[place] = tokenizer.special("mask")
            with torch.no_grad():
                total -= reference(masked[None]).logits[0, place].double().log_softmax(-1)[row[place]].item()
    score = lm.score(TEXTS)
    assert score.nats == pytest.approx(total, rel=1e-5)
    assert not score.lossy
    assert score.bits_per_byte == pytest.approx(total / math.log(2) / sum(len(text.encode()) for text in TEXTS))


def test_a_long_text_is_scored_in_the_middle_of_windows(tokenizer: Tokenizer) -> None:
    """By hand: a window of 16 leaves room for 14 tokens, and the next one begins 7 later."""
    lm = random_model("bert", tokenizer, **SHAPE)
    ids = tokenizer.encode(" ".join(TEXTS * 2))[:26]
    assert len(ids) == 26
    parts = [(0, 14, 0, 10), (7, 21, 10, 16), (12, 26, 16, 26)]
    expected: list[float] = []
    for start, end, first, last in parts:
        expected += one_at_a_time(lm, ids[start:end])[first - start : last - start]
    short, mask = ids[:3], tokenizer.special("mask")
    filler = require(lm.model, FillsMasks)
    long, other = pseudo_score_tokens(filler, [ids, short], frame=lm.frame, mask=mask, batch=3)
    np.testing.assert_allclose(long, expected, atol=1e-4)
    np.testing.assert_allclose(other, one_at_a_time(lm, short), atol=1e-4)


@pytest.mark.parametrize("content", [1, 2, 3, 14, 64])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 13, 14, 15, 64, 65, 100])
def test_windows_score_each_token_once_with_context_on_both_sides(content: int, length: int) -> None:
    windows = list(cut(0, length, content))
    assert [token for w in windows for token in range(w.first, w.last)] == list(range(length))
    for window in windows:
        assert 0 <= window.start <= window.first
        assert window.last <= window.end <= length
        assert window.end - window.start == min(content, length)
        assert window.first - window.start >= min(window.first, content // 4)
        assert window.end - window.last >= min(length - window.last, content // 4)


def test_the_kind_of_score_is_named(tokenizer: Tokenizer) -> None:
    score = random_model("bert", tokenizer, **SHAPE).score("a cat")
    assert json.dumps(score.as_dict()["pseudo"]) == "true"
    assert not random_model("gpt2", tokenizer, **SHAPE).score("a cat").pseudo


def test_what_cannot_be_scored_is_refused(tokenizer: Tokenizer) -> None:
    lm = random_model("bert", tokenizer, **SHAPE)
    with pytest.raises(ValueError, match="no text to score"):
        lm.score("")
    with pytest.raises(ValueError, match="batch = 0"):
        lm.score("a", batch=0)
    with pytest.raises(ValueError, match="at most 2 tokens"):
        random_model("bert", tokenizer, **{**SHAPE, "window": 2}).score("a")
    with pytest.raises(ValueError, match="electra is a replaced-token detector"):
        random_model("electra", tokenizer, **SHAPE, parts="discriminator", generator=1 / 3).score("a")
    with pytest.raises(ValueError, match="cannot continue plain text"):
        lm.mix([lm])
    plain = random_model("bert", train("bpe:300", [TEXT]), **SHAPE)
    with pytest.raises(ValueError, match="no token for mask"):
        plain.score("a")
