"""XLNet: the terms pair by pair, both streams against brute force, memory against one long pass, and what it sees."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmlab.layers.attention.two_stream import (
    AttentionContext,
    SignedDistances,
    TwoStreamAttention,
    permutation_masks,
)
from lmlab.layers.positions import sinusoids
from lmlab.layers.watching import watching
from lmlab.models import LINEAGE, create
from lmlab.models.abilities import FillsInOrder, FillsMasks, PredictsNext, require
from lmlab.models.states import detach_state
from lmlab.models.xlnet import QueryStream, Text, XLNet

V = 29


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


def make(**values: Any) -> XLNet:
    shape = {"width": 12, "heads": 3, "layers": 2, "inner": 20, "memory": 64, "dropout": 0.0}
    model: Any = create("xlnet", {"vocabulary": V, **shape, **values}).eval()
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            nn.init.normal_(parameter, std=0.4)
    return model


def tokens(*shape: int) -> Tensor:
    return torch.randint(0, V, shape)


def pairwise(
    layer: TwoStreamAttention, asked: Tensor, places: list[int], keys: Tensor, sees: Tensor, segments: Tensor
) -> Tensor:
    """Attention of one text by the paper's equations, a pair (i, j) at a time; `segments` are of the keys."""
    width = asked.shape[1]
    d = width // layer.heads
    w_k, w_v = layer.key_value.weight.split(width)
    rows = []
    for i, place in enumerate(places):
        heads = []
        for h in range(layer.heads):
            part = slice(h * d, (h + 1) * d)
            q = layer.query.weight[part] @ asked[i]
            scores, values = [], []
            for j in range(len(keys)):
                if sees[i, j]:
                    k = w_k[part] @ keys[j]
                    r = layer.distance.weight[part] @ sinusoids(torch.tensor(place - j), width)
                    e = layer.segments[int(segments[place] != segments[j]), h]
                    content, position = (q + layer.content_bias[h]) @ k, (q + layer.position_bias[h]) @ r
                    scores.append((content + position + (q + layer.segment_bias[h]) @ e) / math.sqrt(d))
                    values.append(w_v[part] @ keys[j])
            p = torch.stack(scores).softmax(0) if scores else torch.zeros(0)
            heads.append(sum((p[n] * value for n, value in enumerate(values)), torch.zeros(d)))
        rows.append(layer.projection.weight @ torch.cat(heads))
    return torch.stack(rows)


@pytest.mark.parametrize(("past", "length"), [(0, 1), (0, 5), (4, 1), (3, 6)])
def test_attention_is_its_terms(past: int, length: int) -> None:
    """Tokens that see some of each other, and places that ask beside them, over keys of a memory too."""
    layer = TwoStreamAttention(12, 3).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    span, places = past + length, torch.randint(past, past + length, (1, 3))
    keys, asked = torch.randn(span, 12), torch.randn(3, 12)
    sees = torch.rand(1, length + 3, span) < 0.6
    sees[0, -1] = False  # one that sees nothing at all
    segments = torch.randint(0, 3, (span,))
    where = [*range(past, span), *places[0].tolist()]
    differs = segments[where][:, None] != segments
    context = AttentionContext(
        SignedDistances(span + 3, length, like=keys),
        back=span - 1,
        forward=length - 1,
        tokens=length,
        positions=places,
        mask=sees,
        other_segment=differs[None],
    )
    x = torch.cat((keys[past:], asked))
    found = layer(x[None], layer.key_value(keys)[None], context)[0]
    expected = pairwise(layer, x, where, keys, sees[0], segments)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        layer(asked[None], layer.key_value(keys)[None], context.query_stream())[0],
        expected[length:],
        rtol=1e-4,
        atol=1e-5,
    )


def test_which_token_attends_to_which() -> None:
    """Given tokens see each other; a predicted one is seen by those after it, and by its own content."""
    order = torch.tensor([[0, 2, 0, 1]])
    sees, seen = permutation_masks(order, torch.tensor([[1, 3]]))
    assert sees[0].int().tolist() == [[1, 0, 1, 0], [1, 1, 1, 1], [1, 0, 1, 0], [1, 0, 1, 1]]
    assert seen[0].int().tolist() == [[1, 0, 1, 1], [1, 0, 1, 0]]


