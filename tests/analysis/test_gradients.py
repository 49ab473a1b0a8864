"""Vanishing and exploding gradients, where their rate is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lmlab.analysis.gradients import gradient_by_distance
from lmlab.models.bow import BagOfWords
from lmlab.models.lstm import LSTM
from lmlab.models.nplm import NPLM
from lmlab.models.rnn import RNN


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
