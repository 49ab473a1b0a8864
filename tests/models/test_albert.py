"""ALBERT against Hugging Face's implementation, its published sizes, and its one block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from encoders import (
    attention_weights_of,
    batch_of,
    embedding_weights,
    filler,
    head_weights,
    random_shapes,
    renamed,
    score_pairs,
    their_sizes,
)
from lmlab.layers.watching import watching
from lmlab.models import create
from lmlab.models.albert import Albert, AlbertConfig
from lmlab.runs.model_files import model_tensors
from lmlab.runs.storage import read_tensors, write_tensors

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def make(**values: Any) -> Albert:
    fields = {"vocabulary": 97, "width": 24, "heads": 3, "layers": 3, "window": 20, "embedding_width": 10, **values}
    return Albert(AlbertConfig.model_validate(fields))


@pytest.mark.parametrize("number", range(22))
@torch.no_grad()
def test_agrees_with_transformers(number: int) -> None:
    """Scores of tokens and of pairs, with and without padding, for random configurations."""
    shape = random_shapes(22, seed=13)[number]
    embedding_width = shape["width"] if number % 7 == 0 else 1 + 5 * number % 13
    gelu, act = ("tanh", "gelu_new") if number % 3 else ("exact", "gelu")
    reference = transformers.AlbertForPreTraining(
        transformers.AlbertConfig(
            **their_sizes(shape),
            embedding_size=embedding_width,
            hidden_act=act,
        )
    ).eval()
    for parameter in reference.parameters():
        nn.init.normal_(parameter, std=0.3)
    theirs = reference.state_dict()
    layer = "albert.encoder.albert_layer_groups.0.albert_layers.0"
    names = {
        "projection": "albert.encoder.embedding_hidden_mapping_in",
        "pooler": "albert.pooler",
        "pair": "sop_classifier.classifier",
        "blocks.0.attention.projection": f"{layer}.attention.dense",
        "blocks.0.attention_norm": f"{layer}.attention.LayerNorm",
        "blocks.0.feed_forward.expand": f"{layer}.ffn",
        "blocks.0.feed_forward.contract": f"{layer}.ffn_output",
        "blocks.0.feed_forward_norm": f"{layer}.full_layer_layer_norm",
    }
    weights = {
        **embedding_weights(theirs, "albert.embeddings"),
        **head_weights(theirs, "predictions.dense", "predictions.LayerNorm"),
        **renamed(theirs, names),
        "output.softmax.bias": theirs["predictions.bias"],
    }
    for kind in ("weight", "bias"):
        parts = [theirs[f"{layer}.attention.{part}.{kind}"] for part in ("query", "key", "value")]
        weights[f"blocks.0.attention.query_key_value.{kind}"] = torch.cat(parts)
    model = make(**shape, embedding_width=embedding_width, gelu=gelu).eval()
    model.load_state_dict(weights)
    tokens, segments, lengths, real = batch_of(shape)
    for given, mask in ((None, None), (lengths, real)):
        expected = reference(tokens, token_type_ids=segments, attention_mask=mask)
        hidden = model(tokens, segments=segments, lengths=given).hidden
        kept = torch.ones_like(real).bool() if mask is None else mask.bool()
        torch.testing.assert_close(
            filler(model).logits(hidden)[kept], expected.prediction_logits[kept], atol=1e-4, rtol=1e-4
        )
        torch.testing.assert_close(score_pairs(model, hidden), expected.sop_logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("size", "parameters", "published"),
    [
        ("base", 11_683_584, 12e6),
        ("large", 17_683_968, 18e6),
        ("xlarge", 58_724_864, 60e6),
        ("xxlarge", 222_595_584, 235e6),
    ],
)
def test_published_parameter_counts(size: str, parameters: int, published: float) -> None:
    """Those of the published weights; the paper prints 235M for the largest, which has 223M."""
    with torch.device("meta"):
        model = create("albert", {"vocabulary": 30000}, size=size)
    heads = ("output.transform", "output.norm", "output.softmax.bias", "pair")
    assert sum(p.numel() for name, p in model.named_parameters() if not name.startswith(heads)) == parameters
    assert parameters == pytest.approx(published, rel=0.06)


def test_layers_share_one_block(tmp_path: Path) -> None:
    """More layers have no more weights, in memory or in the file, and compute something else."""
    shallow, deep = make(layers=1).eval(), make(layers=7).eval()
    deep.load_state_dict(shallow.state_dict())
    assert len(deep.blocks) == 1
    path = tmp_path / "model.safetensors"
    write_tensors(path, model_tensors(deep))
    stored = read_tensors(path)
    assert sum(tensor.numel() for tensor in stored.values()) == sum(p.numel() for p in shallow.parameters())
    assert sum(name.startswith("blocks.") for name in stored) == 12
    tokens = torch.randint(97, (2, 9))
    assert (shallow(tokens).hidden - deep(tokens).hidden).abs().max() > 1e-3
    x = list(deep.layers(tokens=tokens))[3]
    by_hand = x
    from lmlab.layers.padding import NoPadding

    for _ in range(4):
        by_hand = deep.blocks[0](by_hand, NoPadding())
    torch.testing.assert_close(deep(tokens).hidden, by_hand)


def test_gradients_reach_every_parameter() -> None:
    model = make(dropout=0.1).train()
    tokens = torch.randint(97, (4, 20))
    hidden = model(tokens, segments=torch.randint(2, tokens.shape)).hidden
    loss = filler(model).total_nll(hidden.flatten(0, 1), tokens.flatten()) + score_pairs(model, hidden)[:, 0].sum()
    loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_flops_as_torch_counts_them() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = make().eval()
    tokens = torch.randint(97, (3, 20))
    with FlopCounterMode(display=False) as counter, watching(model, *attention_weights_of(model)):
        hidden = model(tokens).hidden
    assert counter.get_total_flops() == pytest.approx(model.body_flops(20) * tokens.numel())
    with FlopCounterMode(display=False) as counter:
        filler(model).logits(hidden)
    assert counter.get_total_flops() == pytest.approx(model.output.flops() * tokens.numel())
