"""VisualBERT and ViLBERT: against transformers, against naive co-attention, and what both must keep."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lmlab.config import build
from lmlab.layers.attention.co_attention import CoAttention
from lmlab.layers.kernels.packing import pack_tokens
from lmlab.layers.padding import NoPadding
from lmlab.layers.watching import watching, watching_layers
from lmlab.models import LINEAGE, load_class
from lmlab.models.abilities import ABILITIES, FillsMasks, PredictsRegions, ReadsRegions, ability, require
from lmlab.models.vilbert import VilbertConfig
from regions import REGION_WIDTH, SETTINGS, SYSTEMS, VOCABULARY, make_inputs, make_model, one_row
from tolerances import of_blocks, rounding


@pytest.fixture(params=SYSTEMS)
def model(request: pytest.FixtureRequest) -> Any:
    return make_model(request.param)


def close(layers: int = 3, *, width: int = 20) -> dict[str, float]:
    tolerance = of_blocks(2 * layers, width=width, growth=8)
    return {"atol": 4 * tolerance, "rtol": tolerance}


def test_padding_of_words_and_of_regions_changes_nothing(model: Any) -> None:
    inputs = make_inputs()
    together = model.read_both(**inputs)
    for row in range(3):
        words, regions = int(inputs["lengths"][row]), int(inputs["region_lengths"][row])
        alone = model.read_both(**one_row(inputs, row))
        torch.testing.assert_close(together.words[row, :words], alone.words[0], **close())
        torch.testing.assert_close(together.regions[row, :regions], alone.regions[0], **close())
        torch.testing.assert_close(together.joint[row], alone.joint[0], **close())


def test_what_stands_in_the_padding_changes_nothing(model: Any) -> None:
    inputs = make_inputs()
    other = {name: tensor.clone() for name, tensor in inputs.items()}
    for row in range(3):
        words, regions = int(inputs["lengths"][row]), int(inputs["region_lengths"][row])
        other["tokens"][row, words:] = 3
        other["regions"][row, regions:] = 100.0
        other["boxes"][row, regions:] = 0.5
    torch.testing.assert_close(model.read_both(**other).joint, model.read_both(**inputs).joint, **close())


def test_the_order_of_rows_and_of_regions_changes_nothing(model: Any) -> None:
    inputs = make_inputs(padded=False)
    joint = model.read_both(**inputs).joint
    turned = {name: tensor.flip(0) for name, tensor in inputs.items()}
    torch.testing.assert_close(model.read_both(**turned).joint.flip(0), joint, **close())
    turned = {**inputs, "regions": inputs["regions"].flip(1), "boxes": inputs["boxes"].flip(1)}
    torch.testing.assert_close(model.read_both(**turned).joint, joint, **close())


def test_words_regions_and_places_are_all_read(model: Any) -> None:
    inputs = make_inputs(padded=False)
    joint = model.read_both(**inputs).joint
    for name, change in (("tokens", 1), ("regions", 0.5), ("boxes", 0.1)):
        changed = inputs[name].clone()
        changed[:, 1] = (changed[:, 1] + change) % VOCABULARY
        assert not torch.allclose(model.read_both(**{**inputs, name: changed}).joint, joint, atol=1e-4)


def test_chosen_places_are_those_of_the_whole(model: Any) -> None:
    inputs, at = make_inputs(), torch.tensor([[0, 8, 3], [4, 1, 0], [0, 0, 0]])
    whole, chosen = model.read_both(**inputs), model.read_both(**inputs, at=at)
    torch.testing.assert_close(chosen.words, whole.words[torch.arange(3)[:, None], at], **close())
    torch.testing.assert_close(chosen.joint, whole.joint, **close())
    filler = require(model, FillsMasks)
    torch.testing.assert_close(filler.read(**inputs, at=at), chosen.words, **close())


def test_without_regions_it_is_bert() -> None:
    inputs = make_inputs()
    texts = {name: inputs[name] for name in ("tokens", "lengths")}
    for name in SYSTEMS:
        model, bert = make_model(name), make_model("bert", pairs=False, pooler=False)
        own = model.state_dict()
        bert.load_state_dict({key: own[key] for key in bert.state_dict()})
        assert torch.equal(model(**texts).hidden, bert(**texts).hidden)


def test_abilities_are_those_of_the_row(model: Any) -> None:
    name = "visualbert" if type(model).__name__ == "VisualBert" else "vilbert"
    has = {each for each, known in ABILITIES.items() if ability(model, known.kind) is not None}
    assert has == set(LINEAGE[name].does)
    assert (ability(model, PredictsRegions) is not None) == (name == "vilbert")
    assert isinstance(model, ReadsRegions)


def test_layers_and_depths(model: Any) -> None:
    inputs = make_inputs()
    layers = model.layers(**inputs)
    hidden = model(**inputs).hidden
    assert len(layers) == SETTINGS["layers"] + 1
    assert torch.equal(layers[-1], hidden)
    with watching_layers():
        at = torch.zeros(3, 1, dtype=torch.long)
        torch.testing.assert_close(model(**inputs, at=at).hidden[:, 0], hidden[:, 0], **close())
    depths = model.depths()
    assert len(depths) == 1 + SETTINGS["layers"] + 1
    flat = [parameter for depth in depths for parameter in depth]
    assert len(flat) == len(set(flat))
    assert set(flat) == set(model.parameters())


def test_every_parameter_learns(model: Any) -> None:
    model.train()
    inputs, at = make_inputs(), torch.tensor([[0, 8], [4, 1], [0, 0]])
    both = model.read_both(**inputs)
    scores = require(model, FillsMasks).logits(both.words[:, at[0]])
    loss = model.match(both.joint).square().sum() + scores.logsumexp(-1).sum()
    if isinstance(model, PredictsRegions):
        loss = loss + model.predict_regions(both.regions.flatten(0, 1)).square().sum()
    loss.backward()
    still = [name for name, each in model.named_parameters() if each.grad is None or not each.grad.any()]
    assert not still


@contextmanager
def counting() -> Iterator[FlopCounterMode]:
    """Count FLOPs without kernels that torch does not know."""
    counter = FlopCounterMode(display=False)
    with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH), counter:
        yield counter


def test_flops_are_those_that_torch_counts(model: Any) -> None:
    inputs, at = make_inputs(), torch.tensor([[0, 8], [4, 1], [0, 0]])
    for places in (None, at):
        with counting() as counter:
            model.read_both(**inputs, at=places)
        asked = None if places is None else 1 + places.shape[1]
        poolers = 3 * (model.match_flops() - 2.0 * model.pair.weight.numel())
        assert counter.get_total_flops() == model.reading_flops(inputs, positions=asked) + poolers


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("visualbert", {"regions": torch.zeros(1, 2, 3)}, "regions of 3 numbers each, and this model reads 7"),
        ("vilbert", {"boxes": None}, "give boxes"),
        ("visualbert", {"boxes": None}, "give boxes"),
    ],
)
def test_wrong_regions_are_named(name: str, inputs: dict[str, Any], message: str) -> None:
    given = {**make_inputs(1, padded=False), **inputs}
    with pytest.raises(ValueError, match=message):
        make_model(name).read_both(**given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"connections": 4}, "connections = 4 is more than the 3 layers"),
        ({"joint_heads": 3}, "3 heads do not divide the width 20"),
        ({"picture_heads": 5}, "5 heads do not divide the width 12"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_model("vilbert", **changes)


# ViLBERT against the equations


def naive_answer(asking: Any, asked: Any, x: Tensor, y: Tensor, heads: int) -> Tensor:
    """What x [T, D] gets from y [R, E], query by query and head by head."""
    q = asking.query_key_value(x).chunk(3, -1)[0]
    k, v = asked.query_key_value(y).chunk(3, -1)[1:]
    width = q.shape[1] // heads
    answers = torch.zeros_like(q)
    for head in range(heads):
        own = slice(head * width, (head + 1) * width)
        for place in range(len(q)):
            scores = [float(q[place, own] @ key) / math.sqrt(width) for key in k[:, own]]
            largest = max(scores)
            weights = [math.exp(score - largest) for score in scores]
            for weight, value in zip(weights, v[:, own], strict=True):
                answers[place, own] += weight / sum(weights) * value
    return asking.projection(answers)


@torch.no_grad()
def test_co_attention_is_the_naive_computation() -> None:
    torch.manual_seed(0)
    layer = CoAttention(6, 10, shared=8, heads=2).double().eval()
    x, y = torch.randn(2, 5, 6).double(), torch.randn(2, 4, 10).double()
    lengths, others = torch.tensor([5, 3]), torch.tensor([2, 4])
    padding, other = pack_tokens(x[..., 0], lengths), pack_tokens(y[..., 0], others)
    found = layer(padding.pack(x), other.pack(y), padding, other)
    to_words, to_regions = padding.unpack(found[0]), other.unpack(found[1])
    for row, (words, regions) in enumerate(zip(lengths.tolist(), others.tolist(), strict=True)):
        own, theirs = x[row, :words], y[row, :regions]
        expected = naive_answer(layer.first, layer.second, own, theirs, 2)
        torch.testing.assert_close(to_words[row, :words], expected, atol=1e-12, rtol=1e-12)
        expected = naive_answer(layer.second, layer.first, theirs, own, 2)
        torch.testing.assert_close(to_regions[row, :regions], expected, atol=1e-12, rtol=1e-12)


@torch.no_grad()
def test_vilbert_is_its_equations() -> None:
    """One text with one picture, block by block."""
    model = make_model("vilbert").double()
    given = make_inputs(1, padded=False)
    inputs = {name: each.double() if each.is_floating_point() else each for name, each in given.items()}
    tokens, regions, boxes = inputs["tokens"][0], inputs["regions"][0], inputs["boxes"][0]
    x = model.embedding(tokens) + model.positions.weight[: len(tokens)] + model.segments.weight[0]
    x = model.embedding_norm(x)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    places = torch.cat([torch.tensor([[0, 0, 1, 1, 1]]), torch.cat([boxes, area[:, None]], 1)]).double()
    vectors = torch.cat([regions.mean(0, keepdim=True), regions])
    y = model.region_norm(model.region_projection(vectors) + model.location_projection(places))
    full = NoPadding()
    first, *connected = model.blocks
    x = first(x[None], full)[0]
    for connection, block, region_block in zip(model.connections, connected, model.region_blocks, strict=True):
        attention, heads = connection.attention, SETTINGS["joint_heads"]
        to_x = naive_answer(attention.first, attention.second, x, y, heads)
        to_y = naive_answer(attention.second, attention.first, y, x, heads)
        x, y = _after(connection.words, x, to_x), _after(connection.regions, y, to_y)
        x, y = block(x[None], full)[0], region_block(y[None], full)[0]
    joint = model.word_pooler(x[0]).relu() * model.region_pooler(y[0]).relu()
    both = model.read_both(**inputs)
    for found, expected in ((both.words[0], x), (both.regions[0], y[1:]), (both.joint[0], joint)):
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


@torch.no_grad()
def test_the_product_of_both_streams_is_not_zero_at_first() -> None:
    """Units of the joint vector that are zero for all inputs get no gradient: ViLBERT learnt nothing with them."""
    torch.manual_seed(0)
    settings = {**SETTINGS, "width": 64, "picture_width": 64, "picture_heads": 2, "joint_width": 64}
    model = load_class("vilbert")(build(VilbertConfig, {**settings, "initial": "scaled"}, where="model")).eval()
    joint = model.read_both(**make_inputs(5)).joint
    assert (joint > 0).float().mean() > 0.5
    assert (joint > 0).any(0).float().mean() > 0.9


def _after(part: Any, x: Tensor, answer: Tensor) -> Tensor:
    z = part.attention_norm(x + answer)
    return part.feed_forward_norm(z + part.feed_forward(z))


def test_two_answers_of_co_attention_can_be_watched() -> None:
    model, inputs = make_model("vilbert"), make_inputs(padded=False)
    names = ["connections.0.attention.first.probabilities", "connections.1.attention.second.probabilities"]
    with watching(model, *names) as seen, torch.no_grad():
        model(**inputs)
    assert seen[names[0]][0].shape == (3, 2, 9, 7)
    assert seen[names[1]][0].shape == (3, 2, 7, 9)
    for (weights,) in seen.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=rounding(terms=9), rtol=0)


def test_a_copy_computes_the_same(model: Any) -> None:
    inputs = make_inputs()
    assert torch.equal(copy.deepcopy(model)(**inputs).hidden, model(**inputs).hidden)


def test_region_width_is_that_of_the_settings() -> None:
    assert make_model("visualbert").region_projection.in_features == REGION_WIDTH + 5
    assert make_model("visualbert", locations=False).region_projection.in_features == REGION_WIDTH
