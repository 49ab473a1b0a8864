"""GPT-2 against Hugging Face's implementation, its published sizes, and reading with a cache."""

from __future__ import annotations

import math

import pytest
import torch
import transformers
from torch import nn

from encoders import attention_weights_of
from lmlab.config import build
from lmlab.layers.watching import watching
from lmlab.models import create
from lmlab.models.gpt import GPTConfig
from lmlab.models.gpt2 import GPT2
from lmlab.models.states import reorder_state


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def make(**values: int | float) -> GPT2:
    """A small model in evaluation mode, whose biases and norms are not trivial."""
    fields = {"vocabulary": 97, "width": 24, "heads": 3, "layers": 2, "window": 20, "dropout": 0.0, **values}
    model = GPT2(GPTConfig.model_validate(fields)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def copy_blocks(model: GPT2, reference: nn.Module, names: dict[str, str]) -> None:
    """Hugging Face's `Conv1D` keeps its weights transposed."""
    for ours, theirs in names.items():
        target = reference.get_parameter(theirs)
        source = model.get_parameter(ours)
        linear = isinstance(model.get_submodule(ours.rpartition(".")[0]), nn.Linear)
        target.data.copy_(source.t() if linear and source.ndim == 2 else source)


@pytest.mark.parametrize(
    ("width", "heads", "layers", "window", "vocabulary"),
    [(24, 3, 2, 20, 97), (8, 1, 1, 5, 11), (60, 5, 3, 33, 501), (64, 16, 2, 64, 1000)],
)
def test_logits_agree_with_transformers(width: int, heads: int, layers: int, window: int, vocabulary: int) -> None:
    model = make(width=width, heads=heads, layers=layers, window=window, vocabulary=vocabulary)
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_embd=width, n_head=heads, n_layer=layers, n_positions=window
    )
    reference = transformers.GPT2LMHeadModel(config).eval()
    names = {
        "embedding.weight": "transformer.wte.weight",
        "positions.weight": "transformer.wpe.weight",
        "norm.weight": "transformer.ln_f.weight",
        "norm.bias": "transformer.ln_f.bias",
    }
    for i in range(layers):
        for ours, theirs in {
            "attention_norm": "ln_1",
            "attention.query_key_value": "attn.c_attn",
            "attention.projection": "attn.c_proj",
            "feed_forward_norm": "ln_2",
            "feed_forward.expand": "mlp.c_fc",
            "feed_forward.contract": "mlp.c_proj",
        }.items():
            for kind in ("weight", "bias"):
                names[f"blocks.{i}.{ours}.{kind}"] = f"transformer.h.{i}.{theirs}.{kind}"
    assert set(names) | {"output.weight"} == set(model.state_dict())
    copy_blocks(model, reference, names)

    tokens = torch.randint(vocabulary, (3, window))
    with torch.no_grad():
        ours = model.logits(model(tokens).hidden)
        theirs = reference(tokens).logits
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("size", "parameters"),
    [("124M", 124_439_808), ("355M", 354_823_168), ("774M", 774_030_080), ("1.5B", 1_557_611_200)],
)
def test_published_parameter_counts(size: str, parameters: int) -> None:
    with torch.device("meta"):
        model = create("gpt2", {"vocabulary": 50257}, size=size)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_first_weights() -> None:
    model = GPT2(GPTConfig(vocabulary=300, width=96, heads=2, layers=8, window=32))
    block = model.blocks[3]
    for weight, std in (
        (model.embedding.weight, 0.02),
        (model.positions.weight, 0.02),
        (block.attention.query_key_value.weight, 0.02),
        (block.attention.projection.weight, 0.02 / math.sqrt(16)),
        (block.feed_forward.contract.weight, 0.02 / math.sqrt(16)),
    ):
        assert weight.std().item() == pytest.approx(std, rel=0.1)
    assert block.attention.query_key_value.bias.abs().max() == 0


