"""BERT against Hugging Face's implementation, its published sizes, padding, direction and heads."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from encoders import (
    attention_weights_of,
    batch_of,
    block_weights,
    embedding_weights,
    filler,
    head_weights,
    random_shapes,
    renamed,
    score_pairs,
    their_sizes,
)
from lmlab.config import build
from lmlab.layers.watching import watching
from lmlab.models import create
from lmlab.models.abilities import Steps, ability
from lmlab.models.bert import Bert, BertConfig

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def make(**values: Any) -> Bert:
    """A small model in evaluation mode, whose biases and norms are not trivial."""
    fields = {"vocabulary": 97, "width": 24, "heads": 3, "layers": 2, "window": 20, "dropout": 0.0, **values}
    model = Bert(BertConfig.model_validate(fields)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def reference_of(shape: dict[str, int], *, pooler: bool = True, **settings: Any) -> nn.Module:
    """Their model of the same shape, with random weights, biases and norms."""
    config = transformers.BertConfig(
        **their_sizes(shape),
        **settings,
    )
    cls = transformers.BertForPreTraining if pooler else transformers.BertForMaskedLM
    reference: nn.Module = cls(config).eval()
    for parameter in reference.parameters():
        nn.init.normal_(parameter, std=0.3)
    return reference


def copy_weights(reference: nn.Module, model: Bert) -> None:
    """Every weight of ours from theirs."""
    theirs = reference.state_dict()
    weights = {
        **embedding_weights(theirs, "bert.embeddings"),
        **head_weights(theirs, "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
        "output.softmax.bias": theirs["cls.predictions.bias"],
    }
    if model.pooler is not None:
        weights |= renamed(theirs, {"pooler": "bert.pooler.dense", "pair": "cls.seq_relationship"})
    for i in range(model.config.layers):
        weights |= block_weights(theirs, f"blocks.{i}", f"bert.encoder.layer.{i}")
    model.load_state_dict(weights)


@pytest.mark.parametrize("number", range(24))
@torch.no_grad()
def test_agrees_with_transformers(number: int) -> None:
    """Scores of tokens and of pairs, with and without padding, for random configurations."""
    shape = random_shapes(24, seed=11)[number]
    pooler, gelu = number % 3 > 0, "exact" if number % 4 else "tanh"
    reference = reference_of(shape, pooler=pooler, hidden_act="gelu" if gelu == "exact" else "gelu_new")
    model = make(**shape, pooler=pooler, pairs=pooler, gelu=gelu)
    copy_weights(reference, model)
    tokens, segments, lengths, real = batch_of(shape)
    for given, mask in ((None, None), (lengths, real)):
        theirs = reference(tokens, token_type_ids=segments, attention_mask=mask)
        hidden = model(tokens, segments=segments, lengths=given).hidden
        kept = torch.ones_like(real).bool() if mask is None else mask.bool()
        scores = theirs["prediction_logits" if pooler else "logits"]
        torch.testing.assert_close(filler(model).logits(hidden)[kept], scores[kept], atol=1e-4, rtol=1e-4)
        if pooler:
            torch.testing.assert_close(
                score_pairs(model, hidden), theirs["seq_relationship_logits"], atol=1e-4, rtol=1e-4
            )
        assert mask is None or not hidden[~kept].any()


@torch.no_grad()
def test_every_layer_agrees_with_transformers() -> None:
    shape = {"vocabulary": 50, "width": 12, "heads": 2, "layers": 3, "window": 9, "inner": 31, "segments": 2}
    reference, model = reference_of(shape), make(**shape)
    copy_weights(reference, model)
    tokens, segments, lengths, real = batch_of(shape)
    theirs = reference(tokens, token_type_ids=segments, attention_mask=real, output_hidden_states=True).hidden_states
    layers = list(model.layers(tokens=tokens, segments=segments, lengths=lengths))
    assert len(layers) == len(theirs) == 4
    for ours, their in zip(layers, theirs, strict=True):
        torch.testing.assert_close(ours, their * real[..., None], atol=1e-5, rtol=1e-5)
    assert torch.equal(layers[-1], model(tokens, segments=segments, lengths=lengths).hidden)


@pytest.mark.parametrize(("size", "parameters"), [("base", 109_482_240), ("large", 335_141_888)])
def test_published_parameter_counts(size: str, parameters: int) -> None:
    """The paper rounds, and leaves out the heads that only pre-training needs."""
    with torch.device("meta"):
        model = create("bert", {"vocabulary": 30522}, size=size)
        multilingual = create("mbert", {"vocabulary": 119_547}, size="base")
    heads = ("output.transform", "output.norm", "output.softmax.bias", "pair")
    counted = {name: p.numel() for name, p in model.named_parameters() if not name.startswith(heads)}
    assert sum(counted.values()) == parameters
    assert sum(p.numel() for name, p in multilingual.named_parameters() if not name.startswith(heads)) == 177_853_440


@pytest.mark.parametrize("direction", ["both", "left-to-right"])
@pytest.mark.parametrize("training", [False, True])
def test_padding_changes_nothing(direction: str, training: bool) -> None:
    """Packed, and (while somebody watches) masked, a text gives what it gives alone, whatever stands after it."""
    model = make(direction=direction).train(training)
    tokens = torch.randint(97, (6, 20))
    segments = torch.randint(2, (6, 20))
    lengths = torch.tensor([7, 20, 1, 7, 13, 2])
    changed = torch.where(torch.arange(20) < lengths[:, None], tokens, (tokens + 1) % 97)
    packed = model(tokens, segments=segments, lengths=lengths).hidden
    assert torch.equal(packed, model(changed, segments=segments, lengths=lengths).hidden)
    with watching(model, "blocks.1") as seen:
        masked = model(tokens, segments=segments, lengths=lengths).hidden
    assert seen["blocks.1"][0].shape == (6, 20, 24)
    torch.testing.assert_close(masked, packed, atol=1e-5, rtol=1e-5)
    for row, length in enumerate(lengths.tolist()):
        alone = model(tokens[row : row + 1, :length], segments=segments[row : row + 1, :length]).hidden[0]
        torch.testing.assert_close(packed[row, :length], alone, atol=1e-5, rtol=1e-5)
        assert not packed[row, length:].any()


def test_gradients_of_packed_rows_are_those_of_masked_ones() -> None:
    model = make().train()
    tokens, lengths = torch.randint(97, (4, 20)), torch.tensor([3, 20, 11, 3])
    targets = torch.randn(4, 20, 24)
    found = []
    for watched in (False, True):
        with watching(model, "embedding") if watched else nullcontext():
            (model(tokens, lengths=lengths).hidden * targets).sum().backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        model.zero_grad()
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, 4], "lengths of shape \\[2\\] for 3 rows"),
        ([0, 4, 2], "from 0 to 4 for rows of 5 positions"),
        ([6, 1, 1], "from 1 to 6 for rows of 5 positions"),
    ],
)
def test_wrong_lengths_are_refused(lengths: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()(torch.zeros(3, 5, dtype=torch.long), lengths=torch.tensor(lengths))


@torch.no_grad()
def test_both_sides_matter_unless_it_reads_left_to_right() -> None:
    tokens = torch.randint(97, (2, 12))
    later, earlier = tokens.clone(), tokens.clone()
    later[:, 8] = (later[:, 8] + 1) % 97
    earlier[:, 2] = (earlier[:, 2] + 1) % 97
    for direction in ("both", "left-to-right"):
        model = make(direction=direction)
        before = model(tokens).hidden
        change = (model(later).hidden - before).abs().amax((0, 2))
        assert (change[8:] > 1e-3).all()
        assert ((change[:8] > 1e-3) == (direction == "both")).all()
        assert ((model(earlier).hidden - before).abs().amax((0, 2))[3:] > 1e-3).all()


def test_weights_of_attention_can_be_watched() -> None:
    model = make(attention_dropout=0.0)
    tokens, lengths = torch.randint(97, (3, 9)), torch.tensor([4, 9, 1])
    quiet = model(tokens, lengths=lengths).hidden
    place = "blocks.0.attention.probabilities"
    with watching(model, place) as seen:
        torch.testing.assert_close(model(tokens, lengths=lengths).hidden, quiet, atol=1e-5, rtol=1e-5)
    (weights,) = seen[place]
    assert weights.shape == (3, 3, 9, 9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 3, 9))
    assert not weights[0, :, :, 4:].any()
    assert not weights[2, :, :, 1:].any()


def test_segments_are_distinguished_only_where_there_are_two() -> None:
    tokens = torch.randint(97, (2, 6))
    segments = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    two, one = make(), make(segments=1)
    assert (two(tokens).hidden - two(tokens, segments=segments).hidden).abs().max() > 1e-2
    assert torch.equal(two(tokens).hidden, two(tokens, segments=torch.zeros_like(segments)).hidden)
    assert torch.equal(one(tokens).hidden, one(tokens, segments=segments).hidden)


def test_pair_head_and_what_it_needs() -> None:
    model = make()
    hidden = model(torch.randint(97, (5, 6))).hidden
    assert model.pair is not None
    assert model.pooler is not None
    pooled = torch.tanh(hidden[:, 0] @ model.pooler.weight.T + model.pooler.bias)
    torch.testing.assert_close(score_pairs(model, hidden), pooled @ model.pair.weight.T + model.pair.bias)
    with pytest.raises(ValueError, match="cannot classify sentence pairs"):
        score_pairs(make(pairs=False), hidden)
    with pytest.raises(ValueError, match="no pooler"):
        make(pairs=False, pooler=False).pool(hidden)
    with pytest.raises(ValueError, match=r"model\.pairs = True: the sentence-pair head needs the pooler"):
        build(BertConfig, {"vocabulary": 9, "pooler": False, "pairs": True}, where="model")


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("padded", [False, True])
def test_gradients_reach_every_parameter(dropout: float, padded: bool) -> None:
    model = make(dropout=dropout).train()
    tokens = torch.randint(97, (8, 20))
    lengths = torch.arange(13, 21) if padded else None
    hidden = model(tokens, segments=torch.randint(2, tokens.shape), lengths=lengths).hidden
    loss = filler(model).total_nll(hidden[:, 2:5].flatten(0, 1), tokens[:, 2:5].flatten())
    (loss + score_pairs(model, hidden)[:, 0].sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_head_gives_one_distribution_by_three_ways() -> None:
    model = make()
    hidden, targets = torch.randn(7, 24), torch.randint(97, (7,))
    nats = -filler(model).logits(hidden).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(filler(model).nll(hidden, targets), nats, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(filler(model).total_nll(hidden, targets), nats.sum(), atol=1e-4, rtol=1e-5)


def test_dropout_only_in_training() -> None:
    model = make(dropout=0.5)
    tokens, lengths = torch.randint(97, (3, 10)), torch.tensor([10, 4, 4])
    for given in (None, lengths):
        model.eval()
        assert torch.equal(model(tokens, lengths=given).hidden, model(tokens, lengths=given).hidden)
        model.train()
        assert (model(tokens, lengths=given).hidden - model(tokens, lengths=given).hidden).abs().max() > 1e-3


def test_it_has_no_next_token_and_a_window() -> None:
    model = make()
    assert ability(model, Steps) is None
    with pytest.raises(ValueError, match="do not fit into a window of 20"):
        model(torch.zeros(1, 21, dtype=torch.long))


def test_first_weights() -> None:
    model = Bert(BertConfig(vocabulary=300, width=96, heads=2, layers=2, window=32))
    assert model.pooler is not None
    for weight in (model.embedding.weight, model.segments.weight, model.pooler.weight, model.output.transform.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert model.output.transform.bias.abs().max() == 0
    assert model.output.softmax.weight is model.embedding.weight


def test_flops_as_torch_counts_them() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = make(window=16, inner=50)
    tokens = torch.randint(97, (3, 16))
    with FlopCounterMode(display=False) as counter, watching(model, *attention_weights_of(model)):
        hidden = model(tokens).hidden
    assert counter.get_total_flops() == pytest.approx(model.body_flops(16) * tokens.numel())
    with FlopCounterMode(display=False) as counter:
        filler(model).logits(hidden[:, :5])
    assert counter.get_total_flops() == pytest.approx(model.output.flops() * 15)
