"""What every system that writes a target text from a source must do, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lmlab.config import build
from lmlab.decoding.beam_search import beam_search
from lmlab.layers.recurrent import Layer
from lmlab.layers.watching import watching
from lmlab.models import LINEAGE, load_class
from lmlab.models.abilities import PredictsNext, WritesTarget
from lmlab.models.states import Decoding, reorder_state
from lmlab.runs.model_files import load_weights, model_tensors
from lmlab.runs.storage import read_tensors, write_tensors

VOCABULARY = 23
BOUNDARY = 0
SMALL: dict[str, Any] = {"width": 16, "hidden": 16, "heads": 2, "layers": 2, "inner": 24, "window": 24, "dropout": 0.0}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {}),
    "transformer-pre": ("transformer", {"norm": "pre", "decoder_layers": 1}),
    "transformer-two-vocabularies": ("transformer", {"source_vocabulary": VOCABULARY, "bias": True}),
    "bart": ("bart", {}),
    "seq2seq-none": ("seq2seq", {"attention": "none", "bidirectional": False}),
    "seq2seq-dot": ("seq2seq", {"attention": "dot", "tied": True}),
    "seq2seq-multiplicative": ("seq2seq", {"attention": "multiplicative", "cell": "gru", "encoder_hidden": 12}),
    "seq2seq-additive": ("seq2seq", {"attention": "additive", "cell": "rnn", "source_vocabulary": VOCABULARY}),
    "seq2seq-feeding": ("seq2seq", {"attention": "additive", "feeding": True, "width": 12, "tied": True}),
}


def make(name: str, **changes: Any) -> Any:
    """A tiny model of any system: the settings of SMALL that it has."""
    kind, own = VARIANTS[name]
    cls = load_class(kind)
    values = {**SMALL, "vocabulary": VOCABULARY, **own, **changes}
    torch.manual_seed(0)
    fields = cls.Config.model_fields
    return cls(build(cls.Config, {key: value for key, value in values.items() if key in fields}, where="model")).eval()


def tokens(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(1, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Four sources [4, 9] with their lengths, and targets [4, 8]."""
    return tokens(4, 9), torch.tensor([9, 3, 1, 6]), tokens(4, 8, seed=2)


def surprisals(model: Any, source: Tensor, lengths: Tensor | None, target: Tensor) -> Tensor:
    """Teacher-forced: the nats [B, T - 1] of each target token after the first."""
    hidden = model(target[:, :-1], source=source, lengths=lengths).hidden
    return model.nll(hidden.flatten(0, 1), target[:, 1:].flatten()).view(len(target), -1)


@pytest.fixture(params=list(VARIANTS))
def model(request: pytest.FixtureRequest) -> Any:
    return make(request.param)


def test_every_translator_of_the_lineage_is_here() -> None:
    systems = {name for name, system in LINEAGE.items() if system.does[0] == "target text"}
    assert systems == {kind for kind, _ in VARIANTS.values()}


def test_meets_the_contract(model: Any) -> None:
    assert isinstance(model, WritesTarget)
    source, lengths, target = batch()
    assert model.vocabulary == VOCABULARY
    state = model.begin(model.encode(source=source, lengths=lengths))
    assert isinstance(state, Decoding)
    logits, state = model.step(target[:, :3], state)
    assert logits.shape == (4, VOCABULARY)
    nats, _ = model.score(target[:, :-1], target[:, 1:], model.begin(model.encode(source=source, lengths=lengths)))
    torch.testing.assert_close(nats, surprisals(model, source, lengths, target), atol=1e-5, rtol=1e-5)
    assert model(target, source=source).state is None, "training builds no cache"
    assert not isinstance(model, PredictsNext), "there is nothing to write from without a source"


@pytest.mark.parametrize("beams", [1, 3])
@torch.no_grad()
def test_teacher_forcing_equals_the_sum_over_steps(model: Any, beams: int) -> None:
    """Token by token or in pieces, and with several texts in the writing that share what is known of a source."""
    source, lengths, _ = batch()
    text = tokens(4 * beams, 14, seed=3)
    every = torch.arange(4).repeat_interleave(beams)
    expected = surprisals(model, source[every], lengths[every], text).sum(1)
    for pieces in ([1] * 13, [4, 1, 1, 7]):
        state, place = model.begin(model.encode(source=source, lengths=lengths), beams=beams), 0
        total = torch.zeros(4 * beams)
        for size in pieces:
            piece = text[:, place : place + size + 1]
            nats, state = model.score(piece[:, :-1], piece[:, 1:], state)
            total += nats.sum(1)
            place += size
        torch.testing.assert_close(total, expected, atol=1e-4, rtol=1e-5)
    state = model.begin(model.encode(source=source, lengths=lengths), beams=beams)
    total = torch.zeros(4 * beams)
    for place in range(13):
        logits, state = model.step(text[:, place : place + 1], state)
        total -= logits.log_softmax(-1).gather(1, text[:, place + 1 : place + 2])[:, 0]
    torch.testing.assert_close(total, expected, atol=1e-4, rtol=1e-5)


