"""The bag of words against means taken word by word."""

from __future__ import annotations

from typing import Any

import torch

from lmlab.models import LINEAGE
from lmlab.models.bow import BagOfWords


def make(**values: Any) -> BagOfWords:
    torch.manual_seed(0)
    fields = {"vocabulary": 13, "width": 5, "hidden": 7, "window": 16, **values}
    return BagOfWords(BagOfWords.Config.model_validate(fields))


def some_tokens(length: int = 9) -> torch.Tensor:
    return torch.randint(13, (3, length), generator=torch.Generator().manual_seed(1))


def test_hidden_is_tanh_of_the_mean() -> None:
    model = make().eval()
    tokens = some_tokens()
    hidden, state = model(tokens)
    assert state is None
    for row in range(3):
        for time in range(9):
            words = [model.embedding.weight[word] for word in tokens[row, : time + 1].tolist()]
            mean = sum(words) / len(words)
            expected = torch.tanh(model.hidden.weight @ mean + model.hidden.bias)
            torch.testing.assert_close(hidden[row, time], expected, rtol=1e-5, atol=1e-5)


def test_order_does_not_matter() -> None:
    model = make().eval()
    tokens = some_tokens()
    swapped = tokens[:, torch.tensor([3, 1, 0, 2, 4, 5, 6, 7, 8])]
    torch.testing.assert_close(model(tokens).hidden[:, 3:], model(swapped).hidden[:, 3:], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(model(tokens).hidden[:, 0], model(swapped).hidden[:, 0])


def test_step_equals_forward_over_any_length() -> None:
    model = make().eval()
    tokens = some_tokens(40)
    expected = model.logits(model(tokens).hidden)
    state = model.start(3)
    for time in range(40):
        logits, state = model.step(tokens[:, time : time + 1], state)
        torch.testing.assert_close(logits, expected[:, time], rtol=1e-5, atol=1e-5)
    logits, state = model.step(tokens[:, :17], model.start(3))
    torch.testing.assert_close(logits, expected[:, 16], rtol=1e-5, atol=1e-5)
    logits, state = model.step(tokens[:, 17:], state)
    torch.testing.assert_close(logits, expected[:, -1], rtol=1e-5, atol=1e-5)
    assert state[1].tolist() == [40, 40, 40]
    assert model.window == 16


def test_gradients_reach_every_parameter() -> None:
    model = make()
    tokens = torch.arange(13)[None]
    model.total_nll(model(tokens).hidden.flatten(0, 1), tokens.flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_operations_per_token() -> None:
    assert make().pretraining_flops(64) == 2 * (5 * 7 + 7 * 13)


def test_presets_are_valid() -> None:
    for fields in LINEAGE["bow"].sizes.values():
        BagOfWords.Config.model_validate({"vocabulary": 100, **fields})