@torch.no_grad()
def test_never_sees_what_it_predicts_in_any_order() -> None:
    """In all orders of three masks each prediction hangs on what is given and those before it, on nothing else."""
    model = make()
    filler: Any = require(model, FillsInOrder)
    text, at = tokens(1, 7), torch.tensor([[1, 3, 6]])
    for ranks in itertools.permutations((1, 2, 3)):
        order = torch.zeros_like(text).scatter(1, at, torch.tensor([ranks]))
        before = filler.read_in_order(tokens=text, order=order, at=at).hidden[0]
        for changed, place in enumerate(at[0].tolist()):
            other = text.clone()
            other[0, place] = (other[0, place] + 1) % V
            after = filler.read_in_order(tokens=other, order=order, at=at).hidden[0]
            moved = [(after[k] - before[k]).abs().max().item() > 1e-6 for k in range(3)]
            assert moved == [ranks[k] > ranks[changed] for k in range(3)]
        other = text.clone()
        other[0, 2] = (other[0, 2] + 1) % V  # what is given matters to all
        assert ((filler.read_in_order(tokens=other, order=order, at=at).hidden[0] - before).abs().amax(1) > 1e-6).all()


@torch.no_grad()
def test_the_chain_rule_holds_in_every_order() -> None:
    """The probabilities of all fillings of two masks sum to 1, whichever is filled first."""
    model = make(width=6, heads=2)
    filler: Any = require(model, FillsInOrder)
    pairs = torch.cartesian_prod(torch.arange(V), torch.arange(V))
    text = tokens(1, 6).repeat(len(pairs), 1)
    at = torch.tensor([[2, 4]]).expand(len(pairs), -1)
    text.scatter_(1, at, pairs)
    for ranks in ([1, 2], [2, 1]):
        order = torch.zeros_like(text).scatter(1, at, torch.tensor([ranks]).expand(len(pairs), -1))
        scores = filler.logits(filler.read_in_order(tokens=text, order=order, at=at).hidden).double().log_softmax(-1)
        joint = scores.gather(2, pairs[..., None]).sum((1, 2))
        assert joint.exp().sum().item() == pytest.approx(1.0, abs=1e-5)


