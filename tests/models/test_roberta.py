"""RoBERTa and XLM-R against Hugging Face's implementation, and their published sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from encoders import batch_of, block_weights, embedding_weights, filler, head_weights, random_shapes
from lmlab.models import create
from lmlab.models.roberta import Roberta, RobertaConfig

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


@pytest.mark.parametrize("number", range(22))
@torch.no_grad()
def test_agrees_with_transformers(number: int) -> None:
    """Scores with and without padding, whatever the number of the padding token, for random configurations."""
    shape = random_shapes(22, seed=12)[number]
    pad = number % 3
    cls, config_cls, ours = (
        (transformers.RobertaForMaskedLM, transformers.RobertaConfig, Roberta)
        if number % 2
        else (transformers.XLMRobertaForMaskedLM, transformers.XLMRobertaConfig, Roberta)
    )
    reference = cls(
        config_cls(
            vocab_size=shape["vocabulary"],
            hidden_size=shape["width"],
            num_attention_heads=shape["heads"],
            num_hidden_layers=shape["layers"],
            max_position_embeddings=shape["window"] + pad + 1,
            intermediate_size=shape["inner"],
            type_vocab_size=shape["segments"],
            layer_norm_eps=1e-5,
            pad_token_id=pad,
        )
    ).eval()
    for parameter in reference.parameters():
        nn.init.normal_(parameter, std=0.3)
    model = ours(RobertaConfig(**shape, offset=pad + 1, dropout=0.0)).eval()
    theirs = reference.state_dict()
    weights = {
        **embedding_weights(theirs, "roberta.embeddings"),
        **head_weights(theirs, "lm_head.dense", "lm_head.layer_norm"),
        "output.softmax.bias": theirs["lm_head.bias"],
    }
    for i in range(shape["layers"]):
        weights |= block_weights(theirs, f"blocks.{i}", f"roberta.encoder.layer.{i}")
    model.load_state_dict(weights)
    tokens, segments, lengths, real = batch_of(shape)
    tokens_with_padding = torch.where(real.bool(), tokens, pad)
    expected = reference(tokens, token_type_ids=segments).logits
    found = filler(model).logits(model(tokens, segments=segments).hidden)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    expected = reference(tokens_with_padding, token_type_ids=segments, attention_mask=real).logits[real.bool()]
    hidden = model(tokens_with_padding, segments=segments, lengths=lengths).hidden
    torch.testing.assert_close(filler(model).logits(hidden)[real.bool()], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "size", "vocabulary", "parameters", "published"),
    [
        ("roberta", "base", 50265, 124_697_433, 125e6),
        ("roberta", "large", 50265, 355_412_057, 355e6),
        ("xlm-r", "base", 250_002, 278_295_186, 270e6),
        ("xlm-r", "large", 250_002, 560_142_482, 550e6),
    ],
)
def test_published_parameter_counts(name: str, size: str, vocabulary: int, parameters: int, published: float) -> None:
    with torch.device("meta"):
        model = create(name, {"vocabulary": vocabulary}, size=size)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert parameters == pytest.approx(published, rel=0.04)


def test_what_changed_against_bert() -> None:
    model = create("roberta", {"vocabulary": 50}, size="tiny")
    assert isinstance(model, Roberta)
    assert model.pooler is None
    assert model.pair is None
    assert len(model.segments.weight) == 1
    assert len(model.positions.weight) == model.window + 2
    model(torch.zeros(1, model.window, dtype=torch.long)).hidden.sum().backward()
    gradient = model.positions.weight.grad
    assert gradient is not None
    assert not gradient[:2].any()


def test_gradients_reach_every_parameter() -> None:
    values: dict[str, Any] = {"vocabulary": 40, "width": 12, "heads": 2, "layers": 2, "window": 8}
    model = Roberta(RobertaConfig(**values)).train()
    tokens = torch.randint(40, (4, 8))
    filler(model).total_nll(model(tokens).hidden.flatten(0, 1), tokens.flatten()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
