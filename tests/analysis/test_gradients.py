"""Vanishing and exploding gradients, where their rate is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lmlab.analysis.attribution import gradient_by_distance, read_gradients
from lmlab.models.bow import BagOfWords
from lmlab.models.lstm import LSTM
from lmlab.models.nplm import NPLM
from lmlab.models.rnn import RNN
from lmlab.tokenizers import train
from standins import TEXT, random_model


def some_tokens(length: int) -> Tensor:
    return torch.randint(11, (4, length), generator=torch.Generator().manual_seed(1))


def linear_rnn(factor: float) -> RNN:
    """An RNN whose state is so small that tanh is linear, with Wh = factor · I: each step back multiplies by factor."""
    torch.manual_seed(0)
    model = RNN(RNN.Config(vocabulary=11, width=6, hidden=6, layers=1)).double()
    W, U, b, b_state = model.recurrent.layers[0].fused.all_weights[0]
    with torch.no_grad():
        model.embedding.weight.mul_(1e-6)
        W.copy_(torch.eye(6))
        U.copy_(factor * torch.eye(6))
        b.zero_()
        b_state.zero_()
    return model


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.5])
def test_gradient_changes_by_the_recurrent_factor(factor: float) -> None:
    norms = gradient_by_distance(linear_rnn(factor), some_tokens(13))
    assert norms.shape == (12,)
    torch.testing.assert_close(
        norms[1:] / norms[:-1], torch.full((11,), factor, dtype=torch.float64), rtol=1e-4, atol=0
    )


def test_equals_finite_differences() -> None:
    torch.manual_seed(0)
    model = LSTM(LSTM.Config(vocabulary=11, width=3, hidden=5, layers=2, dropout=0.5)).double()
    tokens = torch.tensor([[1, 2, 3, 4, 5]])  # no token twice, so that a row of the embedding is one place
    actual = gradient_by_distance(model, tokens)
    assert model.training
    model.eval()
    for distance in range(4):
        row = model.embedding.weight.data[tokens[0, 3 - distance]]
        slopes = []
        for coordinate in range(3):
            losses = []
            for sign in (1, -1):
                row[coordinate] += sign * 1e-5
                losses.append(model.nll(model(tokens[:, :-1]).hidden[:, -1], tokens[:, -1]).item())
                row[coordinate] -= sign * 1e-5
            slopes.append((losses[0] - losses[1]) / 2e-5)
        assert actual[distance].item() == pytest.approx(torch.tensor(slopes).norm().item(), rel=1e-4)


def test_a_net_over_four_words_sees_nothing_further_back() -> None:
    norms = gradient_by_distance(NPLM(NPLM.Config(vocabulary=11, order=5)), some_tokens(10))
    assert norms.shape == (9,)
    assert (norms[:4] > 0).all()
    assert not norms[4:].any()


def test_a_bag_of_words_treats_all_distances_alike() -> None:
    norms = gradient_by_distance(BagOfWords(BagOfWords.Config(vocabulary=11)), some_tokens(10))
    torch.testing.assert_close(norms, norms[:1].expand(9))


def test_leaves_no_trace_in_the_model() -> None:
    model = RNN(RNN.Config(vocabulary=11))
    gradient_by_distance(model, some_tokens(5))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.embedding._forward_hooks
    with pytest.raises(ValueError, match="at least 1"):
        gradient_by_distance(model, some_tokens(1))


def test_the_mean_over_a_text_is_that_of_its_stretches() -> None:
    tokenizer = train("characters", [TEXT])
    torch.manual_seed(0)
    models = {name: random_model(name, tokenizer, width=6, hidden=5) for name in ("rnn", "lstm")}
    found = read_gradients(models, TEXT, distance=9)
    ids = torch.tensor(tokenizer.encode(TEXT))
    count = min(64, len(ids) // 10)
    rows = torch.stack([ids[n * (len(ids) // count) :][:10] for n in range(count)])
    assert found.stretches == count > 16  # in several batches
    for reach in found.runs:
        expected = gradient_by_distance(models[reach.run].model, rows)
        assert reach.norms == pytest.approx(expected.tolist(), rel=1e-4)
    assert found.table().columns == ("distance", "rnn", "lstm")
    assert [row[0] for row in found.table().rows] == list(range(1, 10))
    (figure,) = found.figures()
    assert figure.lines[0][1][0] == 0.0  # type: ignore[attr-defined]
    assert "left 9 tokens back" in found._repr_html_()


def test_where_nothing_reaches_there_is_no_line() -> None:
    tokenizer = train("characters", [TEXT])
    lm = random_model("nplm", tokenizer, width=6, hidden=5, order=4)
    found = read_gradients({"nplm": lm}, TEXT, distance=6)
    assert [norm > 0 for norm in found.runs[0].norms] == [True] * 3 + [False] * 3
    (figure,) = found.figures()
    assert "nan" not in figure.html()
    assert found.as_json()["runs"][0]["norms"][5] == 0.0


def test_what_has_no_gradients_is_reported() -> None:
    tokenizer = train("characters", [TEXT])
    gpt2 = random_model("gpt2", tokenizer, width=8, heads=2, layers=1, window=8)
    with pytest.raises(ValueError, match="one reads at most 8 tokens"):
        read_gradients({"one": gpt2}, TEXT, distance=9)
    with pytest.raises(ValueError, match=r"3 tokens of text for one: give more than 5"):
        read_gradients({"one": gpt2}, TEXT[:3], distance=5)
    masked = random_model("bert", train("wordpiece:120", [TEXT]), width=8, heads=2, layers=1, window=12)
    with pytest.raises(ValueError, match="masked: bert has no gradients from the next token"):
        read_gradients({"masked": masked}, TEXT, distance=5)
