"""The recurrent encoder-decoder against torch's own nets, against its equations in numpy, and its published sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lmlab.layers.alignment import ALIGNMENTS
from lmlab.layers.watching import watching
from lmlab.models import create
from lmlab.models.seq2seq import Seq2Seq, Seq2SeqConfig

KERNELS: dict[str, type[Any]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS: dict[str, type[Any]] = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def make(**values: Any) -> Seq2Seq:
    """A small model in evaluation mode, whose weights are large enough to tell things apart."""
    fields = {"vocabulary": 31, "width": 6, "hidden": 8, "layers": 2, **values}
    model = Seq2Seq(Seq2SeqConfig.model_validate(fields)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def pairs() -> tuple[Tensor, Tensor, Tensor]:
    """Source [4, 7], its lengths, and target [4, 5]."""
    return torch.randint(31, (4, 7)), torch.tensor([5, 7, 1, 3]), torch.randint(31, (4, 5))


@pytest.mark.parametrize("kind", ["dot", "multiplicative", "additive"])
@torch.no_grad()
def test_attention_is_its_formula(kind: str) -> None:
    """e_ti = sᵀh, sᵀWh or vᵀtanh(W₁h + W₂s), α = softmax(e), a = Σ α h, number by number in numpy."""
    memory = 5 if kind == "dot" else 4
    alignment = ALIGNMENTS[kind](5, memory)
    s, h, lengths = torch.randn(3, 2, 5), torch.randn(3, 6, memory), [6, 2, 4]
    mask = (torch.arange(6) < torch.tensor(lengths)[:, None])[:, None]
    weights = {name: parameter.numpy().astype(np.float64) for name, parameter in alignment.named_parameters()}
    expected = np.zeros((3, 2, memory))
    for b in range(3):
        for t in range(2):
            query, e = s[b, t].numpy().astype(np.float64), []
            for i in range(lengths[b]):
                key = h[b, i].numpy().astype(np.float64)
                if kind == "dot":
                    e.append(query @ key)
                elif kind == "multiplicative":
                    e.append(query @ weights["product.weight"] @ key)
                else:
                    hidden = np.tanh(weights["from_source.weight"] @ key + weights["from_state.weight"] @ query)
                    e.append(weights["v"] @ hidden)
            alpha = np.exp(e) / np.exp(e).sum()
            expected[b, t] = sum(a * h[b, i].numpy() for i, a in enumerate(alpha))
    a = alignment(s, alignment.keys(h), h, mask)
    np.testing.assert_allclose(a.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@torch.no_grad()
def test_encoder_agrees_with_torch(cell: str, bidirectional: bool) -> None:
    model = make(cell=cell, bidirectional=bidirectional)
    source, lengths, _ = pairs()
    width = 4 if bidirectional else 8
    reference = KERNELS[cell](6, width, num_layers=2, bidirectional=bidirectional, batch_first=True)
    for number in range(2):
        for layers, suffix in ((model.encoder.ahead, ""), (model.encoder.back, "_reverse")):
            if len(layers):
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    ours = getattr(layers[number].fused, f"{name}_l0")
                    getattr(reference, f"{name}_l{number}{suffix}").copy_(ours)
    packed = pack_padded_sequence(model.embedding(source), lengths, batch_first=True, enforce_sorted=False)
    y, end = reference(packed)
    expected = pad_packed_sequence(y, batch_first=True)[0]
    (*_, h), ends = model.encoder(model.embedding(source), lengths)
    torch.testing.assert_close(h, expected, atol=1e-6, rtol=1e-5)
    parts = end if cell == "lstm" else (end,)
    for number in range(2):
        own = ends[number] if cell == "lstm" else (ends[number],)
        for part, other in zip(own, parts, strict=True):
            other = other.view(2, -1, 4, width)[number].transpose(0, 1).flatten(1)  # [B, directions * width]
            torch.testing.assert_close(part, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("cell", "attention", "feeding", "tied"),
    [
        ("lstm", "none", False, False),
        ("lstm", "dot", False, False),
        ("gru", "additive", False, True),
        ("lstm", "multiplicative", True, False),
        ("rnn", "additive", True, True),
    ],
)
@torch.no_grad()
def test_decoder_is_its_equations(cell: str, attention: str, feeding: bool, tied: bool) -> None:
    """One token after another with torch's cells: s_t, a_t, h̃_t = tanh(Wc [a_t; s_t]), softmax(V h̃_t + c)."""
    model = make(cell=cell, attention=attention, feeding=feeding, tied=tied, bidirectional=False)
    source, lengths, target = pairs()
    (*_, h), ends = model.encoder(model.embedding(source), lengths)
    cells = []
    for layer in model.decoder.layers:
        weight, recurrent = layer.fused.weight_ih_l0, layer.fused.weight_hh_l0
        reference = CELLS[cell](weight.shape[1], 8)
        reference.load_state_dict(
            {
                "weight_ih": weight,
                "weight_hh": recurrent,
                "bias_ih": layer.fused.bias_ih_l0,
                "bias_hh": layer.fused.bias_hh_l0,
            }
        )
        cells.append(reference)
    states, fed = list(ends), torch.zeros(4, 6 if tied else 8)
    logits = []
    for token in target.unbind(1):
        x = model.embedding(token)
        x = torch.cat([x, fed], 1) if feeding else x
        for number, reference in enumerate(cells):
            states[number] = reference(x, states[number])
            x = states[number][0] if cell == "lstm" else states[number]
        if attention != "none":
            keys = {"dot": lambda: h, "multiplicative": lambda: h @ model.alignment.product.weight.T}
            if attention == "additive":
                inner = h @ model.alignment.from_source.weight.T + (x @ model.alignment.from_state.weight.T)[:, None]
                e = torch.tanh(inner) @ model.alignment.v
            else:
                e = (keys[attention]() * x[:, None]).sum(-1)
            e = e.masked_fill(torch.arange(7) >= lengths[:, None], -torch.inf)
            a = (e.softmax(-1)[:, :, None] * h).sum(1)
            x = fed = torch.tanh(torch.cat([a, x], 1) @ model.combination[0].weight.T)
        logits.append(x @ model.output.weight.T + model.output.bias)
    ours = model.logits(model(target, source=source, lengths=lengths).hidden)
    torch.testing.assert_close(ours, torch.stack(logits, 1), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_decoder_starts_where_the_encoder_ended() -> None:
    source, lengths, _ = pairs()
    plain = make(bidirectional=False)
    _, ends = plain.encoder(plain.embedding(source), lengths)
    first = plain.begin(plain.encode(source=source, lengths=lengths)).decoder.states
    assert len(plain.bridge) == 0
    for (h, c), (h_end, c_end) in zip(first, ends, strict=True):
        assert torch.equal(h, h_end)
        assert torch.equal(c, c_end)
    both = make(encoder_hidden=5)
    _, ends = both.encoder(both.embedding(source), lengths)
    first = both.begin(both.encode(source=source, lengths=lengths)).decoder.states
    bridge, (h_end, c_end) = both.bridge[1], ends[1]
    torch.testing.assert_close(first[1][0], torch.tanh(h_end @ bridge.hidden.weight.T + bridge.hidden.bias))
    torch.testing.assert_close(first[1][1], c_end @ bridge.cell.weight.T + bridge.cell.bias)


@torch.no_grad()
def test_scheduled_sampling_reads_own_predictions() -> None:
    """With probability 1, training reads what greedy search would write; judging reads the given tokens."""
    source, lengths, target = pairs()
    model = make(sampling=1.0)
    plain = make(sampling=0.0)
    plain.load_state_dict(model.state_dict())
    text = target[:, :1]
    state = model.begin(model.encode(source=source, lengths=lengths))
    expected = []
    for _ in range(5):
        hidden, state = model(text[:, -1:], state=state)
        expected.append(hidden)
        text = torch.cat([text, model.logits(hidden[:, -1]).argmax(-1, keepdim=True)], dim=1)
    assert not torch.equal(text[:, :5], target), "the test needs predictions that differ from the target"
    sampled = model.train()(target, source=source, lengths=lengths).hidden
    torch.testing.assert_close(sampled, torch.cat(expected, 1), atol=1e-5, rtol=1e-5)
    forced = plain.train()(target, source=source, lengths=lengths).hidden
    torch.testing.assert_close(model.eval()(target, source=source, lengths=lengths).hidden, forced)
    assert not torch.allclose(sampled, forced)


def test_scheduled_sampling_mixes_by_its_share() -> None:
    """Of the tokens after the first, about the given share is the model's own."""
    model = make(sampling=0.25, vocabulary=31).train()
    read: list[Tensor] = []
    model.embedding.register_forward_hook(lambda _, inputs, __: read.append(inputs[0]))
    target = torch.randint(31, (400, 11))
    with torch.no_grad():
        model(target, source=torch.randint(31, (400, 3)))
    steps = torch.stack(read[1:], 1)
    assert torch.equal(steps[:, 0], target[:, 0])
    fraction = (steps[:, 1:] != target[:, 1:]).float().mean().item()
    assert fraction == pytest.approx(0.25 * 30 / 31, abs=0.03)


@torch.no_grad()
def test_alignments_can_be_watched() -> None:
    model = make(attention="additive")
    source, lengths, target = pairs()
    before = model(target, source=source, lengths=lengths).hidden
    with watching(model, "alignment.probabilities") as seen:
        after = model(target, source=source, lengths=lengths).hidden
    assert torch.equal(before, after)
    (weights,) = seen["alignment.probabilities"]
    assert weights.shape == (4, 1, 5, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 1, 5))
    assert weights[0, :, :, 5:].abs().max() == 0


def test_published_size() -> None:
    """Sutskever et al. 2014, section 3.4: 384M parameters, 64M of them in recurrent layers."""
    with torch.device("meta"):
        model = create("seq2seq", {"vocabulary": 80_000, "source_vocabulary": 160_000}, size="sutskever")
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(384e6, rel=0.005)
    recurrent = sum(p.numel() for part in (model.encoder, model.decoder) for p in part.parameters())
    assert recurrent == pytest.approx(64e6, rel=0.005)


def test_what_does_not_fit_is_explained() -> None:
    with pytest.raises(ValueError, match="equal width, not 10 and 8"):
        make(attention="dot", encoder_hidden=5)
    with pytest.raises(ValueError, match="cannot be split between two directions"):
        make(hidden=7)
    with pytest.raises(ValueError, match="choose an attention"):
        make(attention="none", feeding=True)
    with pytest.raises(ValueError, match="lengths from 0 to 7"):
        make().encode(source=torch.zeros(2, 7, dtype=torch.long), lengths=torch.tensor([0, 7]))
