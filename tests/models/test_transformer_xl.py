"""Transformer-XL: the four terms pair by pair, the relative shift, and memory against one long pass."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from lmlab.layers.attention.relative import Distances, RelativeAttention, align
from lmlab.layers.positions import sinusoids
from lmlab.layers.watching import watching
from lmlab.models.states import detach_state, reorder_state
from lmlab.models.transformer_xl import TransformerXL, TransformerXLConfig


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(5)


def make(**values: object) -> TransformerXL:
    fields = {
        "vocabulary": 53, "width": 12, "heads": 3, "layers": 3, "inner": 20, "memory": 64, "dropout": 0.0, **values,
    }  # fmt: skip
    model = TransformerXL(TransformerXLConfig.model_validate(fields)).eval()
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            nn.init.normal_(parameter, std=0.3)
    return model


def pairwise(layer: RelativeAttention, x: Tensor, memory: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Attention of one text by the paper's equation, a pair (i, j) at a time."""
    inputs = torch.cat((memory, x))
    past, width = len(memory), x.shape[1]
    d = width // layer.heads
    w_k, w_v = layer.key_value.weight.split(width)
    rows = []
    for i in range(len(x)):
        heads = []
        for h in range(layer.heads):
            part = slice(h * d, (h + 1) * d)
            q = layer.query.weight[part] @ x[i]
            scores = []
            for j in range(past + i + 1):
                k = w_k[part] @ inputs[j]
                r = layer.distance.weight[part] @ sinusoids(torch.tensor(past + i - j), width)
                scores.append((q @ k + q @ r + u[h] @ k + v[h] @ r) / math.sqrt(d))
            p = torch.stack(scores).softmax(0)
            heads.append(sum(p[j] * (w_v[part] @ inputs[j]) for j in range(past + i + 1)))
        rows.append(layer.projection.weight @ torch.cat(heads))
    return torch.stack(rows)


@pytest.mark.parametrize(("past", "length"), [(0, 1), (0, 5), (4, 1), (3, 6), (7, 2)])
def test_attention_is_the_four_terms(past: int, length: int) -> None:
    layer = RelativeAttention(12, 3).eval()
    u, v = torch.randn(3, 4), torch.randn(3, 4)
    memory, x = torch.randn(2, past, 12), torch.randn(2, length, 12)
    keys_values = layer.key_value(torch.cat((memory, x), 1))
    found = layer(x, keys_values, Distances(past + length + 3, content_bias=u, position_bias=v))
    expected = torch.stack([pairwise(layer, x[b], memory[b], u, v) for b in range(2)])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 5), (4, 4), (3, 7)])
def test_align_puts_each_distance_under_its_key(queries: int, keys: int) -> None:
    by_distance = torch.arange(keys, -1, -1).expand(2, queries, keys + 1) + 1000 * torch.arange(queries)[:, None]
    aligned = align(by_distance)
    for i in range(queries):
        for j in range(keys - queries + i + 1):
            assert aligned[0, i, j] == 1000 * i + keys - queries + i - j


def test_the_watched_weights_are_distributions_over_memory_and_past() -> None:
    model = make()
    tokens = torch.randint(53, (2, 9))
    quiet = make()
    quiet.load_state_dict(model.state_dict())
    with torch.no_grad():
        with watching(model, "blocks.1.attention.probabilities") as watched:
            _, state = model(tokens[:, :4])
            hidden = model(tokens[:, 4:], state=state).hidden
        torch.testing.assert_close(hidden, quiet(tokens[:, 4:], state=quiet(tokens[:, :4]).state).hidden)
    seen = watched["blocks.1.attention.probabilities"]
    assert tuple(seen[1].shape) == (2, 3, 5, 9)
    torch.testing.assert_close(seen[1].sum(-1), torch.ones(2, 3, 5))
    assert (seen[1][..., :4] > 0).all()  # each token sees the whole memory
    assert seen[1].triu(5).abs().max() == 0


@pytest.mark.parametrize("cuts", [[16, 16, 16], [1] * 48, [5, 20, 1, 1, 21]])
def test_segments_with_memory_equal_one_long_pass(cuts: list[int]) -> None:
    model = make()
    tokens = torch.randint(53, (2, 48))
    with torch.no_grad():
        whole = model(tokens).hidden
        state, parts = None, []
        for part in tokens.split(cuts, dim=1):
            hidden, state = model(part, state=state)
            parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-4, rtol=1e-4)


def test_hidden_memory_of_training_is_the_projected_memory_of_evaluation() -> None:
    model = make()
    tokens = torch.randint(53, (2, 24))
    with torch.no_grad():
        expected = model(tokens).hidden[:, 12:]
        model.train()
        _, state = model(tokens[:, :12])
        assert state.layers[0].shape == (2, 12, 12)
        torch.testing.assert_close(model(tokens[:, 12:], state=state).hidden, expected, atol=1e-4, rtol=1e-4)
        model.eval()
        hidden, after = model(tokens[:, 12:], state=state)
        torch.testing.assert_close(hidden, expected, atol=1e-4, rtol=1e-4)
    assert after.projected
    assert after.layers[0].shape == (2, 24, 24)


