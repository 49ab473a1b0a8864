"""What every system of the lineage that predicts a next token must do, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lineage_models import BOUNDARY, NETWORKS, PREDICT_NEXT, VOCABULARY, make, reader, tokens

from lmlab.decoding.chain_rule import score_tokens
from lmlab.models import LINEAGE, load_class
from lmlab.models.abilities import PredictsNext, learns_by_gradient, require
from lmlab.models.states import detach_state, reorder_state
from lmlab.objectives.causal import Causal
from lmlab.runs.model_files import load_weights, model_tensors
from lmlab.runs.storage import read_tensors, write_tensors
from losses import loss_of, mean_of

NEURAL = [name for name in PREDICT_NEXT if name in NETWORKS]


@pytest.fixture(params=PREDICT_NEXT)
def model(request: pytest.FixtureRequest) -> PredictsNext:
    return reader(request.param)


@pytest.fixture(params=NEURAL)
def neural(request: pytest.FixtureRequest) -> Any:
    return reader(request.param)


def test_meets_the_contract(model: Any) -> None:
    assert isinstance(model, PredictsNext)
    assert model.vocabulary == VOCABULARY
    logits, _ = model.step(tokens(3, 5), model.start(3))
    assert logits.shape == (3, VOCABULARY)
    nats, _ = model.score(tokens(3, 5), tokens(3, 5, seed=2), model.start(3))
    assert nats.shape == (3, 5)
    assert (nats > 0).all()


def test_scores_are_a_distribution(model: Any) -> None:
    """exp(-nats) over all possible next tokens sums to one."""
    prefix = tokens(1, 6).expand(VOCABULARY, 6)
    targets = torch.cat([prefix[:, 1:], torch.arange(VOCABULARY)[:, None]], dim=1)
    nats, _ = model.score(prefix, targets, model.start(VOCABULARY))
    assert torch.exp(-nats[:, -1].double()).sum().item() == pytest.approx(1.0, abs=1e-5)


@torch.no_grad()
def test_step_equals_score(model: Any) -> None:
    """Reading token by token, in pieces, or at once gives the same predictions."""
    text = tokens(2, 13)
    nats, _ = model.score(text[:, :-1], text[:, 1:], model.start(2))
    for pieces in ([1] * 12, [5, 1, 1, 5]):
        state, place = model.start(2), 0
        for size in pieces:
            logits, state = model.step(text[:, place : place + size], state)
            place += size
            stepped = -torch.log_softmax(logits.double(), -1).gather(1, text[:, place : place + 1])[:, 0]
            torch.testing.assert_close(stepped, nats[:, place - 1].double(), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_never_sees_the_future(model: Any) -> None:
    text = tokens(2, 12)
    changed = text.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % VOCABULARY
    first, _ = model.score(text[:, :-1], text[:, 1:], model.start(2))
    second, _ = model.score(changed[:, :-1], text[:, 1:], model.start(2))
    torch.testing.assert_close(first[:, :7], second[:, :7], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(first[:, 7:], second[:, 7:], atol=1e-5), "the past must matter"


@torch.no_grad()
def test_rows_do_not_mix(model: Any) -> None:
    text = tokens(3, 9)
    together, _ = model.score(text[:, :-1], text[:, 1:], model.start(3))
    for row in range(3):
        alone, _ = model.score(text[row : row + 1, :-1], text[row : row + 1, 1:], model.start(1))
        torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_states_can_be_reordered(model: Any) -> None:
    text = tokens(3, 6)
    index = torch.tensor([2, 0, 0])
    _, state = model.step(text[:, :5], model.start(3))
    moved, _ = model.step(text[index, 5:], reorder_state(state, index))
    direct, _ = model.step(text[index], model.start(3))
    torch.testing.assert_close(moved, direct, atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2, 7])
def test_batch_size_does_not_change_scores(model: Any, batch: int) -> None:
    """Nor does padding: documents of unequal length are scored side by side."""
    documents = [tokens(length, seed=length).numpy() for length in (1, 40, 7, 61, 24)]
    reference = score_tokens(model, documents, boundary=BOUNDARY, batch=3)
    other = score_tokens(model, documents, boundary=BOUNDARY, batch=batch)
    for one, two, document in zip(reference, other, documents, strict=True):
        assert len(one) == len(document)
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


def test_gradients_reach_every_parameter(neural: Any) -> None:
    neural.train()
    batch = Causal().batch(tokens(4, 13))
    loss = loss_of(Causal(), neural, batch)
    loss.sums["next"].backward()
    if neural.stateful:  # a memory is used only once there is one
        loss = loss_of(Causal(), neural, batch, detach_state(loss.state))
        loss.sums["next"].backward()
    gradients = {name: each.grad for name, each in neural.named_parameters() if ".segment" not in name}  # of pairs
    assert [name for name, gradient in gradients.items() if gradient is None or not gradient.any()] == []


def test_overfits_eight_sequences(neural: Any) -> None:
    """Each is predictable from its own past, so the loss must fall far below that of guessing."""
    neural.train()
    periods = [[i % VOCABULARY, (5 * i + 3) % VOCABULARY, (7 * i + 1) % VOCABULARY] for i in range(1, 9)]
    text = torch.tensor([(period * 8)[:21] for period in periods])
    optimizer = torch.optim.AdamW(neural.parameters(), lr=1e-2)
    batch = Causal().batch(text)
    for _ in range(300):
        loss = mean_of(Causal(), batch, loss_of(Causal(), neural, batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    guessing = np.log(VOCABULARY)
    limit = 0.5 if neural.__class__.__name__ == "BagOfWords" else 0.25  # without order, three tokens take turns
    assert loss.item() < limit * guessing


@pytest.mark.parametrize("name", NEURAL)
@torch.no_grad()
def test_saved_and_loaded_is_bit_equal(name: str, tmp_path: Path) -> None:
    path, neural = tmp_path / "model.safetensors", make(name)
    write_tensors(path, model_tensors(neural))
    torch.manual_seed(99)
    other = type(neural)(neural.config).eval()
    load_weights(other, read_tensors(path), source=path)
    text = tokens(2, 10)
    assert torch.equal(neural(text).hidden, other(text).hidden)
    one, two = (require(each, PredictsNext) for each in (neural, other))
    assert torch.equal(one.step(text, one.start(2))[0], two.step(text, two.start(2))[0])
    stored = sum(tensor.numel() for tensor in read_tensors(path).values())
    buffers = sum(buffer.numel() for buffer in neural.buffers())
    assert stored <= sum(p.numel() for p in neural.parameters()) + buffers, "tied tensors are stored once"


def test_flops_are_counted_as_torch_counts_them(neural: Any) -> None:
    """Within 2 per cent of torch's own counter; kernels that it cannot see into are replaced by plain ones."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    if "kernel" in type(neural.config).model_fields:
        neural = make(_name(neural), kernel="readable", once=False)
    neural.train()
    text = tokens(8, 24)
    state = detach_state(neural(text).state) if neural.stateful else None  # a memory counts once it is full
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        neural.logits(neural(text, state=state).hidden)
    assert neural.pretraining_flops(24) * text.numel() == pytest.approx(counter.get_total_flops(), rel=0.02)


def _name(model: Any) -> str:
    return next(name for name in LINEAGE if load_class(name) is type(model))


@pytest.mark.parametrize("name", LINEAGE)
def test_the_lineage_says_how_a_system_is_trained(name: str) -> None:
    assert (LINEAGE[name].trained_by == "gradient") == learns_by_gradient(make(name))