def test_the_future_changes_nothing() -> None:
    model = make()
    tokens = torch.randint(97, (2, 12))
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 97
    with torch.no_grad():
        before, after = model(tokens).hidden, model(changed).hidden
    torch.testing.assert_close(before[:, :7], after[:, :7], atol=1e-5, rtol=1e-5)
    assert (before[:, 7:] - after[:, 7:]).abs().max() > 1e-2


@pytest.mark.parametrize("cuts", [[1] * 20, [7, 1, 1, 4, 7], [20], [1, 19]])
def test_step_equals_forward(cuts: list[int]) -> None:
    model = make()
    tokens = torch.randint(97, (3, 20))
    with torch.no_grad():
        expected = model.logits(model(tokens).hidden)
        state, at = model.start(3), 0
        for part in tokens.split(cuts, dim=1):
            logits, state = model.step(part, state)
            at += part.shape[1]
            torch.testing.assert_close(logits, expected[:, at - 1], atol=1e-4, rtol=1e-4)
    assert state.length == 20


def test_a_cache_that_grows_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmlab.layers.cache.FIRST", 3)
    model = make()
    tokens = torch.randint(97, (2, 20))
    with torch.inference_mode():
        expected = model.logits(model(tokens).hidden)
        state = model.start(2)
        assert state.layers[0].shape[3] == 3
        for at in range(20):
            logits, state = model.step(tokens[:, at : at + 1], state)
            torch.testing.assert_close(logits, expected[:, at], atol=1e-4, rtol=1e-4)
    assert state.layers[0].shape[3] == 20


def test_reordered_cache_continues_the_other_text() -> None:
    model = make()
    tokens = torch.randint(97, (3, 9))
    index = torch.tensor([2, 0, 0])
    with torch.no_grad():
        _, state = model.step(tokens[:, :8], model.start(3))
        logits, _ = model.step(tokens[index, 8:], reorder_state(state, index))
        expected = model.logits(model(tokens[index]).hidden)[:, -1]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def test_score_is_the_surprisal_of_each_target() -> None:
    model = make()
    tokens = torch.randint(97, (2, 11))
    with torch.no_grad():
        nats, state = model.score(tokens[:, :-1], tokens[:, 1:], model.start(2))
        p = model.logits(model(tokens[:, :-1]).hidden).softmax(-1)
    torch.testing.assert_close(nats, -p.gather(2, tokens[:, 1:, None]).squeeze(2).log(), atol=1e-4, rtol=1e-4)
    assert state.length == 10


def test_more_than_the_window_is_refused() -> None:
    model = make()
    with pytest.raises(ValueError, match="21 tokens after the 0 already read do not fit into a window of 20"):
        model(torch.zeros(1, 21, dtype=torch.long))
    _, state = model.step(torch.zeros(1, 20, dtype=torch.long), model.start(1))
    with pytest.raises(ValueError, match="window of 20"):
        model.step(torch.zeros(1, 1, dtype=torch.long), state)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match=r"model\.heads = 5: 5 heads do not divide the width 24"):
        build(GPTConfig, {"vocabulary": 9, "width": 24, "heads": 5}, where="model")


def test_dropout_only_in_training() -> None:
    model = make(dropout=0.5)
    tokens = torch.randint(97, (2, 10))
    torch.testing.assert_close(model(tokens).hidden, model(tokens).hidden, atol=0, rtol=0)
    model.train()
    assert (model(tokens).hidden - model(tokens).hidden).abs().max() > 1e-3


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_reach_every_parameter(dropout: float) -> None:
    model = make(dropout=dropout).train()
    tokens = torch.randint(97, (4, 21))
    hidden = model(tokens[:, :-1]).hidden
    model.total_nll(hidden.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_flops_as_torch_counts_them() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = make(window=16)
    tokens = torch.randint(97, (3, 16))
    with FlopCounterMode(display=False) as counter, watching(model, *attention_weights_of(model)):
        model.logits(model(tokens).hidden)
    assert counter.get_total_flops() == pytest.approx(model.pretraining_flops(16) * tokens.numel())
