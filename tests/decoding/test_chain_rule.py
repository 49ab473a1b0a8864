"""The chain rule: each token's surprisal, by the definition, whatever the batch."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from lmlab.decoding.chain_rule import score_tokens
from lmlab.decoding.scorer import Score
from standins import Table, TinyGRU, TinyWindow

BOUNDARY = 1
V = 11
LENGTHS = [0, 1, 2, 7, 8, 9, 23, 40, 3, 64]


@pytest.fixture(scope="module")
def documents():
    generator = np.random.default_rng(0)
    return [generator.integers(0, V, length) for length in LENGTHS]


@torch.inference_mode()
def by_definition(model, document, *, context):
    """-log p(token | boundary and all before), each time reading from `context(position)` on."""
    text = [BOUNDARY, *document.tolist()]
    nats = []
    for place in range(1, len(text)):
        logits, _ = model.step(torch.tensor([text[context(place) : place]]), model.start(1))
        nats.append(-logits[0].double().log_softmax(-1)[text[place]].item())
    return np.array(nats)


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("segment", [1, 8, 256])
@pytest.mark.parametrize("model", [Table(V), TinyGRU(V)], ids=["table", "gru"])
def test_a_carried_state_sees_everything_before(model, documents, batch, segment):
    scored = score_tokens(model, documents, boundary=BOUNDARY, batch=batch, segment=segment)
    for document, nats in zip(documents, scored, strict=True):
        assert nats.dtype == np.float64
        np.testing.assert_allclose(nats, by_definition(model, document, context=lambda _: 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch", [1, 4, 100])
@pytest.mark.parametrize("window", [8, 7, 1])
def test_strided_windows_score_each_token_once_with_half_a_window_before(documents, batch, window):
    model, stride = TinyWindow(V, window=window), max(1, window // 2)

    def start_of_window(place: int) -> int:
        """place p is the p-th token; windows begin at 0, stride, 2 stride, ...; the first that reaches it scores it."""
        return 0 if place <= window else math.ceil((place - window) / stride) * stride

    scored = score_tokens(model, documents, boundary=BOUNDARY, batch=batch)
    for document, nats in zip(documents, scored, strict=True):
        expected = by_definition(model, document, context=start_of_window)
        np.testing.assert_allclose(nats, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", [TinyGRU(V), TinyWindow(V)], ids=["gru", "window"])
def test_the_batch_changes_nothing(model, documents):
    totals = [
        sum(part.sum() for part in score_tokens(model, documents, boundary=BOUNDARY, batch=batch))
        for batch in (1, 2, 5, 64)
    ]
    assert totals == pytest.approx([totals[0]] * 4, rel=1e-6)


def test_a_table_that_is_uniform_costs_log_v_per_token(documents):
    scored = score_tokens(Table(V, scale=0.0), documents, boundary=BOUNDARY)
    assert np.concatenate(scored) == pytest.approx(math.log(V))


def test_windows_cost_at_most_twice_the_reading():
    model = TinyWindow(V, window=8)
    score_tokens(model, [np.zeros(800, dtype=np.int64)], boundary=BOUNDARY, batch=1)
    assert model.read < 2 * 800


def test_a_model_without_the_neural_base_may_have_a_window(documents):
    class Windowed(Table):
        window = 4

    model = Windowed(V)
    scored = score_tokens(model, documents, boundary=BOUNDARY, batch=2)
    full = score_tokens(Table(V), documents, boundary=BOUNDARY)
    for short, long in zip(scored, full, strict=True):
        np.testing.assert_allclose(short, long, rtol=1e-6)  # a trigram needs two tokens: half the window has them


@pytest.mark.parametrize("model", [TinyGRU(V), TinyWindow(V)], ids=["gru", "window"])
def test_progress_adds_up(model, documents):
    reported: list[tuple[int, int]] = []
    score_tokens(model, documents, boundary=BOUNDARY, batch=3, progress=lambda *both: reported.append(both))
    assert reported == sorted(reported)
    assert reported[-1] == (sum(LENGTHS), sum(LENGTHS))
    assert {total for _, total in reported} == {sum(LENGTHS)}


def test_large_vocabularies_take_fewer_rows_and_the_same_result(documents, monkeypatch):
    model = TinyGRU(V)
    expected = score_tokens(model, documents, boundary=BOUNDARY)
    monkeypatch.setattr("lmlab.decoding.chain_rule.LOGITS_AT_ONCE", 1)
    for a, b in zip(expected, score_tokens(model, documents, boundary=BOUNDARY), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_score_has_the_definitions():
    score = Score(nats=80 * math.log(2), tokens=10, words=4, bytes=20)
    assert score.bits_per_byte == pytest.approx(4.0)
    assert score.perplexity == pytest.approx(2**8)
    assert score.word_perplexity == pytest.approx(2**20)


def test_score_as_json_is_valid_even_when_a_text_is_impossible():
    both = {"forward": math.inf, "backward": 3.0}
    score = Score(nats=math.inf, tokens=3, words=0, bytes=5, lossy=True, directions=both)
    parsed = json.loads(json.dumps(score.as_dict(), allow_nan=False))
    assert parsed.pop("forward") == {"nats": None, "perplexity": None}
    assert parsed.pop("backward")["nats"] == 3.0
    assert parsed["bits_per_byte"] is None
    assert parsed["perplexity"] is None
    assert list(parsed)[:8] == [
        "bits_per_byte",
        "perplexity",
        "word_perplexity",
        "nats",
        "tokens",
        "words",
        "bytes",
        "lossy",
    ]
    assert Score(nats=1e6, tokens=3, words=1, bytes=5).perplexity == math.inf


def test_bad_numbers_are_refused(documents):
    with pytest.raises(ValueError, match="batch = 0"):
        score_tokens(Table(V), documents, boundary=BOUNDARY, batch=0)