@torch.no_grad()
def test_padding_changes_nothing(model: Any) -> None:
    """Neither how much of it there is, nor what stands in it, nor whether a source is alone or beside longer ones."""
    source, lengths, target = batch()
    expected = surprisals(model, source, lengths, target)
    longer = torch.cat([source, tokens(4, 5, seed=9)], dim=1)
    torch.testing.assert_close(surprisals(model, longer, lengths, target), expected, atol=1e-5, rtol=1e-5)
    other = torch.where(torch.arange(9) < lengths[:, None], source, tokens(4, 9, seed=7))
    torch.testing.assert_close(surprisals(model, other, lengths, target), expected, atol=1e-5, rtol=1e-5)
    for row, length in enumerate(lengths.tolist()):
        alone = surprisals(model, source[row : row + 1, :length], None, target[row : row + 1])
        torch.testing.assert_close(alone[0], expected[row], atol=1e-5, rtol=1e-5)


def test_padding_of_the_target_changes_nothing(model: Any) -> None:
    """Told or not how long each target is, a model says and learns the same from what is not padding."""
    source, lengths, target = batch()
    sizes = torch.tensor([3, 7, 5, 1])
    real = torch.arange(7) < sizes[:, None]
    gradients = []
    for reported in (None, sizes):
        hidden = model(target[:, :-1], source=source, lengths=lengths, target_lengths=reported).hidden
        model.zero_grad()
        nats = model.nll(hidden[real], target[:, 1:][real])
        nats.sum().backward()
        gradients.append([nats.detach(), *(parameter.grad for parameter in model.parameters())])
    for plain, spared in zip(*gradients, strict=True):
        torch.testing.assert_close(spared, plain, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_being_watched_changes_nothing(model: Any) -> None:
    """Who watches any part sees padded rows, and the numbers stay the same."""
    source, lengths, target = batch()
    sizes = torch.tensor([3, 8, 5, 1])
    inputs = {"source": source, "lengths": lengths, "target_lengths": sizes}
    expected = model(target, **inputs).hidden
    names = [name for name, _ in model.named_modules()]
    parts = [name for name in names if name.endswith(("feed_forward", "attention_norm"))]
    places = [name for name in names if name.endswith(("cross_attention.probabilities", "alignment.probabilities"))]
    real = torch.arange(8) < sizes[:, None]
    with watching(model, *parts, *places) as watched:
        torch.testing.assert_close(model(target, **inputs).hidden[real], expected[real], atol=1e-5, rtol=1e-5)
    assert {tuple(output.shape[:2]) for part in parts for output in watched[part]} <= {(4, 9), (4, 8)}
    seen = [weights for place in places for weights in watched[place]]
    if getattr(model.config, "feeding", False):  # which goes token by token
        seen = [torch.cat(seen, dim=2)]
    for weights in seen:
        assert weights.shape[0] == 4
        assert weights.shape[2:] == (8, 9)
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
        assert weights[1, :, :, 3:].abs().max() == 0


@torch.no_grad()
def test_order_of_the_batch_changes_nothing(model: Any) -> None:
    source, lengths, target = batch()
    order = torch.tensor([2, 0, 3, 1])
    expected = surprisals(model, source, lengths, target)[order]
    moved = surprisals(model, source[order], lengths[order], target[order])
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_sees_the_whole_source_and_no_future(model: Any) -> None:
    source, _, target = batch()
    expected = surprisals(model, source, None, target)
    for place in (0, 4, 8):
        changed = source.clone()
        changed[:, place] = changed[:, place] % (VOCABULARY - 1) + 1
        assert not torch.allclose(surprisals(model, changed, None, target), expected, atol=1e-6)
    changed = target.clone()
    changed[:, 5:] = changed[:, 5:] % (VOCABULARY - 1) + 1
    after = surprisals(model, source, None, changed)
    torch.testing.assert_close(after[:, :4], expected[:, :4], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(after[:, 5:], expected[:, 5:], atol=1e-5)


@torch.no_grad()
def test_states_can_be_reordered(model: Any) -> None:
    """With their sources, and beams among themselves while what is encoded stays where it is."""
    source, lengths, target = batch()
    index = torch.tensor([2, 0, 0])
    _, state = model.step(target[:, :7], model.begin(model.encode(source=source, lengths=lengths)))
    moved, _ = model.step(target[index, 7:], reorder_state(state, index))
    direct, _ = model.step(target[index], model.begin(model.encode(source=source[index], lengths=lengths[index])))
    torch.testing.assert_close(moved, direct, atol=1e-5, rtol=1e-5)

    texts = tokens(8, 7, seed=5)
    _, state = model.step(texts[:, :6], model.begin(model.encode(source=source, lengths=lengths), beams=2))
    beams = torch.tensor([1, 1, 2, 3, 5, 4, 6, 6])
    moved, _ = model.step(texts[beams, 6:], Decoding(state.encoded, reorder_state(state.decoder, beams)))
    direct, _ = model.step(texts[beams], model.begin(model.encode(source=source, lengths=lengths), beams=2))
    torch.testing.assert_close(moved, direct, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_beam_search_finds_what_the_model_scores(model: Any) -> None:
    source, lengths, _ = batch()
    start = torch.full((4, 1), BOUNDARY)
    state = model.begin(model.encode(source=source, lengths=lengths))
    found = beam_search(model, start, tokens=6, beams=3, boundary=BOUNDARY, state=state)
    for row, hypotheses in enumerate(found):
        for hypothesis in hypotheses:
            text = torch.tensor([[BOUNDARY, *hypothesis.tokens]])
            nats = surprisals(model, source[row : row + 1, : lengths[row]], None, text)
            assert -nats.sum().item() == pytest.approx(hypothesis.log_probability, abs=1e-3)


def test_gradients_reach_every_parameter(model: Any) -> None:
    source, lengths, target = batch()
    surprisals(model.train(), source, lengths, target).sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None or not gradient.any()] == []


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in ("transformer-pre", "seq2seq-feeding")])
def test_learns_to_turn_eight_texts_round(name: str) -> None:
    """Padded sources of unequal length, each to be written from its end: the loss must fall far below guessing."""
    model = make(name, width=32, hidden=32, inner=64, layers=1).train()
    lengths = torch.tensor([3, 4, 5, 6, 3, 4, 5, 6])
    source = tokens(8, 6)
    target = torch.full((8, 7), BOUNDARY)
    for row, length in enumerate(lengths.tolist()):
        target[row, 1 : length + 1] = source[row, :length].flip(0)
    wanted = torch.arange(6) < lengths[:, None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(150):
        loss = surprisals(model, source, lengths, target)[wanted].mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.2 * np.log(VOCABULARY)


@torch.no_grad()
def test_saved_and_loaded_is_bit_equal(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, model_tensors(model))
    torch.manual_seed(99)
    other = type(model)(model.config).eval()
    load_weights(other, read_tensors(path), source=path)
    source, lengths, target = batch()
    assert torch.equal(surprisals(model, source, lengths, target), surprisals(other, source, lengths, target))
    stored = sum(tensor.numel() for tensor in read_tensors(path).values())
    assert stored == sum(p.numel() for p in model.parameters()), "tied tensors are stored once"


@pytest.mark.parametrize(("source", "target"), [(12, 12), (9, 14)])
def test_flops_are_counted_as_torch_counts_them(
    model: Any, source: int, target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 1 per cent of torch's own counter; kernels that it cannot see into are replaced by plain ones."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    for layer in Layer.__subclasses__():
        monkeypatch.setattr(layer, "run", layer.unroll)
    unknown = {torch.ops.aten.mv: lambda matrix, vector, **_: 2 * matrix[0] * matrix[1]}
    with FlopCounterMode(display=False, custom_mapping=unknown) as counter, sdpa_kernel(SDPBackend.MATH):
        model.logits(model(tokens(3, target), source=tokens(3, source)).hidden)
    stated = model.pair_flops(source, target) + target * model.head_flops()
    assert 3 * stated == pytest.approx(counter.get_total_flops(), rel=0.01)
    whole = model.pair_flops(source, source) + source * model.head_flops()
    assert model.pretraining_flops(source) * source == pytest.approx(whole)
