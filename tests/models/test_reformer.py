"""Reformer: what it computes token by token, at once and in training is the same, at lengths where it sorts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lmlab.config import build
from lmlab.decoding.chain_rule import score_tokens
from lmlab.decoding.generate import generate
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.layers.watching import watching, watching_layers
from lmlab.models import LINEAGE, create
from lmlab.models.reformer import Reformer, ReformerConfig
from lmlab.models.states import join_states, reorder_state
from lmlab.objectives.causal import Causal
from losses import loss_of
from tolerances import of_blocks

SMALL: dict[str, Any] = {
    "vocabulary": 50, "width": 32, "heads": 2, "layers": 4, "inner": 48, "window": 300, "chunk": 8, "local_chunk": 8,
    "hashes": 2, "dropout": 0.0, "feed_forward_chunk": 16,
}  # fmt: skip
LONG = 97  # long enough for the sorting twin, the blocks of a mask and both kinds of chunks


def make(**changes: Any) -> Reformer:
    torch.manual_seed(0)
    model = create("reformer", {**SMALL, **changes}).eval()
    assert isinstance(model, Reformer)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


def text(rows: int = 2, length: int = LONG, seed: int = 1) -> Tensor:
    return torch.randint(50, (rows, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "changes", [{}, {"positions": "learned", "hashes": 3}, {"attention": ["lsh"], "buckets": [4, 6]}]
)
@torch.no_grad()
def test_step_equals_score_where_it_sorts(changes: dict[str, Any]) -> None:
    model, tokens = make(**changes), text()
    at_once = model(tokens).hidden
    tolerance = of_blocks(4, width=96, growth=8)
    for pieces in ([1] * LONG, [40, 1, 30, 26]):
        state, parts = model.start(2), []
        for part in torch.split(tokens, pieces, 1):
            hidden, state = model(part, state=state)
            parts.append(hidden)
        torch.testing.assert_close(torch.cat(parts, 1), at_once, atol=tolerance, rtol=tolerance)


@torch.no_grad()
def test_no_token_sees_the_future_where_it_sorts() -> None:
    model, tokens = make(), text()
    changed = tokens.clone()
    changed[:, 60:] = (changed[:, 60:] + 1) % 50
    tolerance = of_blocks(4, width=96, growth=8)
    torch.testing.assert_close(model(changed).hidden[:, :60], model(tokens).hidden[:, :60], atol=tolerance, rtol=0)
    shorter = model(tokens[:, :61]).hidden
    torch.testing.assert_close(shorter, model(tokens).hidden[:, :61], atol=tolerance, rtol=0)


@torch.no_grad()
def test_rows_of_unequal_length_go_on_as_if_alone() -> None:
    model = make()
    texts, read = [text(1, 90, seed=seed) for seed in range(3)], [70, 3, 41]
    states = [model.step(each[:, :length], model.start(1))[1] for each, length in zip(texts, read, strict=True)]
    joined = reorder_state(join_states(states), torch.tensor([2, 0, 1]))
    order = [2, 0, 1]
    for step in range(4):
        column = torch.cat([texts[row][:, read[row] + step : read[row] + step + 1] for row in order])
        logits, joined = model.step(column, joined)
        for place, row in enumerate(order):
            alone, _ = model.step(texts[row][:, : read[row] + step + 1], model.start(1))
            torch.testing.assert_close(logits[place], alone[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_training_has_the_gradients_of_plain_back_propagation(dropout: float) -> None:
    """Watching the layers turns reversibility off: every layer is then kept, as usual."""
    model = make(dropout=dropout).double().train()
    gradients = []
    for watched in (False, True):
        torch.manual_seed(3)
        model.zero_grad()
        with watching_layers(when=watched):
            hidden = model(text()).hidden
        hidden.sin().sum().backward()
        gradients.append([each.grad.clone() for each in model.parameters() if each.grad is not None])
    tolerance = of_blocks(4, width=LONG * 48, growth=8, dtype=torch.double)
    for mine, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, expected, atol=tolerance * max(1, expected.abs().max().item()), rtol=0)


def test_memory_between_the_passes_does_not_grow_with_depth() -> None:
    def kept(layers: int) -> int:
        total = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel() * tensor.element_size() if not isinstance(tensor, nn.Parameter) else 0
            return tensor

        model = make(layers=layers).train()
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss_of(Causal(), model, Causal().batch(text(2, 129)))
        return total

    assert kept(12) == kept(2)


def test_layers_and_watching_see_each_layer_once() -> None:
    model, tokens = make().train(), text()
    with watching(model, "blocks.1", "blocks.1.attention.probabilities") as seen:
        hidden = model(tokens).hidden
        hidden.sum().backward()
    assert {name: len(shown) for name, shown in seen.items()} == {"blocks.1": 1, "blocks.1.attention.probabilities": 1}
    weights = seen["blocks.1.attention.probabilities"][0]
    assert weights.shape == (2, 2, LONG, LONG)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, LONG))
    assert len(model.layers(tokens=tokens)) == 5
    model.zero_grad()
    before = model(tokens).hidden  # not watched, so reversible
    with watching(model, "blocks.1.attention", "embedding") as seen:
        before.sum().backward()
    assert not any(seen.values()), "what the backward pass computes once more is not shown"


@torch.no_grad()
def test_watched_weights_are_those_that_are_used() -> None:
    for attends in ("bucket", "chunk"):
        model, tokens = make(attends=attends), text()
        quiet = model(tokens).hidden
        with watching(model, "blocks.3.attention.probabilities") as seen:
            torch.testing.assert_close(model(tokens).hidden, quiet, atol=1e-4, rtol=1e-4)
        weights = seen["blocks.3.attention.probabilities"][0][..., :LONG, :LONG]
        assert not weights.triu(1).any()
        assert (weights.diagonal(dim1=-2, dim2=-1) > 0).float().mean() < 0.5, "a token seldom attends to itself"


@torch.no_grad()
def test_the_seed_tells_the_hashes() -> None:
    model, tokens = make(), text()
    first = model(tokens).hidden
    assert torch.equal(make()(tokens).hidden, first), "same seed, same text"
    assert not torch.equal(make(hash_seed=1)(tokens).hidden, first)
    model.set_hashes(2, seed=1)
    assert torch.equal(make(hash_seed=1)(tokens).hidden, model(tokens).hidden)
    model.set_hashes(5, seed=1)
    assert model(tokens).hidden.shape == first.shape
    assert model.approximation == "LSH attention, 5 hashes, hash seed 1"
    state = model.start(2)
    logits, _ = model.step(tokens, state)
    torch.testing.assert_close(logits, model.logits(model(tokens).hidden[:, -1]), atol=1e-4, rtol=1e-4)


def test_training_hashes_again_each_time_unless_switched_off() -> None:
    model, tokens = make().train(), text()
    assert not torch.equal(model(tokens).hidden, model(tokens).hidden)
    torch.manual_seed(4)
    one = model(tokens).hidden
    torch.manual_seed(4)
    assert torch.equal(model(tokens).hidden, one), "from torch's generator, which checkpoints keep"
    fixed = make(hashing="fixed").train()
    assert torch.equal(fixed(tokens).hidden, fixed(tokens).hidden)


@torch.no_grad()
def test_more_rounds_come_nearer_to_full_attention() -> None:
    """With one bucket pair and a reach over the whole text, all rounds together find nearly everybody."""
    tokens = text(1, 60)
    model = make(attention=["lsh"], chunk=64, buckets=2)
    model.set_hashes(64, seed=0)
    full = model(tokens).hidden
    errors = []
    for hashes in (1, 2, 8):
        distances = []
        for seed in range(5):
            model.set_hashes(hashes, seed=seed)
            distances.append((model(tokens).hidden - full).square().mean().item())
        errors.append(sum(distances))
    assert errors[0] > errors[1] > errors[2]


@torch.no_grad()
def test_chunks_are_scored_token_by_token() -> None:
    """The released way depends on what follows; its probabilities are those of the last token of each beginning."""
    model, tokens = make(attends="chunk"), text(2, 40)
    parallel = model(tokens).hidden
    changed = tokens.clone()
    changed[:, 30:] = (changed[:, 30:] + 1) % 50
    assert (model(changed).hidden[:, :30] - parallel[:, :30]).abs().max() > 1e-3, "what follows is seen"
    nats, _ = model.score(tokens[:, :-1], tokens[:, 1:], model.start(2))
    later, _ = model.score(changed[:, :-1], tokens[:, 1:], model.start(2))
    torch.testing.assert_close(nats[:, :30], later[:, :30], atol=1e-4, rtol=1e-4)
    state = model.start(2)
    for place in range(39):
        logits, state = model.step(tokens[:, place : place + 1], state)
        stepped = -logits.log_softmax(-1).gather(1, tokens[:, place + 1 : place + 2])[:, 0]
        torch.testing.assert_close(stepped, nats[:, place], atol=1e-4, rtol=1e-4)
    document = tokens[0].numpy()
    (scored,) = score_tokens(model, [document[1:]], boundary=int(document[0]))
    np.testing.assert_allclose(scored, nats[0].numpy(), atol=1e-4, rtol=1e-4)


def test_long_texts_are_written() -> None:
    model = make(window=200)
    written = []
    for _ in range(2):
        steps = list(generate(model, text(2, 150), tokens=40, pick=Sampler(Sampling(temperature=0))))
        written.append([[each.token for each in step] for step in steps])
    assert written[0] == written[1]
    tokens = text(2, 150)
    with torch.no_grad():
        for step in written[0]:
            best = model.logits(model(tokens).hidden[:, -1]).argmax(-1)
            assert best.tolist() == step
            tokens = torch.cat((tokens, best[:, None]), 1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"buckets": [7]}, "each factor must be even"),
        ({"buckets": 512}, "512 buckets for a window of 300 tokens"),
        ({"axial_shape": [10, 20]}, "rows and columns for at least the 300 tokens"),
        ({"axial_widths": [10, 20]}, "two numbers whose sum is the width, 32"),
        ({"heads": 3}, "3 heads do not divide the width 32"),
        ({"chunk": 0}, "greater than or equal to 1"),
        ({"attention": ["full"]}, "'local' or 'lsh'"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        build(ReformerConfig, {**SMALL, **settings}, where="model")
    assert "\n" not in str(refused.value)


def test_a_chunk_need_not_divide_anything() -> None:
    for chunk, local, window in ((7, 5, 61), (64, 3, 50), (1, 1, 20)):
        model = make(chunk=chunk, local_chunk=local, window=window)
        assert model(text(1, window)).hidden.shape == (1, window, 64)
        with pytest.raises(ValueError, match=f"do not fit into a window of {window}"):
            model(text(1, window + 1))
    with pytest.raises(ValueError, match="at least one round"):
        model.set_hashes(0, seed=0)


def test_flops_count_the_sorting_way_too() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    for length in (LONG, 192):
        model = make().train()
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
            model.logits(model(text(2, length)).hidden)
        assert model.pretraining_flops(length) * 2 * length == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_published_sizes_have_their_parameters() -> None:
    """By the shapes of the weights of google/reformer-enwik8; those of reformer-crime-and-punishment are 3M."""
    from lmlab.models import outline

    counts = {}
    for size, vocabulary in (("enwik8", 258), ("crime", 320)):
        model = outline("reformer", {**LINEAGE["reformer"].sizes[size], "vocabulary": vocabulary})
        counts[size] = sum(parameter.numel() for parameter in model.parameters())
    attention = {"local": 4, "lsh": 3}
    layers = sum(
        attention[kind] * 1024**2 + 2 * 1024 * 4096 + 4096 + 1024 + 4 * 1024 for kind in ("local",) * 9 + ("lsh",) * 3
    )
    others = 258 * 1024 + 128 * 256 + 512 * 768 + 2 * 2048 + 258 * 2048
    assert counts["enwik8"] == layers + others
    assert math.isclose(counts["crime"], 2.8e6, rel_tol=0.1)