@torch.no_grad()
def test_left_to_right_is_the_order_of_the_text() -> None:
    """The score of a text is that of the permutation 1, 2, 3, … in one pass; token by token it is the same."""
    model = make()
    reader: Any = require(model, PredictsNext)
    filler: Any = require(model, FillsInOrder)
    text = tokens(2, 9)
    nats, _ = reader.score(text[:, :-1], text[:, 1:], reader.start(2))
    order = torch.arange(9).expand(2, -1)
    at = torch.arange(1, 9).expand(2, -1)
    hidden = filler.read_in_order(tokens=text, order=order, at=at).hidden
    expected = filler.nll(hidden.flatten(0, 1), text[:, 1:].flatten()).view(2, 8)
    torch.testing.assert_close(nats, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layers", [1, 3])
@torch.no_grad()
def test_memory_is_one_long_pass(layers: int) -> None:
    """Segment by segment the same to 1e-4 as all at once, where the memory holds everything."""
    model = make(layers=layers)
    reader: Any = require(model, PredictsNext)
    text = tokens(2, 31)
    whole, _ = reader.score(text[:, :-1], text[:, 1:], reader.start(2))
    state, parts = reader.start(2), []
    for start, end in ((0, 7), (7, 8), (8, 20), (20, 30)):
        nats, state = reader.score(text[:, start:end], text[:, start + 1 : end + 1], state)
        parts.append(nats)
    assert (torch.cat(parts, 1) - whole).abs().max() <= 1e-4


@torch.no_grad()
def test_a_memory_of_learning_says_the_same() -> None:
    """While learning it holds vectors, and afterwards keys and values: the same numbers, with gradients into both."""
    model, text, at = make(memory=5), tokens(2, 12), torch.tensor([[1, 3], [0, 4]])
    filler: Any = require(model, FillsInOrder)
    order = torch.zeros(2, 6, dtype=torch.long).scatter(1, at, torch.tensor([[2, 1], [1, 2]]))
    found = []
    for training in (True, False):
        model.train(training)
        _, state = filler.read_in_order(tokens=text[:, :6], order=order, at=at, state=model.start(2))
        hidden, state = filler.read_in_order(tokens=text[:, 6:], order=order, at=at, state=detach_state(state))
        assert state.layers[0].shape[1:] == (5, 12 if training else 24)
        found.append(hidden)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_what_stands_in_a_mask_changes_nothing() -> None:
    """A mask is a position, not a token: whatever fills it up is not looked at."""
    filler: Any = require(make(), FillsMasks)
    text, at = tokens(3, 8), torch.tensor([[2, 5], [0, 7], [3, 4]])
    other = text.scatter(1, at, tokens(3, 2))
    assert torch.equal(filler.fill(tokens=text, at=at), filler.fill(tokens=other, at=at))
    each = filler.read(tokens=text)  # every token from all others
    for place in range(8):
        other = text.index_fill(1, torch.tensor([place]), 3)
        torch.testing.assert_close(filler.read(tokens=other)[:, place], each[:, place], rtol=1e-4, atol=1e-5)
        alone = filler.read(tokens=text, at=torch.full((3, 1), place))
        torch.testing.assert_close(each[:, place : place + 1], alone, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_padding_and_watching_change_no_prediction() -> None:
    model = make()
    filler: Any = require(model, FillsInOrder)
    text, at, lengths = tokens(2, 9), torch.tensor([[1, 4], [2, 0]]), torch.tensor([9, 5])
    padded = filler.read(tokens=text, at=at, lengths=lengths)
    torch.testing.assert_close(padded[1:], filler.read(tokens=text[1:, :5], at=at[1:]), rtol=1e-4, atol=1e-5)
    with watching(model, "blocks.0.attention.probabilities") as seen:
        torch.testing.assert_close(filler.read(tokens=text, at=at, lengths=lengths), padded)
    (weights,) = seen["blocks.0.attention.probabilities"]
    assert weights.shape == (2, 3, 9 + 2, 9)
    assert not weights[0, :, :, 1][:, [0, 2, 3, 4, 9, 10]].any()  # only the mask attends to itself
    assert not weights[1, :, :, 5:][:, :5].any()
    order = torch.zeros_like(text).scatter(1, at, 1)
    assert filler.read_in_order(tokens=text, order=order, at=at).state is not None
    assert filler.read_in_order(tokens=text, order=order, at=at, lengths=lengths).state is None, "padding is no memory"


def test_flops_are_counted_as_torch_counts_them() -> None:
    """Of both streams, after a memory; W_R R, once for the batch, is left out."""
    from torch.utils.flop_counter import FlopCounterMode

    model = make(width=16, heads=2, memory=24).train()
    filler: Any = require(model, FillsInOrder)
    text, at = tokens(8, 24), torch.rand(8, 24).argsort(1)[:, :4]
    order = torch.zeros_like(text).scatter(1, at, torch.arange(1, 5).expand(8, -1))
    _, state = filler.read_in_order(tokens=text, order=order, at=at)
    with FlopCounterMode(display=False) as counter:
        filler.read_in_order(tokens=text, order=order, at=at, state=detach_state(state))
    once = 2 * 2 * (48 + 24 - 1) * 16**2  # in 2 layers
    counted = counter.get_total_flops() - once
    assert model.filling_flops(24, fraction=4 / 24, memory_length=24) * text.numel() == pytest.approx(counted, rel=0.02)
    with FlopCounterMode(display=False) as counter:
        model(text)
    counted = counter.get_total_flops() - 2 * 2 * 47 * 16**2
    assert model.body_flops(24) * text.numel() == pytest.approx(counted, rel=0.02)


def test_published_sizes() -> None:
    """XLNet base has BERT base's size without positions; large 340 million and more (table 1 of the release)."""
    from lmlab.costs.design import describe

    found = {size: describe("xlnet", size=size, vocabulary=32_000).parameters.total for size in ("base", "large")}
    assert found == {"base": 116_718_336, "large": 360_268_800}


def test_an_order_that_is_none_is_refused() -> None:
    filler: Any = require(make(), FillsInOrder)
    text, at = tokens(1, 5), torch.tensor([[1]])
    for order in (torch.zeros(1, 4, dtype=torch.long), torch.tensor([[0, -1, 0, 0, 0]])):
        with pytest.raises(ValueError, match="give one number for each token"):
            filler.read_in_order(tokens=text, order=order, at=at)


def test_a_task_reads_both_ways_so_it_cannot_predict_what_follows() -> None:
    from lmlab.objectives import create_objective
    from lmlab.tokenizers import train

    tokenizer = train("words", ["the planet Mars"]).with_specials(("pad", "cls", "sep", "mask"))
    frame = dict(LINEAGE["xlnet"].task.frame)
    settings = {"kind": "classification", "labels": ["a", "b"], "auxiliary": 0.5, "frame": frame}
    with pytest.raises(ValueError, match="those of xlnet know what follows"):
        create_objective(settings, tokenizer, None).heads(make())


@torch.no_grad()
def test_vectors_of_padded_texts_are_those_of_each_alone() -> None:
    from lmlab.analysis.layer_vectors import read_layers
    from lmlab.layers.layer_mix import select_layers

    model, text, lengths = make(), tokens(2, 9), torch.tensor([9, 4])
    both = read_layers(model, text, lengths, select_layers("last"))
    alone = read_layers(model, text[1:, :4], lengths[1:], select_layers("last"))
    torch.testing.assert_close(both[1:, :4], alone, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_what_tasks_read_remembers_the_text_before() -> None:
    model = make()
    before, text = tokens(1, 5), tokens(1, 4)
    memory = model(before).state
    known = model(text, state=memory).hidden
    again = model(text, state=model(before, state=model.start(1)).state).hidden
    torch.testing.assert_close(known, again)
    assert not torch.allclose(known, model(text).hidden, atol=1e-3)
    assert model(tokens(2, 5), lengths=torch.tensor([5, 3])).state is None, "padding is not remembered"


@pytest.mark.parametrize(("initial", "fraction"), [("scaled", 1.0), ("half-scaled", 0.5)])
def test_scaled_weights_are_those_of_bert_or_half_of_them(initial: str, fraction: float) -> None:
    """σ = 1 / √inputs wherever a setting is called so, within 5% for the 4096 weights of a matrix."""
    sizes = {"vocabulary": V, "width": 64, "heads": 4, "initial": initial}
    for parameter in create("xlnet", sizes, size="tiny").blocks.parameters():
        if parameter.ndim == 2 and len(parameter) >= 64:
            assert parameter.std().item() == pytest.approx(fraction / math.sqrt(parameter.shape[1]), rel=0.05)
    if initial == "scaled":
        bert: Any = create("bert", sizes, size="tiny")
        assert bert.blocks[0].feed_forward.expand.weight.std().item() == pytest.approx(1 / 8, rel=0.05)


def test_a_text_read_from_its_end_is_the_same_text() -> None:
    """Distances are those of the text: reversed, with `backwards` given, nothing changes."""
    model, text = make(), tokens(2, 9)
    filler: Any = require(model, FillsInOrder)
    at = torch.tensor([[1, 5, 8], [0, 2, 3]])
    order = torch.zeros_like(text).scatter(1, at, torch.tensor([[2, 1, 3], [1, 3, 2]]))
    reported = {"backwards": torch.ones(2, dtype=torch.bool)}
    with torch.no_grad():
        forwards = filler.read_in_order(tokens=text, order=order, at=at).hidden
        turned = {"tokens": text.flip(1), "order": order.flip(1), "at": 8 - at}
        torch.testing.assert_close(filler.read_in_order(**turned, **reported).hidden, forwards, atol=1e-5, rtol=1e-5)
        assert (filler.read_in_order(**turned).hidden - forwards).abs().max() > 1e-2

        behind, none = tokens(2, 4), torch.zeros(2, 4, dtype=torch.long)
        first = torch.zeros(2, 1, dtype=torch.long)
        memory = filler.read_in_order(tokens=behind.flip(1), order=none, at=first, **reported).state
        found = filler.read_in_order(**turned, **reported, state=memory).hidden
        sees, seen = permutation_masks(order, at)
        apart = torch.zeros(2, 13, 13, dtype=torch.bool)  # what was read first saw nothing of what came then
        apart[:, :9, :9], apart[:, :9, 9:], apart[:, 9:, 9:] = sees, True, True
        query_mask = torch.nn.functional.pad(seen, (0, 4), value=True)
        whole, _ = model.read_streams(Text(torch.cat((text, behind), 1)), QueryStream(at, apart, query_mask))
        torch.testing.assert_close(found, whole, atol=1e-5, rtol=1e-5)