def test_memory_slides_and_may_be_longer_than_in_training() -> None:
    model = make(memory=6, layers=1)
    tokens = torch.randint(53, (1, 30))
    with torch.no_grad():
        state = None
        for at in range(29):
            _, state = model.step(tokens[:, at : at + 1], state)
            assert state.layers[0].shape[1] == min(at + 1, 6)
        logits, _ = model.step(tokens[:, 29:], state)
        expected = model.logits(model(tokens[:, 23:]).hidden)[:, -1]  # one layer: what is forgotten has no effect
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
        model.memory = 40
        whole = model.logits(model(tokens).hidden)[:, -1]
        _, state = model(tokens[:, :29])
        logits, _ = model.step(tokens[:, 29:], state)
        torch.testing.assert_close(logits, whole, atol=1e-4, rtol=1e-4)
        assert (whole - expected).abs().max() > 1e-3


def test_no_memory_at_all() -> None:
    model = make(memory=0)
    tokens = torch.randint(53, (2, 8))
    with torch.no_grad():
        _, state = model(tokens[:, :4])
        hidden = model(tokens[:, 4:], state=state).hidden
        torch.testing.assert_close(hidden, model(tokens[:, 4:]).hidden, atol=1e-5, rtol=1e-5)


def test_the_future_changes_nothing() -> None:
    model = make()
    tokens = torch.randint(53, (2, 12))
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 53
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).hidden[:, :7], model(changed).hidden[:, :7], atol=1e-5, rtol=1e-5)


def test_beams_change_places() -> None:
    model = make()
    tokens = torch.randint(53, (3, 9))
    index = torch.tensor([2, 0, 0])
    with torch.no_grad():
        _, state = model.step(tokens[:, :8], None)
        logits, _ = model.step(tokens[index, 8:], reorder_state(state, index))
        torch.testing.assert_close(logits, model.logits(model(tokens[index]).hidden)[:, -1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("softmax", ["full", "adaptive"])
def test_gradients_reach_every_parameter_but_not_the_memory(softmax: str) -> None:
    model = make(softmax=softmax, dropout=0.1, attention_dropout=0.1).train()
    tokens = torch.randint(53, (4, 25))
    first = model(tokens[:, :12])
    assert all(not layer.requires_grad for layer in first.state.layers)
    hidden, _ = model(tokens[:, 12:-1], state=detach_state(first.state))
    model.total_nll(hidden.flatten(0, 1), tokens[:, 13:].flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_key_matrix_learns_from_the_memory() -> None:
    """The gradient of the key matrix is that of the whole context, with the memory's vectors held fixed."""
    model = make(layers=1).train()
    tokens = torch.randint(53, (1, 12))
    _, state = model(tokens[:, :8])
    weight = model.blocks[0].attention.key_value.weight
    (found,) = torch.autograd.grad(model(tokens[:, 8:], state=state).hidden.square().sum(), weight)
    memory = state._replace(layers=tuple(torch.zeros_like(layer) for layer in state.layers))
    (other,) = torch.autograd.grad(model(tokens[:, 8:], state=memory).hidden.square().sum(), weight)
    step = torch.zeros_like(weight)
    step[2, 5] = 1e-2
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            weight += sign * step
            values.append(model(tokens[:, 8:], state=state).hidden.square()[..., :5].sum().item())
            weight -= sign * step
    (partial,) = torch.autograd.grad(model(tokens[:, 8:], state=state).hidden.square()[..., :5].sum(), weight)
    assert partial[2, 5].item() == pytest.approx((values[0] - values[1]) / 2e-2, rel=0.05, abs=1e-4)
    assert (found - other).abs().max() > 1e-6


def test_score_carries_the_memory() -> None:
    model = make()
    tokens = torch.randint(53, (2, 21))
    with torch.no_grad():
        whole, _ = model.score(tokens[:, :-1], tokens[:, 1:], model.start(2))
        first, state = model.score(tokens[:, :8], tokens[:, 1:9], model.start(2))
        second, _ = model.score(tokens[:, 8:-1], tokens[:, 9:], state)
    torch.testing.assert_close(torch.cat((first, second), 1), whole, atol=1e-4, rtol=1e-4)


def test_flops_as_torch_counts_them() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = make(memory=10).train()
    tokens = torch.randint(53, (7, 16))
    _, state = model(tokens[:, :10])
    with FlopCounterMode(display=False) as counter:
        model.logits(model(tokens[:, 10:], state=state).hidden)
    once_for_the_batch = 3 * 2 * 17 * 12 * 12  # W_R R in each of 3 layers
    one_more_distance = 3 * 2 * 12 * 42  # than there are keys, for each of 42 tokens
    assert counter.get_total_flops() == model.pretraining_flops(6) * 42 + once_for_the_batch + one_more_distance
