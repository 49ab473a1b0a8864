"""AWD-LSTM against its equations, written out time by time with the masks that it drew."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import lmlab.layers.dropout
import lmlab.layers.recurrent
from lmlab.layers.kernels.dropout_mask import dropout_mask
from lmlab.layers.watching import watching_layers
from lmlab.models import create, outline
from lmlab.objectives.causal import Causal, CausalConfig
from tolerances import rounding

SETTINGS: dict[str, Any] = {
    **{"vocabulary": 19, "width": 6, "hidden": 9, "layers": 3, "dropout": 0.4, "input_dropout": 0.5},
    **{"hidden_dropout": 0.3, "embedding_dropout": 0.2, "weight_dropout": 0.5, "reset_probability": 0.0},
}


def make(**changes: Any) -> Any:
    torch.manual_seed(0)
    model: Any = create("awd-lstm", {**SETTINGS, **changes}).double()
    return model.train()


def tokens(*shape: int) -> Tensor:
    return torch.randint(0, 19, shape, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The masks that are drawn, in their order."""
    drawn: list[Tensor] = []

    def draw(shape: tuple[int, ...], p: float, *, like: Tensor) -> Tensor:
        drawn.append(dropout_mask(shape, p, like=like))
        return drawn[-1]

    monkeypatch.setattr(lmlab.layers.dropout, "dropout_mask", draw)
    monkeypatch.setattr(lmlab.layers.recurrent, "dropout_mask", draw)
    return drawn


def reference(model: Any, text: Tensor, masks: list[Tensor]) -> tuple[Tensor, Tensor]:
    """m_o∘h_t and h_t of the top layer, time by time; the same masks at all times."""
    m_e, m_i, m_w1, m_h1, m_w2, m_h2, m_w3, m_o = masks
    E = model.embedding.weight * m_e[:, None]
    layers = [layer.fused.all_weights[0] for layer in model.recurrent]
    states = [2 * (U.new_zeros(len(text), U.shape[1]),) for _, U, _, _ in layers]
    between = [m_i[:, 0], m_h1[:, 0], m_h2[:, 0]]
    tops = []
    for t in range(text.shape[1]):
        x = E[text[:, t]]
        for number, ((W, U, b, b_state), m_w) in enumerate(zip(layers, (m_w1, m_w2, m_w3), strict=True)):
            h, c = states[number]
            z = (x * between[number]) @ W.T + b + h @ (U * m_w).T + b_state
            size = U.shape[1]
            i, f, g, o = z[:, :size], z[:, size : 2 * size], z[:, 2 * size : 3 * size], z[:, 3 * size :]
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            x = o.sigmoid() * c.tanh()
            states[number] = (x, c)
        tops.append(x)
    raw = torch.stack(tops, dim=1)
    return raw * m_o, raw


@pytest.mark.parametrize("kernel", ["fused", "readable"])
def test_forward_is_the_equations_with_one_mask_for_all_times(kernel: str, masks: list[Tensor]) -> None:
    model, text = make(kernel=kernel), tokens(4, 11)
    with watching_layers() as seen:
        hidden = model(text).hidden
    assert [tuple(each.shape) for each in masks] == [
        *[(19,), (4, 1, 6), (36, 9), (4, 1, 9), (36, 9), (4, 1, 9), (24, 6), (4, 1, 6)]
    ]
    dropped, raw = reference(model, text, masks)
    tolerance = rounding(terms=9, depth=33, growth=8, dtype=torch.float64)
    torch.testing.assert_close(hidden, dropped, rtol=0, atol=tolerance)
    torch.testing.assert_close(seen[-1], raw, rtol=0, atol=tolerance)


def test_gradients_are_those_of_the_equations(masks: list[Tensor]) -> None:
    """The dropped recurrent weights get none in a segment; all others get theirs."""
    model, text = make(), tokens(3, 7)
    weight = torch.randn(3, 7, 6, dtype=torch.float64)
    (model(text).hidden * weight).sum().backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    (reference(model, text, masks)[0] * weight).sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-9, atol=1e-10)
    U = found["recurrent.0.fused.weight_hh_l0"]
    assert not U[masks[2] == 0].any()
    assert U[masks[2] != 0].all()


def test_each_segment_draws_its_own_masks_and_evaluation_none(masks: list[Tensor]) -> None:
    model, text = make(), tokens(2, 5)
    model(text)
    model(text)
    assert len(masks) == 16
    assert not torch.equal(masks[2], masks[10])
    model.eval()
    assert torch.equal(model(text).hidden, model(text).hidden)
    assert len(masks) == 16


def test_a_dropped_word_is_dropped_wherever_it_stands() -> None:
    model = make(input_dropout=0.0, embedding_dropout=0.5)
    text = tokens(4, 50)
    with watching_layers() as seen:
        model(text)
    gone = ~seen[0].any(-1)
    for word in range(19):
        assert gone[text == word].all() or not gone[text == word].any()
    assert 0 < gone.double().mean() < 1
    kept = ~gone
    torch.testing.assert_close(seen[0][kept], 2 * model.embedding.weight[text[kept]])


def test_both_regularisers_are_means_over_components() -> None:
    """α mean (m∘h)² and β mean (h_t − h_{t+1})², as the authors compute them over whole segments."""
    model, text = make(), tokens(4, 12)
    objective = Causal(CausalConfig(activation=2.0, temporal=1.0))
    batch = objective.batch(text)
    torch.manual_seed(5)
    loss = objective.loss(model, {}, batch)
    torch.manual_seed(5)
    with watching_layers() as seen:
        dropped = model(text[:, :-1]).hidden
    h = seen[-1]
    assert objective.loss_weights == {"next": 1.0, "activation": 2.0, "temporal": 1.0}
    means = {name: float(total.detach()) / batch.counts[name] for name, total in loss.sums.items()}
    assert means["activation"] == pytest.approx(float(dropped.detach().pow(2).mean()), rel=1e-12)
    assert means["temporal"] == pytest.approx(float((h[:, 1:] - h[:, :-1]).detach().pow(2).mean()), rel=1e-12)
    assert Causal().loss_weights == {"next": 1.0}
    assert Causal().batch(text).counts == {"next": 44}


@pytest.mark.parametrize(
    ("size", "vocabulary", "millions"), [("penn-treebank", 10_000, 24), ("wikitext-2", 33_278, 33)]
)
def test_published_sizes(size: str, vocabulary: int, millions: int) -> None:
    """Merity et al. 2018, tables 1 and 2."""
    from lmlab.models import LINEAGE

    model = outline("awd-lstm", {**LINEAGE["awd-lstm"].sizes[size], "vocabulary": vocabulary})
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.8)


def test_untied_it_has_a_softmax_of_its_own() -> None:
    model = make(tied=False)
    assert model.output.weight.shape == (19, 9)
    assert model(tokens(2, 3)).hidden.shape == (2, 3, 9)
