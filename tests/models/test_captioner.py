"""The captioner against its equations computed step by step, and the contract of models that write from pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from lmlab.config import build
from lmlab.decoding.beam_search import beam_search
from lmlab.layers.recurrent import LSTMLayer
from lmlab.layers.watching import watching
from lmlab.models import LINEAGE, outline
from lmlab.models.abilities import LearnsTarget, PredictsNext, WritesCaptions, WritesTarget
from lmlab.models.captioner import Captioner, CaptionerConfig
from lmlab.models.states import Decoding, reorder_state
from lmlab.runs.model_files import load_weights, model_tensors
from lmlab.runs.storage import read_tensors, write_tensors

SMALL = {
    "vocabulary": 23,
    "image": [16, 24],
    "channels": 3,
    "convolutions": [8, 12],
    "width": 10,
    "hidden": 14,
    "window": 12,
}
VIT = {"encoder": "vit", "patch": 8, "patch_width": 16, "patch_heads": 2, "patch_layers": 2}
VARIANTS: dict[str, dict[str, Any]] = {
    "conv": {},
    "without-gate": {"gate": False},
    "without-attention": {"attention": "none"},
    "vit": VIT,
}


def make(**changes: Any) -> Captioner:
    torch.manual_seed(0)
    return Captioner(build(CaptionerConfig, {**SMALL, **changes}, where="model")).eval()


def pictures(rows: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, 3, 16, 24, generator=torch.Generator().manual_seed(seed))


def tokens(*shape: int, seed: int = 2) -> Tensor:
    return torch.randint(0, 23, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=list(VARIANTS))
def model(request: pytest.FixtureRequest) -> Captioner:
    return make(**VARIANTS[request.param])


@torch.no_grad()
def test_it_computes_the_equations_of_the_paper() -> None:
    """Written again from Xu et al. 2015, one picture, one region and one word after the other."""
    model, pixels, text = make(), pictures(2), tokens(2, 5)
    hidden, weights = model.attend(text, pixels=pixels)
    cell = model.decoder.fused
    assert model.alignment is not None
    assert model.gate is not None
    for row in range(2):
        a = model.encoder(pixels[row : row + 1])[0]
        h, c = (torch.tanh(part.weight @ a.mean(0) + part.bias) for part in model.first)
        for place, token in enumerate(text[row].tolist()):
            e = torch.stack(
                [
                    model.alignment.v
                    @ torch.tanh(model.alignment.from_source.weight @ each + model.alignment.from_state.weight @ h)
                    for each in a
                ]
            )
            alpha = e.exp() / e.exp().sum()
            beta = torch.sigmoid(model.gate.weight[0] @ h + model.gate.bias[0])
            z = beta * sum(alpha[i] * a[i] for i in range(len(a)))
            x = torch.cat([model.embedding.weight[token], z])
            gates = cell.weight_ih_l0 @ x + cell.bias_ih_l0 + cell.weight_hh_l0 @ h + cell.bias_hh_l0
            i, f, g, o = gates.chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            expected = model.embedding.weight[token] + model.from_state.weight @ h + model.from_picture.weight @ z
            torch.testing.assert_close(weights[row, place], alpha, atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(hidden[row, place], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("beams", [1, 3])
@torch.no_grad()
def test_steps_are_the_forward_pass(model: Captioner, beams: int) -> None:
    text = tokens(2 * beams, 7)
    whole = model.logits(model(text, pixels=pictures(2).repeat_interleave(beams, 0)).hidden)
    for pieces in ([1] * 7, [3, 4]):
        state, place = model.begin(model.encode(pixels=pictures(2)), beams=beams), 0
        for size in pieces:
            logits, state = model.step(text[:, place : place + size], state)
            place += size
            torch.testing.assert_close(logits, whole[:, place - 1], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_padding_and_order_change_nothing(model: Captioner) -> None:
    pixels, text = pictures(3), tokens(3, 8)
    lengths = torch.tensor([8, 3, 5])
    together = model(text, pixels=pixels, target_lengths=lengths).hidden
    turned = model(text.flip(0), pixels=pixels.flip(0), target_lengths=lengths.flip(0)).hidden
    torch.testing.assert_close(turned.flip(0), together, atol=1e-5, rtol=1e-5)
    for row, length in enumerate(lengths.tolist()):
        alone = model(text[row : row + 1, :length], pixels=pixels[row : row + 1]).hidden[0]
        torch.testing.assert_close(together[row, :length], alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_it_sees_the_whole_picture_and_no_later_token(model: Captioner) -> None:
    pixels, text = pictures(1), tokens(1, 8)
    before = model(text, pixels=pixels).hidden
    later = text.clone()
    later[0, 5] = (later[0, 5] + 1) % 23
    after = model(later, pixels=pixels).hidden
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])
    for corner in ((0, 0), (15, 23)):
        other = pixels.clone()
        other[:, :, corner[0], corner[1]] += 2
        assert not torch.equal(model(text, pixels=other).hidden[:, 0], before[:, 0])


@torch.no_grad()
def test_states_can_be_reordered_and_beams_are_what_the_model_scores(model: Captioner) -> None:
    pixels, text = pictures(3), tokens(6, 6)
    _, state = model.step(text[:, :5], model.begin(model.encode(pixels=pixels), beams=2))
    order = torch.tensor([1, 1, 2, 3, 5, 4])
    moved, _ = model.step(text[order, 5:], Decoding(state.encoded, reorder_state(state.decoder, order)))
    direct, _ = model.step(text[order], model.begin(model.encode(pixels=pixels), beams=2))
    torch.testing.assert_close(moved, direct, atol=1e-5, rtol=1e-5)
    start = torch.zeros(3, 1, dtype=torch.long)
    found = beam_search(model, start, tokens=6, beams=3, boundary=0, state=model.begin(model.encode(pixels=pixels)))
    for row, hypotheses in enumerate(found):
        for each in hypotheses:
            whole = torch.tensor([[0, *each.tokens]])
            hidden = model(whole[:, :-1], pixels=pixels[row : row + 1]).hidden
            assert -model.nll(hidden[0], whole[0, 1:]).sum().item() == pytest.approx(each.log_probability, abs=1e-3)


def test_it_has_its_abilities_and_gradients_reach_all(model: Captioner) -> None:
    assert isinstance(model, WritesTarget)
    assert isinstance(model, LearnsTarget)
    assert isinstance(model, WritesCaptions)
    assert not isinstance(model, PredictsNext), "there is nothing to write from without a picture"
    assert {parameter for depth in model.depths() for parameter in depth} == set(model.parameters())
    hidden, weights = model.attend(tokens(2, 7), pixels=pictures(2))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 7))
    (hidden.square().sum() + weights.square().sum()).backward()
    missing = [name for name, each in model.named_parameters() if each.grad is None or not each.grad.any()]
    assert set(missing) <= {"output.weight", "output.bias", "encoder.net.cls"}
    rows, columns = model.grid
    assert model.layers(pixels=pictures(2))[-1].shape[:2] == (2, rows * columns)


@torch.no_grad()
def test_being_watched_changes_nothing() -> None:
    model, pixels, text = make(), pictures(2), tokens(2, 6)
    expected, weights = model.attend(text, pixels=pixels)
    with watching(model, "alignment.probabilities") as seen:
        torch.testing.assert_close(model(text, pixels=pixels).hidden, expected)
    found = torch.cat(seen["alignment.probabilities"], dim=2)[:, 0]
    torch.testing.assert_close(found, weights)


@torch.no_grad()
def test_saved_and_loaded_is_bit_equal(model: Captioner, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, model_tensors(model))
    torch.manual_seed(9)
    other = Captioner(model.config).eval()
    load_weights(other, read_tensors(path), source=path)
    text, pixels = tokens(2, 5), pictures(2)
    assert torch.equal(model(text, pixels=pixels).hidden, other(text, pixels=pixels).hidden)


def test_flops_are_counted_as_torch_counts_them(model: Captioner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LSTMLayer, "run", LSTMLayer.unroll)
    unknown: Any = {torch.ops.aten.mv: lambda matrix, vector, **_: 2 * matrix[0] * matrix[1]}
    inputs = {"tokens": tokens(2, 7), "pixels": pictures(2)}
    with FlopCounterMode(display=False, custom_mapping=unknown) as counter, torch.no_grad():
        model.logits(model(**inputs).hidden)
    stated = model.writing_flops(inputs) + 14 * model.head_flops()
    assert stated == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_wrong_inputs_are_named() -> None:
    model = make()
    with pytest.raises(ValueError, match=r"reads \[B, 3, 16, 24\]"):
        model(tokens(1, 3), pixels=torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match="needs a picture"):
        model(tokens(1, 3))
    with pytest.raises(ValueError, match="patch = 5 does not divide"):
        make(encoder="vit", patch=5)


def test_all_sizes_can_be_made() -> None:
    for size in LINEAGE["captioner"].sizes.values():
        assert sum(each.numel() for each in outline("captioner", size).parameters()) > 10_000
