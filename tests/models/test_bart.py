"""BART against Hugging Face's implementation over random shapes, its published sizes, and its window."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmlab.models import create
from lmlab.models.bart import Bart, BartConfig

SAME = {
    "attention.projection": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.projection": "encoder_attn.out_proj",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "feed_forward.expand": "fc1",
    "feed_forward.contract": "fc2",
    "feed_forward_norm": "final_layer_norm",
}
JOINED = {
    "attention.query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "cross_attention.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def make(**values: Any) -> Bart:
    fields = {"vocabulary": 41, "width": 24, "heads": 3, "layers": 2, "inner": 36, "window": 12, "dropout": 0.0}
    return Bart(BartConfig.model_validate({**fields, **values})).eval()


def random_reference(seed: int) -> Any:
    """A BART of `transformers` of random shape and weights."""
    transformers = pytest.importorskip("transformers")
    chance = random.Random(seed)
    heads = chance.choice([1, 2, 3, 4])
    config = transformers.BartConfig(
        vocab_size=chance.randint(12, 90), d_model=heads * chance.choice([4, 8, 12]),
        encoder_layers=chance.randint(1, 3), decoder_layers=chance.randint(1, 3),
        encoder_attention_heads=heads, decoder_attention_heads=heads,
        encoder_ffn_dim=(inner := chance.randint(4, 60)), decoder_ffn_dim=inner,
        max_position_embeddings=chance.randint(8, 20), scale_embedding=chance.random() < 0.5,
        activation_function=chance.choice(["gelu", "gelu", "relu"]), dropout=0.0,
    )  # fmt: skip
    reference = transformers.BartForConditionalGeneration(config).eval()
    torch.manual_seed(seed)
    for parameter in reference.parameters():
        nn.init.normal_(parameter, std=0.3)
    return reference


def as_ours(reference: Any) -> Bart:
    """Our BART with the same weights; the first two positions of `transformers` stand for nothing."""
    theirs = reference.config
    model = make(
        vocabulary=theirs.vocab_size, width=theirs.d_model, heads=theirs.encoder_attention_heads,
        layers=theirs.encoder_layers, decoder_layers=theirs.decoder_layers, inner=theirs.encoder_ffn_dim,
        window=theirs.max_position_embeddings, scale=theirs.scale_embedding, activation=theirs.activation_function,
    )  # fmt: skip
    state = reference.state_dict()
    weights = {"embedding.weight": state["model.shared.weight"], "output.weight": state["model.shared.weight"]}
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        weights[f"{side}.positions.weight"] = state[f"model.{side}.embed_positions.weight"][2:]
        for kind in ("weight", "bias"):
            weights[f"{side}.embedding_norm.{kind}"] = state[f"model.{side}.layernorm_embedding.{kind}"]
            for number in range(len(stack.blocks)):
                ours, layer = f"{side}.blocks.{number}", f"model.{side}.layers.{number}"
                for name, other in SAME.items():
                    if f"{layer}.{other}.{kind}" in state:
                        weights[f"{ours}.{name}.{kind}"] = state[f"{layer}.{other}.{kind}"]
                for name, others in JOINED.items():
                    if f"{layer}.{others[0]}.{kind}" in state:
                        parts = [state[f"{layer}.{other}.{kind}"] for other in others]
                        weights[f"{ours}.{name}.{kind}"] = torch.cat(parts)
    model.load_state_dict(weights)
    return model


def pairs(model: Bart, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    most = model.window
    lengths = torch.randint(1, most + 1, (5,), generator=generator)
    source = torch.randint(model.vocabulary, (5, int(lengths.max())), generator=generator)
    return source, lengths, torch.randint(model.vocabulary, (5, most), generator=generator)


@pytest.mark.parametrize("seed", range(24))
@torch.no_grad()
def test_agrees_with_transformers(seed: int) -> None:
    reference = random_reference(seed)
    model = as_ours(reference)
    source, lengths, target = pairs(model, seed=seed)
    mask = (torch.arange(source.shape[1]) < lengths[:, None]).long()
    expected = reference(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    ours = model.logits(model(target, source=source, lengths=lengths).hidden)
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)

    state = model.begin(model.encode(source=source, lengths=lengths))
    for at in range(target.shape[1]):
        logits, state = model.step(target[:, at : at + 1], state)
        torch.testing.assert_close(logits, expected[:, at], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("size", "parameters", "published"), [("base", 139_417_344, 139e6), ("large", 406_287_360, 406e6)]
)
def test_published_parameter_counts(size: str, parameters: int, published: float) -> None:
    """Those of the released models, but for two positions of each stack (of 1026) that are never used."""
    with torch.device("meta"):
        model = create("bart", {"vocabulary": 50265}, size=size)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert parameters == pytest.approx(published, rel=0.01)


def test_first_weights() -> None:
    model = Bart(BartConfig(vocabulary=300, width=96, heads=2, layers=1, inner=96, window=64))
    block = model.decoder.blocks[0]
    for weight in (model.embedding.weight, block.cross_attention.key_value.weight, model.encoder.positions.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert block.cross_attention.query.bias.abs().max() == 0


def test_more_than_the_window_is_refused() -> None:
    model = make()
    short, long = torch.zeros(1, 12, dtype=torch.long), torch.zeros(1, 13, dtype=torch.long)
    with pytest.raises(ValueError, match="do not fit into a window of 12"):
        model(short, source=long)
    with pytest.raises(ValueError, match="do not fit into a window of 12"):
        model(long, source=short)
    with torch.no_grad():
        _, state = model.step(short, model.begin(model.encode(source=short)))
        with pytest.raises(ValueError, match="1 tokens after the 12 already read do not fit into a window of 12"):
            model.step(short[:, :1], state)
