"""The ladder: each rung against its equations, written out for one text and one query at a time."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.config import build
from lmlab.layers.positions import sinusoids
from lmlab.models import LINEAGE
from lmlab.models.attention_lm import AttentionLM, AttentionLMConfig

RUNGS = [
    {},
    {"positions": "learned"},
    {"positions": "sinusoidal"},
    {"positions": "learned", "heads": 3},
    {"positions": "learned", "heads": 3, "tricks": "post"},
    {"positions": "sinusoidal", "heads": 2, "tricks": "pre"},
    {"positions": "learned", "heads": 3, "tricks": "post", "layers": 3},
    {"positions": "learned", "heads": 3, "tricks": "pre", "layers": 3},
]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(4)


def make(**values: object) -> AttentionLM:
    fields = {"vocabulary": 31, "width": 12, "inner": 18, "window": 14, **values}
    model = AttentionLM(AttentionLMConfig.model_validate(fields)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def attention(block: nn.Module, u: list[Tensor], heads: int) -> Tensor:
    """[SelfAttn(q⁽¹⁾, K⁽¹⁾, V⁽¹⁾); …] with the query of the last vector."""
    width = len(u[0])
    d = width // heads
    w_q, w_k, w_v = block.attention.query_key_value.weight.split(width)
    found = []
    for h in range(heads):
        rows = slice(h * d, (h + 1) * d)
        q = w_q[rows] @ u[-1]
        scores = torch.stack([q @ (w_k[rows] @ x) for x in u]) / math.sqrt(d)
        found.append(sum(p * (w_v[rows] @ x) for p, x in zip(scores.softmax(0), u, strict=True)))
    return torch.cat(found)


def expected_scores(model: AttentionLM, tokens: list[int]) -> Tensor:
    """softmax's input after the last of `tokens`, by the deck's equations."""
    config = model.config
    layer = [model.embedding.weight[token] for token in tokens]
    if config.positions == "learned":
        layer = [x + model.positions.weight[j] for j, x in enumerate(layer)]
    if config.positions == "sinusoidal":
        layer = [x + sinusoids(torch.tensor(j), config.width) for j, x in enumerate(layer)]
    for block in model.blocks:
        above = []
        for i in range(len(layer)):
            u = layer[: i + 1]
            if config.tricks == "none":
                z = attention(block, u, config.heads)
                hidden = block.feed_forward[0]
                above.append(torch.tanh(hidden.weight @ z + hidden.bias))
                continue
            norm1, norm2 = block.attention_norm, block.feed_forward_norm
            up, down = block.feed_forward.expand, block.feed_forward.contract

            def inner(z: Tensor, up: nn.Linear = up, down: nn.Linear = down) -> Tensor:
                a = up.weight @ z + up.bias
                gelu = a * 0.5 * (1 + torch.erf(a / math.sqrt(2)))
                return down.weight @ gelu + down.bias

            if config.tricks == "post":
                z = norm1(attention(block, u, config.heads) + u[-1])
                above.append(norm2(inner(z) + z))
            else:
                z = attention(block, [norm1(x) for x in u], config.heads) + u[-1]
                above.append(inner(norm2(z)) + z)
        layer = above
    scores = model.output.weight @ layer[-1]
    return scores if model.output.bias is None else scores + model.output.bias


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: "-".join(map(str, rung.values())) or "first")
def test_each_rung_is_its_equations(rung: dict[str, object]) -> None:
    model = make(**rung)
    tokens = torch.randint(31, (2, 9))
    with torch.no_grad():
        scores = model.logits(model(tokens).hidden)
        for row, at in itertools.product(range(2), (0, 1, 8)):
            expected = expected_scores(model, tokens[row, : at + 1].tolist())
            torch.testing.assert_close(scores[row, at], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: "-".join(map(str, rung.values())) or "first")
def test_step_equals_forward(rung: dict[str, object]) -> None:
    model = make(**rung)
    tokens = torch.randint(31, (3, 14))
    with torch.no_grad():
        expected = model.logits(model(tokens).hidden)
        state, at = model.start(3), 0
        for part in tokens.split([5, 1, 1, 4, 3], dim=1):
            logits, state = model.step(part, state)
            at += part.shape[1]
            torch.testing.assert_close(logits, expected[:, at - 1], atol=1e-4, rtol=1e-4)


def test_without_positions_order_of_the_past_does_not_matter() -> None:
    tokens = torch.tensor([[3, 9, 4, 7], [4, 3, 9, 7]])
    with torch.no_grad():
        hidden = make().forward(tokens).hidden[:, -1]
        torch.testing.assert_close(hidden[0], hidden[1], atol=1e-5, rtol=1e-5)
        hidden = make(positions="learned").forward(tokens).hidden[:, -1]
        assert (hidden[0] - hidden[1]).abs().max() > 1e-2


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: "-".join(map(str, rung.values())) or "first")
def test_gradients_reach_every_parameter(rung: dict[str, object]) -> None:
    model = make(**rung).train()
    tokens = torch.randint(31, (6, 15))
    model.total_nll(model(tokens[:, :-1]).hidden.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_a_stack_needs_the_tricks() -> None:
    with pytest.raises(ValueError, match=r"model\.tricks = 'none': several layers need"):
        build(AttentionLMConfig, {"vocabulary": 9, "layers": 2, "tricks": "none"}, where="model")
    with pytest.raises(ValueError, match=r"model\.tricks = 'none'"):
        build(AttentionLMConfig, {"vocabulary": 9, "layers": 2}, where="model")


def test_sizes_are_valid_and_learn_a_repeated_text() -> None:
    text = torch.tensor([[5, 1, 4, 2, 3, 0, 5, 1, 4, 2, 3, 0, 5, 1, 4, 2, 3, 0]])
    for size in ("tiny", "small"):
        values = {"vocabulary": 6, **LINEAGE["attention-lm"].sizes[size]}
        model = AttentionLM(build(AttentionLMConfig, values, where="model"))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(120):
            loss = F.cross_entropy(model.logits(model(text[:, :-1]).hidden).flatten(0, 1), text[0, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert loss.item() < 0.5, size  # guessing gives 1.79
    build(AttentionLMConfig, {"vocabulary": 6, **LINEAGE["attention-lm"].sizes["base"]}, where="model")
