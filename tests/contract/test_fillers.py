"""What every system of the lineage that fills blanks must do, whatever it is."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lmlab.config import build
from lmlab.layers.watching import watching
from lmlab.models import LINEAGE, load_class, system_of
from lmlab.models.abilities import Detects, FillsInOrder, FillsMasks, ability, require
from lmlab.models.model import EncoderModel
from lmlab.runs.model_files import load_weights, model_tensors
from lmlab.runs.storage import read_tensors, write_tensors

VOCABULARY = 23
MASK = VOCABULARY - 1
WINDOW = 24
SMALL: dict[str, Any] = {"width": 16, "heads": 2, "layers": 2, "window": WINDOW, "dropout": 0.0, "embedding_width": 8}
SYSTEMS = [name for name, system in LINEAGE.items() if system.does[0] == "masks"]


@pytest.fixture(params=SYSTEMS)
def model(request: pytest.FixtureRequest) -> Any:
    cls = load_class(request.param)
    values = {**LINEAGE[request.param].sizes["tiny"], "vocabulary": VOCABULARY, **SMALL}
    known = {key: value for key, value in values.items() if key in cls.Config.model_fields}
    torch.manual_seed(0)
    return cls(build(cls.Config, known, where="model")).eval()


def filler(model: Any) -> Any:
    """The encoder that fills blanks, with its head: in ELECTRA that is another one than what it is used for."""
    return require(model, FillsMasks)


def tokens(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(0, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def test_meets_the_contract(model: Any) -> None:
    assert isinstance(model, EncoderModel)
    assert model.vocabulary == VOCABULARY
    assert model.window in (WINDOW, None)
    assert model(tokens(3, 5)).hidden.shape == (3, 5, 16)
    assert (model(tokens(3, 5)).state is None) is not model.stateful, "a memory, where segments follow each other"
    part = filler(model)
    assert part.logits(part.read(tokens=tokens(3, 5))).shape == (3, 5, VOCABULARY)
    assert part.fill(tokens=tokens(3, 5), at=tokens(3, 2) % 5).shape == (3, 2, VOCABULARY)
    system = system_of(model)
    assert system is not None
    assert system.default_size in system.sizes
    assert system.objective["kind"] in ("masked", "replaced", "permutation")


@torch.no_grad()
def test_rows_do_not_mix(model: Any) -> None:
    text = tokens(3, 9)
    together = model(text).hidden
    for row in range(3):
        torch.testing.assert_close(model(text[row : row + 1]).hidden[0], together[row], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_padding_changes_nothing(model: Any) -> None:
    text, lengths = tokens(5, WINDOW), torch.tensor([4, WINDOW, 1, 4, 11])
    hidden = model(text, lengths=lengths).hidden
    for row, length in enumerate(lengths.tolist()):
        alone = model(text[row : row + 1, :length]).hidden[0]
        torch.testing.assert_close(hidden[row, :length], alone, atol=1e-5, rtol=1e-5)
        assert not hidden[row, length:].any()


@torch.no_grad()
def test_both_sides_matter(model: Any) -> None:
    text = tokens(1, 12)
    before = model(text).hidden
    for place in (0, 11):
        changed = text.clone()
        changed[0, place] = (changed[0, place] + 1) % VOCABULARY
        assert ((model(changed).hidden - before).abs().amax(2) > 1e-6).all()


def test_overfits_eight_sequences(model: Any) -> None:
    """Each is known from what is left of it, so the loss at the blanks must fall far below that of guessing."""
    part, encoder = filler(model), filler(model).encoder.train()
    periods = [[i % 22, (5 * i + 3) % 22, (7 * i + 1) % 22] for i in range(1, 9)]
    text = torch.tensor([(period * 8)[:21] for period in periods])
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(250):
        places = torch.rand(text.shape, generator=generator).argsort(1)[:, :3]
        hidden = part.read(tokens=text.scatter(1, places, MASK))
        chosen = hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))
        loss = part.total_nll(chosen.flatten(0, 1), text.gather(1, places).flatten()) / places.numel()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert np.mean(losses[-10:]) < 0.25 * np.log(VOCABULARY)


@torch.no_grad()
def test_saved_and_loaded_is_bit_equal(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, model_tensors(model))
    torch.manual_seed(99)
    other = type(model)(model.config).eval()
    load_weights(other, read_tensors(path), source=path)
    text = tokens(2, 10)
    assert torch.equal(model(text).hidden, other(text).hidden)
    ours, theirs = filler(model), filler(other)
    assert torch.equal(ours.logits(ours.read(tokens=text)), theirs.logits(theirs.read(tokens=text)))
    stored = sum(tensor.numel() for tensor in read_tensors(path).values())
    assert stored == sum(p.numel() for p in model.parameters()), "tied tensors are stored once"


def test_flops_are_counted_as_torch_counts_them(model: Any) -> None:
    """The encoder's for every token, the head's for each predicted one."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    if isinstance(filler(model), FillsInOrder):
        pytest.skip("its blanks are a stream of their own: see test_xlnet.py")
    text, part = tokens(8, WINDOW), filler(model)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        hidden = part.read(tokens=text)
    assert part.reading_flops({"tokens": text}) == pytest.approx(counter.get_total_flops(), rel=1e-6)
    if (detector := ability(model, Detects)) is not None:
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            detector.detect(tokens=text)
        assert detector.detection_flops({"tokens": text}) == pytest.approx(counter.get_total_flops(), rel=1e-6)
    with FlopCounterMode(display=False) as counter:
        part.logits(hidden[:, :3])
    assert part.head_flops() * 24 == pytest.approx(counter.get_total_flops(), rel=1e-6)


@pytest.mark.parametrize("padding", ["none", "packed", "masked"])
def test_asking_at_places_is_the_whole_at_these_places(model: Any, padding: str) -> None:
    """The vectors and every gradient, in double precision; packed on a CPU, masked where somebody watches."""
    part = filler(model).encoder.double()
    text = tokens(4, WINDOW)
    lengths = None if padding == "none" else torch.tensor([4, WINDOW, 9, 4])
    at = torch.tensor([[0, 3, 3], [0, 23, 7], [8, 1, 0], [2, 3, 0]])
    rows = torch.arange(4)[:, None]
    upstream = torch.randn(4, 3, 16 if part is model else 8, dtype=torch.double)
    whole = part(text, lengths=lengths).hidden[rows, at]
    expected = torch.autograd.grad((whole * upstream).sum(), list(part.blocks.parameters()), materialize_grads=True)
    with watching(part, "dropout") if padding == "masked" else nullcontext():
        asked = part(text, lengths=lengths, at=at).hidden
    gradients = torch.autograd.grad((asked * upstream).sum(), list(part.blocks.parameters()), materialize_grads=True)
    torch.testing.assert_close(asked, whole)
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other)


def test_asking_at_places_costs_what_is_reported(model: Any) -> None:
    """The last layer's keys and values of all tokens, the rest of it at three places of each row."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    if isinstance(filler(model), FillsInOrder):
        pytest.skip("W_R R is computed once for a batch: see test_xlnet.py")
    part, text, at = filler(model).encoder, tokens(8, WINDOW), tokens(8, 3)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        part(text, at=at)
    some = part.body_flops(WINDOW, fraction=3 / WINDOW)
    assert some * text.numel() == pytest.approx(counter.get_total_flops(), rel=1e-6)
    assert some < part.body_flops(WINDOW) == part.body_flops(WINDOW, fraction=1.0)
