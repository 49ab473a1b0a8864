"""The character CNN against a loop over letters and filters; words that are computed once against each at its place."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lmlab.layers.characters import PADDING, CharacterCNN, SpelledTokens
from tolerances import rounding

CLOSE = rounding(terms=64, depth=4)


@pytest.fixture
def network() -> CharacterCNN:
    torch.manual_seed(0)
    return CharacterCNN(6, filters=[[1, 3], [2, 4], [4, 5]], letter_width=3, highways=2, activation="relu")


def by_hand(network: CharacterCNN, word: list[int]) -> Tensor:
    """Filter by filter, place by place, as the equations say it."""
    c = [network.embedding.weight[letter] for letter in word]
    f = []
    for convolution in network.convolutions:
        wide = convolution.kernel_size[0]
        for weight, bias in zip(convolution.weight, convolution.bias, strict=True):  # [C, w]
            answers = [
                sum((weight[:, k] * c[i + k]).sum() for k in range(wide)) + bias for i in range(len(word) - wide + 1)
            ]
            f.append(torch.relu(torch.stack(answers).max()))
    x = torch.stack(f)
    for highway in network.highways:
        g = torch.sigmoid(highway.gate.weight @ x + highway.gate.bias)
        x = g * torch.relu(highway.transform.weight @ x + highway.transform.bias) + (1 - g) * x
    return network.projection.weight @ x + network.projection.bias


@pytest.mark.parametrize("longest", [3, 8, 12])
def test_equals_a_loop_over_filters(network: CharacterCNN, longest: int) -> None:
    """Also where most of the padding is left out, and where a word fills its row."""
    words = [list(range(65, 65 + n)) for n in (1, 2, longest)]
    rows = [word + [PADDING] * (12 - len(word)) for word in words]
    found = network(torch.tensor(rows))
    for row, vector in zip(rows, found, strict=True):
        torch.testing.assert_close(vector, by_hand(network, row), atol=CLOSE, rtol=CLOSE)


def test_a_word_has_one_vector_alone_and_in_a_batch(network: CharacterCNN) -> None:
    short, long = [[65, 66] + [PADDING] * 10], [[65 + i for i in range(11)] + [PADDING]]
    together = network(torch.tensor(short + long))
    torch.testing.assert_close(network(torch.tensor(short))[0], together[0], atol=CLOSE, rtol=CLOSE)


def test_distinct_words_are_computed_once(network: CharacterCNN) -> None:
    tokens = torch.tensor([[4, 7, 4], [9, 4, 7]])
    once, apart = SpelledTokens(network), SpelledTokens(network, once=False)
    counted = []
    once.spell_by(lambda words: counted.append(len(words)) or apart.spell(words))  # type: ignore[func-returns-value]
    results = []
    for layer in (once, apart):
        network.zero_grad()
        vectors = layer(tokens)
        vectors.square().sum().backward()
        results.append([vectors.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)])
    assert counted == [3]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=20 * CLOSE, rtol=20 * CLOSE)


def test_remembered_until_the_weights_change(network: CharacterCNN) -> None:
    layer = SpelledTokens(network)
    asked: list[int] = []
    usual = layer.spell
    layer.spell_by(lambda words: asked.extend(words.tolist()) or usual(words))  # type: ignore[func-returns-value]
    with torch.inference_mode():
        first = layer(torch.tensor([[1, 2], [2, 5]]))
        again = layer(torch.tensor([[5, 2, 1]]))
    with torch.no_grad():
        layer(torch.tensor([[3000, 1]]))
    assert sorted(asked) == [1, 2, 5, 3000]
    assert torch.equal(first[1, 1], again[0, 0])
    with torch.no_grad():
        network.projection.weight *= 2
        changed = layer(torch.tensor([[5]]))
        torch.testing.assert_close(changed, SpelledTokens(network, once=False)(torch.tensor([[5]])))
    assert not torch.allclose(changed[0, 0], first[1, 1])


def test_too_many_words_are_not_remembered(network: CharacterCNN, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmlab.layers.characters.KEPT", 10)
    layer, tokens = SpelledTokens(network), torch.tensor([[1, 2, 1]])
    with torch.no_grad():
        torch.testing.assert_close(layer(tokens), SpelledTokens(network, once=False)(tokens), atol=CLOSE, rtol=CLOSE)
    assert layer._kept is None


def test_a_word_that_is_remembered_while_the_memory_grows_has_its_vector(network: CharacterCNN) -> None:
    """Another thread writes a vector and its flag just after one of the two was copied."""
    layer = SpelledTokens(network)
    with torch.no_grad():
        layer(torch.tensor([[0, 1, 7]]))
        assert layer._kept is not None
        weights, vectors, there = layer._kept
        assert len(there) == 8
        right = layer._compute(torch.tensor([5]))

        class Watched(Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
                with torch._C.DisableTorchFunctionSubclass():
                    found = func(*args, **(kwargs or {}))
                    if func is Tensor.__setitem__:
                        vectors[5], there[5] = right[0], True
                return found

        layer._kept = (weights, vectors.as_subclass(Watched), there.as_subclass(Watched))
        found = layer(torch.tensor([[5, 9]]))
        assert there[5], "the other thread came between"
        torch.testing.assert_close(found[0, :1], right, atol=20 * CLOSE, rtol=20 * CLOSE)
