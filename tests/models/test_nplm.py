"""Bengio's net against its equation, written out word by word."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lmlab.models import LINEAGE
from lmlab.models.nplm import NPLM


def make(**values: Any) -> NPLM:
    torch.manual_seed(0)
    fields = {"vocabulary": 13, "boundary": 2, "order": 4, "width": 5, "hidden": 7, **values}
    return NPLM(NPLM.Config.model_validate(fields))


def some_tokens() -> torch.Tensor:
    return torch.randint(13, (3, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("direct", [False, True])
def test_scores_follow_the_equation(direct: bool) -> None:
    """y = b + W x + U tanh(d + H x), x the embeddings of the three words before, boundary where there is none."""
    model = make(direct=direct).eval()
    tokens = some_tokens()
    U, W = model.output.weight[:, :7], model.output.weight[:, 7:]
    b, H, d = model.output.bias, model.hidden.weight, model.hidden.bias
    logits = model.logits(model(tokens).hidden)
    for row in range(3):
        text = [2, 2, 2, *tokens[row].tolist()]
        for time in range(9):
            context = text[time + 1 : time + 4]
            x = torch.cat([model.embedding.weight[word] for word in context])
            y = b + U @ torch.tanh(d + H @ x)
            if direct:
                y = y + W @ x
            torch.testing.assert_close(logits[row, time], y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("order", [2, 4, 12])
def test_step_and_carried_state_equal_one_long_pass(order: int, direct: bool) -> None:
    model = make(order=order, direct=direct).eval()
    tokens = some_tokens()
    expected = model.logits(model(tokens).hidden)
    state = model.start(3)
    assert state.shape == (3, order - 1)
    for time in range(9):
        logits, state = model.step(tokens[:, time : time + 1], state)
        torch.testing.assert_close(logits, expected[:, time], rtol=1e-5, atol=1e-5)
    first, state = model(tokens[:, :4])
    second, _ = model(tokens[:, 4:], state=state)
    whole = model(tokens).hidden
    torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=1e-5, atol=1e-5)


def test_only_the_last_words_count() -> None:
    model = make().eval()
    tokens = some_tokens()
    changed = tokens.clone()
    changed[:, 4] = (tokens[:, 4] + 1) % 13
    different = (model(tokens).hidden != model(changed).hidden).any(-1).any(0)
    assert different.nonzero().flatten().tolist() == [4, 5, 6]


@pytest.mark.parametrize("direct", [False, True])
def test_gradients_reach_every_parameter(direct: bool) -> None:
    model = make(direct=direct)
    tokens = torch.arange(13)[None]
    model.total_nll(model(tokens).hidden.flatten(0, 1), tokens.flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_operations_per_token() -> None:
    assert make().pretraining_flops(64) == 2 * (15 * 7 + 7 * 13)
    assert make(direct=True).pretraining_flops(64) == 2 * (15 * 7 + (7 + 15) * 13)


def test_boundary_outside_the_vocabulary() -> None:
    with pytest.raises(ValueError, match="below the vocabulary size, 13"):
        make(boundary=13)


def test_presets_are_valid() -> None:
    for fields in LINEAGE["nplm"].sizes.values():
        NPLM.Config.model_validate({"vocabulary": 100, **fields})


def test_dropout_needs_training_and_follows_the_seed() -> None:
    model = make(dropout=0.5)
    tokens = some_tokens()
    torch.manual_seed(3)
    first = model(tokens).hidden
    torch.manual_seed(3)
    assert torch.equal(model(tokens).hidden, first)
    assert not torch.equal(model(tokens).hidden, first)
    model.eval()
    assert torch.equal(model(tokens).hidden, model(tokens).hidden)
