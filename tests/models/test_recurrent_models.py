"""The RNN, GRU and LSTM language models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from lmlab.config import build
from lmlab.models import system_of
from lmlab.models.gru import GRU
from lmlab.models.lstm import LSTM
from lmlab.models.rnn import RNN
from lmlab.models.states import detach_state, reorder_state

MODELS: list[type[RNN]] = [RNN, GRU, LSTM]
SMALL = {"vocabulary": 23, "width": 8, "hidden": 8, "layers": 2}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"tied": True},
    {"tied": True, "hidden": 12},
    {"softmax": "adaptive"},
    {"softmax": "adaptive", "cutoffs": [3, 9], "hidden": 16},
    {"connections": "residual"},
    {"connections": "highway"},
    {"connections": "dense", "layers": 3, "width": 6},
    {"kernel": "readable"},
]


def make(cls: type[RNN], **values: Any) -> RNN:
    torch.manual_seed(0)
    return cls(build(cls.Config, {**SMALL, **values}, where="model"))


def some_tokens(batch: int = 3, length: int = 10) -> torch.Tensor:
    return torch.randint(23, (batch, length), generator=torch.Generator().manual_seed(1))


def names(variant: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in variant.items()) or "plain"


@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("variant", VARIANTS, ids=names)
def test_step_and_carried_state_equal_one_long_pass(cls: type[RNN], variant: dict[str, Any]) -> None:
    model = make(cls, **variant).eval()
    tokens = some_tokens()
    whole, _ = model(tokens)
    expected = model.logits(whole)
    assert expected.shape == (3, 10, 23)
    first, state = model(tokens[:, :4])
    second, state = model(tokens[:, 4:], state=state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=1e-5, atol=1e-5)
    state = model.start(3)
    for time in range(10):
        logits, state = model.step(tokens[:, time : time + 1], state)
        torch.testing.assert_close(logits, expected[:, time], rtol=1e-5, atol=1e-5)
    prompt, _ = model.step(tokens, model.start(3))
    torch.testing.assert_close(prompt, expected[:, -1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("variant", VARIANTS, ids=names)
def test_gradients_reach_every_parameter(cls: type[RNN], variant: dict[str, Any]) -> None:
    model = make(cls, **variant)
    tokens = torch.arange(23)[None]  # every token, so every row of the embedding
    hidden, _ = model(tokens)
    model.total_nll(hidden.flatten(0, 1), tokens.flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("cls", MODELS)
def test_fused_and_readable_share_parameters_and_agree(cls: type[RNN]) -> None:
    fused, readable = make(cls), make(cls, kernel="readable")
    readable.load_state_dict(fused.state_dict())
    torch.testing.assert_close(fused(some_tokens()).hidden, readable(some_tokens()).hidden, rtol=1e-5, atol=1e-5)


def test_loss_equals_a_net_written_with_torch_alone() -> None:
    model = make(LSTM)
    reference = torch.nn.LSTM(8, 8, 2, batch_first=True)
    weights = {
        name.replace("_l0", f"_l{number}"): value
        for number, layer in enumerate(model.recurrent.layers)
        for name, value in layer.fused.state_dict().items()
    }
    reference.load_state_dict(weights)
    tokens = some_tokens()
    y, _ = reference(model.embedding(tokens[:, :-1]))
    scores = y @ model.output.weight.T + model.output.bias
    expected = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    hidden, _ = model(tokens[:, :-1])
    torch.testing.assert_close(model.total_nll(hidden.flatten(0, 1), tokens[:, 1:].flatten()), expected)
    nats, _ = model.score(tokens[:, :-1], tokens[:, 1:], model.start(3))
    torch.testing.assert_close(nats.sum(), expected)


@pytest.mark.parametrize("cls", MODELS)
def test_states_are_batch_first_and_can_be_reordered_and_detached(cls: type[RNN]) -> None:
    model = make(cls).eval()
    tokens = some_tokens()
    _, state = model(tokens[:, :5])
    index = torch.tensor([2, 0, 0])
    expected, _ = model(tokens[index], state=None)
    actual, _ = model(tokens[index, 5:], state=reorder_state(detach_state(state), index))
    torch.testing.assert_close(actual, expected[:, 5:], rtol=1e-5, atol=1e-5)
    assert len(state) == 2
    first = state[0][0] if isinstance(state[0], tuple) else state[0]
    assert first.shape == (3, 8)


def test_tied_weights_share_storage() -> None:
    model = make(LSTM, tied=True)
    assert model.output.weight is model.embedding.weight
    assert make(LSTM).output.weight is not make(LSTM).embedding.weight
    assert sum(1 for _ in make(LSTM, tied=True).parameters()) == sum(1 for _ in make(LSTM).parameters()) - 1


def test_dropout_needs_training_and_follows_the_seed() -> None:
    model = make(LSTM, dropout=0.5)
    tokens = some_tokens()
    torch.manual_seed(7)
    first = model(tokens).hidden
    second = model(tokens).hidden
    torch.manual_seed(7)
    assert torch.equal(model(tokens).hidden, first)
    assert not torch.equal(first, second)
    model.eval()
    assert torch.equal(model(tokens).hidden, model(tokens).hidden)


@pytest.mark.parametrize("cls", MODELS)
def test_some_rows_start_afresh_in_training_only(cls: type[RNN]) -> None:
    model = make(cls, reset_probability=0.5)
    tokens = torch.randint(23, (64, 6), generator=torch.Generator().manual_seed(2))
    _, state = model(tokens[:, :3])
    carried, _ = model.eval()(tokens[:, 3:], state=state)
    fresh, _ = model(tokens[:, 3:])
    mixed, _ = model.train()(tokens[:, 3:], state=state)
    is_carried = torch.isclose(mixed, carried, atol=1e-6).flatten(1).all(1)
    is_fresh = torch.isclose(mixed, fresh, atol=1e-6).flatten(1).all(1)
    assert torch.equal(is_carried, ~is_fresh)
    assert 10 < is_fresh.sum() < 54


@pytest.mark.parametrize("cls", MODELS)
def test_initialisation_follows_the_seed(cls: type[RNN]) -> None:
    one, two = make(cls), make(cls)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


@pytest.mark.parametrize("cls", MODELS)
def test_all_weights_start_between_given_bounds(cls: type[RNN]) -> None:
    values = torch.cat([parameter.flatten() for parameter in make(cls, initial=0.02).parameters()])
    assert 0.019 < values.max() <= 0.02
    assert -0.02 <= values.min() < -0.019
    assert values.std().item() == pytest.approx(0.02 / 3**0.5, rel=0.1)


@pytest.mark.parametrize("cls", MODELS)
def test_learns_a_pattern_that_needs_memory(cls: type[RNN]) -> None:
    """In 'a x x b a' the last token repeats the first, three tokens before: a model without state cannot know it."""
    torch.manual_seed(0)
    model = cls(build(cls.Config, {"vocabulary": 4, "width": 16, "hidden": 32, "layers": 1}, where="model"))
    first = torch.arange(64) % 2
    middle = torch.full((64, 3), 2)
    tokens = torch.cat([first[:, None], middle, first[:, None]], dim=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(150):
        hidden, _ = model(tokens[:, :-1])
        loss = model.total_nll(hidden[:, -1], tokens[:, -1]) / 64
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


def test_operations_per_token() -> None:
    model = make(LSTM, hidden=12, tied=True)
    recurrent = 4 * 12 * (8 + 12) + 4 * 12 * (12 + 12)
    assert model.pretraining_flops(35) == 2 * (recurrent + 12 * 8 + 8 * 23)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tied": True, "softmax": "adaptive"}, "cannot share the embedding matrix"),
        ({"cutoffs": [3]}, "cutoffs are for the adaptive softmax"),
        ({"dropout": 1.0}, "dropout"),
        ({"layers": 0}, "layers"),
        ({"connections": "skip"}, "connections"),
    ],
)
def test_impossible_settings_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(LSTM, **values)


@pytest.mark.parametrize("cls", MODELS)
def test_presets_are_valid(cls: type[RNN]) -> None:
    system = system_of(cls)
    assert system is not None
    for fields in system.sizes.values():
        build(cls.Config, {"vocabulary": 100, **fields}, where="model")
    assert {"tiny", "small", "base"} <= system.sizes.keys()
