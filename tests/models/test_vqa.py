"""The model of questions about pictures against its equations, and the contract of models that give vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from lmlab.config import build
from lmlab.layers.alignment import MultiplicativeAlignment
from lmlab.layers.recurrent import LSTMLayer
from lmlab.layers.watching import watching
from lmlab.models import LINEAGE, outline
from lmlab.models.abilities import GivesVectors, PredictsNext
from lmlab.models.vqa import Vqa, VqaConfig
from lmlab.runs.model_files import load_weights, model_tensors
from lmlab.runs.storage import read_tensors, write_tensors

SMALL = {"vocabulary": 23, "image": [16, 24], "channels": 3, "convolutions": [8, 12], "width": 10, "hidden": 14}
VIT = {"encoder": "vit", "patch": 8, "patch_width": 16, "patch_heads": 2, "patch_layers": 2}
VARIANTS: dict[str, dict[str, Any]] = {
    "two-hops": {},
    "one-hop": {"hops": 1},
    "multiplicative": {"attention": "multiplicative"},
    "without-attention": {"attention": "none"},
    "vit": VIT,
}


def make(**changes: Any) -> Vqa:
    torch.manual_seed(0)
    return Vqa(build(VqaConfig, {**SMALL, **changes}, where="model")).eval()


def pictures(rows: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, 3, 16, 24, generator=torch.Generator().manual_seed(seed))


def tokens(*shape: int, seed: int = 2) -> Tensor:
    return torch.randint(0, 23, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=list(VARIANTS))
def model(request: pytest.FixtureRequest) -> Vqa:
    return make(**VARIANTS[request.param])


def score(hop: Any, u: Tensor, v: Tensor) -> Tensor:
    """Of a region v, for the vector u."""
    if isinstance(hop, MultiplicativeAlignment):
        weight: Tensor = hop.product.weight
        return u @ weight @ v
    found: Tensor = hop.v @ torch.tanh(hop.from_source.weight @ v + hop.from_state.weight @ u)
    return found


@torch.no_grad()
@pytest.mark.parametrize("attention", ["additive", "multiplicative"])
def test_it_computes_the_equations_of_the_paper(attention: str) -> None:
    """Written again from the docstring of the model, one picture and one region after the other."""
    model, pixels, question = make(attention=attention), pictures(2), tokens(2, 5)
    places = [torch.tensor([x, y]) for y in (-2.0, -2 / 3, 2 / 3, 2.0) for x in (-2.0, -1.2, -0.4, 0.4, 1.2, 2.0)]
    found = model(pixels, tokens=question).hidden
    cell = torch.nn.LSTMCell(10, 14)
    for name, weight in model.question.ahead[0].fused.named_parameters():
        getattr(cell, name.removesuffix("_l0")).copy_(weight)
    for row in range(2):
        regions = [torch.cat(each) for each in zip(model.encoder(pixels)[row], places, strict=True)]
        v = [torch.tanh(model.projection.weight @ a + model.projection.bias) for a in regions]
        u, c = torch.zeros(1, 14), torch.zeros(1, 14)
        for token in question[row]:
            u, c = cell(model.embedding.weight[token][None], (u, c))
        u = u[0] + model.values[0].weight @ (sum(v) / len(v))
        for hop, value in zip(model.alignments, model.values[1:], strict=True):
            e = torch.stack([score(hop, u, each) for each in v])
            p = e.exp() / e.exp().sum()
            u = u + value.weight @ sum(p[i] * each for i, each in enumerate(v))
        torch.testing.assert_close(found[row, 0], u, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_padding_and_order_change_nothing(model: Vqa) -> None:
    pixels, question = pictures(3), tokens(3, 8)
    lengths = torch.tensor([8, 3, 5])
    together = model(pixels, tokens=question, lengths=lengths).hidden
    turned = model(pixels.flip(0), tokens=question.flip(0), lengths=lengths.flip(0)).hidden
    torch.testing.assert_close(turned.flip(0), together, atol=1e-5, rtol=1e-5)
    for row, length in enumerate(lengths.tolist()):
        alone = model(pixels[row : row + 1], tokens=question[row : row + 1, :length]).hidden[0]
        torch.testing.assert_close(together[row], alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_several_questions_share_a_picture(model: Vqa) -> None:
    question, pictures_of = tokens(5, 6), torch.tensor([1, 0, 1, 1, 0])
    together = model(pictures(2), tokens=question, pictures=pictures_of).hidden
    torch.testing.assert_close(together, model(pictures(2)[pictures_of], tokens=question).hidden, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_answer_depends_on_all_of_the_picture_and_the_question(model: Vqa) -> None:
    pixels, question = pictures(1), tokens(1, 6)
    before = model(pixels, tokens=question).hidden
    for corner in ((0, 0), (15, 23)):
        other = pixels.clone()
        other[:, :, corner[0], corner[1]] += 2
        assert not torch.equal(model(other, tokens=question).hidden, before)
    for place in (0, 5):
        asked = question.clone()
        asked[0, place] = (asked[0, place] + 1) % 23
        assert not torch.equal(model(pixels, tokens=asked).hidden, before)


def test_gradients_reach_all_and_layers_are_given(model: Vqa) -> None:
    assert isinstance(model, GivesVectors)
    assert not isinstance(model, PredictsNext)
    assert {parameter for depth in model.depths() for parameter in depth} == set(model.parameters())
    inputs = {"pixels": pictures(2), "tokens": tokens(2, 7)}
    layers = model.layers(**inputs)
    assert len(layers) == (2 if model.config.attention == "none" else 2 + model.config.hops)
    torch.testing.assert_close(layers[-1], model(**inputs).hidden)
    layers[-1].square().sum().backward()
    missing = [name for name, each in model.named_parameters() if each.grad is None or not each.grad.any()]
    assert set(missing) <= {"encoder.net.cls"}


@torch.no_grad()
def test_the_attention_of_each_hop_can_be_watched() -> None:
    model = make()
    with watching(model, "alignments.0.probabilities", "alignments.1.probabilities") as seen:
        model(pictures(2), tokens=tokens(2, 4))
    for weights in (each[0] for each in seen.values()):
        assert weights.shape == (2, 1, 1, 24)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 1))


@torch.no_grad()
def test_saved_and_loaded_is_bit_equal(model: Vqa, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, model_tensors(model))
    torch.manual_seed(9)
    other = Vqa(model.config).eval()
    load_weights(other, read_tensors(path), source=path)
    inputs = {"pixels": pictures(2), "tokens": tokens(2, 5)}
    assert torch.equal(model(**inputs).hidden, other(**inputs).hidden)


def test_flops_are_counted_as_torch_counts_them(model: Vqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LSTMLayer, "run", LSTMLayer.unroll)
    unknown: Any = {torch.ops.aten.mv: lambda matrix, vector, **_: 2 * matrix[0] * matrix[1]}
    inputs = {"pixels": pictures(2), "tokens": tokens(2, 7)}
    with FlopCounterMode(display=False, custom_mapping=unknown) as counter, torch.no_grad():
        model(**inputs)
    assert model.reading_flops(inputs) == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert 2 * model.body_flops(7) == pytest.approx(model.reading_flops(inputs))


def test_all_sizes_can_be_made() -> None:
    for size in LINEAGE["vqa"].sizes.values():
        assert sum(each.numel() for each in outline("vqa", size).parameters()) > 10_000
