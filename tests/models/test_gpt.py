"""The original GPT against Hugging Face's implementation, and its published size."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

from lmlab.models import create
from lmlab.models.gpt import GPT, GPTConfig


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


def make(**values: int | float) -> GPT:
    fields = {"vocabulary": 97, "width": 24, "heads": 3, "layers": 2, "window": 20, "dropout": 0.0, **values}
    model = GPT(GPTConfig.model_validate(fields)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize(
    ("width", "heads", "layers", "window", "vocabulary"), [(24, 3, 2, 20, 97), (8, 1, 1, 5, 11), (60, 5, 3, 33, 501)]
)
def test_logits_agree_with_transformers(width: int, heads: int, layers: int, window: int, vocabulary: int) -> None:
    model = make(width=width, heads=heads, layers=layers, window=window, vocabulary=vocabulary)
    config = transformers.OpenAIGPTConfig(
        vocab_size=vocabulary, n_embd=width, n_head=heads, n_layer=layers, n_positions=window
    )
    reference = transformers.OpenAIGPTLMHeadModel(config).eval()
    names = {
        "embedding.weight": "transformer.tokens_embed.weight",
        "positions.weight": "transformer.positions_embed.weight",
    }
    for i in range(layers):
        for ours, theirs in {
            "attention.query_key_value": "attn.c_attn",
            "attention.projection": "attn.c_proj",
            "attention_norm": "ln_1",
            "feed_forward.expand": "mlp.c_fc",
            "feed_forward.contract": "mlp.c_proj",
            "feed_forward_norm": "ln_2",
        }.items():
            for kind in ("weight", "bias"):
                names[f"blocks.{i}.{ours}.{kind}"] = f"transformer.h.{i}.{theirs}.{kind}"
    assert set(names) | {"output.weight"} == set(model.state_dict())
    for ours, theirs in names.items():
        source = model.get_parameter(ours)
        transposed = isinstance(model.get_submodule(ours.rpartition(".")[0]), nn.Linear) and source.ndim == 2
        reference.get_parameter(theirs).data.copy_(source.t() if transposed else source)

    tokens = torch.randint(vocabulary, (3, window))
    with torch.no_grad():
        torch.testing.assert_close(model.logits(model(tokens).hidden), reference(tokens).logits, atol=1e-4, rtol=1e-4)


def test_published_parameter_count() -> None:
    with torch.device("meta"):
        model = create("gpt", {"vocabulary": 40478}, size="117M")
    assert sum(parameter.numel() for parameter in model.parameters()) == 116_534_784


def test_step_equals_forward() -> None:
    model = make()
    tokens = torch.randint(97, (2, 20))
    with torch.no_grad():
        expected = model.logits(model(tokens).hidden)
        logits, state = model.step(tokens[:, :6], model.start(2))
        torch.testing.assert_close(logits, expected[:, 5], atol=1e-4, rtol=1e-4)
        for at in range(6, 20):
            logits, state = model.step(tokens[:, at : at + 1], state)
            torch.testing.assert_close(logits, expected[:, at], atol=1e-4, rtol=1e-4)


def test_each_block_ends_normalised() -> None:
    """Post-norm: with the norms' first weights, what leaves a block has mean 0 and variance 1."""
    model = GPT(GPTConfig(vocabulary=30, width=64, heads=2, layers=3, window=16)).eval()
    hidden = model(torch.randint(30, (2, 16))).hidden
    torch.testing.assert_close(hidden.mean(-1), torch.zeros(2, 16), atol=1e-5, rtol=0)
    torch.testing.assert_close(hidden.var(-1, unbiased=False), torch.ones(2, 16), atol=0.05, rtol=0)


def test_gradients_reach_every_parameter() -> None:
    model = make(dropout=0.1).train()
    tokens = torch.randint(97, (4, 21))
    model.total_nll(model(tokens[:, :-1]).hidden.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in model.parameters())
