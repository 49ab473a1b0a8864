"""Cells and neurons over a text: states and gates of recurrent layers, and units of feed-forward layers.

Karpathy, Johnson & Fei-Fei 2015 found cells that keep track of quotes, brackets and the length of a line by looking at
their activations in colour. Shapes: T tokens, C units of a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lmlab.analysis.layer_vectors import SEGMENT
from lmlab.analysis.view import Viewed
from lmlab.layers.feedforward import HasUnits
from lmlab.layers.recurrent import Layer
from lmlab.layers.recurrent_encoder import RecurrentEncoder
from lmlab.layers.watching import watching
from lmlab.messages import ArgumentError
from lmlab.models import name_of
from lmlab.models.abilities import PredictsBothWays, PredictsNext, ability, learns_by_gradient
from lmlab.models.model import EncoderDecoder
from lmlab.pages.figures import ColouredText, Figure
from lmlab.pages.views import Table
from lmlab.progress import check_cancelled

Activations = NDArray[np.float32]
NEURONS = "neurons"


class CellPart(NamedTuple):
    """A part of a layer that has units: a state or a gate of a recurrent layer, neurons of a feed-forward one."""

    layer: int
    name: str
    path: str
    """The module that shows it."""


def cell_parts(model: nn.Module) -> list[CellPart]:
    """All parts of a model that can be looked at, first layer first."""
    found: list[CellPart] = []
    recurrent = feeding = 0
    packed = {each for module in model.modules() if isinstance(module, RecurrentEncoder) for each in module.modules()}
    for path, module in model.named_modules():
        if isinstance(module, Layer) and module not in packed:  # layers over packed texts are not unrolled
            found += [CellPart(recurrent, name, f"{path}.inside.{name}") for name in module.PARTS]
            recurrent += 1
        elif isinstance(module, HasUnits):
            found.append(CellPart(feeding, NEURONS, f"{path}.{module.expands}".removeprefix(".")))
            feeding += 1
    return found


def choose_parts(model: object, wanted: Sequence[str] = ()) -> list[CellPart]:
    """The parts that are selected by name; by default memory cells and hidden states, or neurons."""
    parts = cell_parts(model) if learns_by_gradient(model) else []
    if isinstance(model, EncoderDecoder):
        parts = []  # an encoder reads packed texts, a decoder writes: neither reads a text alone
    if not parts:
        raise ValueError(
            f"{name_of(model)} has no cells or neurons to look at; use a run of rnn, gru, lstm or awd-lstm, or "
            f"a Transformer that reads one text"
        )
    names = list(dict.fromkeys(part.name for part in parts))
    if unknown := [name for name in wanted if name not in names]:
        raise ValueError(f"part {unknown[0]!r} is not known; this model has: {', '.join(names)}")
    kept = wanted or [name for name in ("cell", "hidden", NEURONS) if name in names]
    return [part for part in parts if part.name in kept]


class Read(NamedTuple):
    """A text as tokens, each with its characters, and the activations of each part [T, C]."""

    text: str
    tokens: list[str]
    offsets: list[tuple[int, int]]
    activations: dict[CellPart, Activations]


@torch.inference_mode()
def read_cells(model: Any, text: str, *, parts: Sequence[str] = ()) -> Read:
    """The activations of a LanguageModel's units while it reads a text, at each of its tokens.

    What stateful a state reads a text of any length, and of ELMo that is the direction from left to right; a model with
    a window, or one that reads both ways (XLNet) or backwards, reads it in pieces that each begin with a new state.
    """
    network, tokenizer = model.model, model.text_tokenizer
    chosen = choose_parts(network, parts)
    ids, offsets = tokenizer.encode_with_offsets(text)
    if not ids:
        raise ValueError("there is no token in the text to read")
    paths = list(dict.fromkeys(part.path for part in chosen))
    seen: dict[str, list[list[Tensor]]] = {path: [] for path in paths}  # one list for each time that a pass comes by
    for run, kept in _segments(model, ids):
        check_cancelled()
        with watching(network, *paths) as found:
            run()
        for path in paths:
            for time, values in enumerate(_times(found[path], most=max(kept))):
                if time == len(seen[path]):
                    seen[path].append([])
                seen[path][time].append(values[0, kept].float().cpu())
    activations: dict[CellPart, Activations] = {}
    for part in chosen:
        for time, pieces in enumerate(seen[part.path]):  # none of ELMo's other direction, several of a shared layer
            value = torch.cat(pieces)
            if part.name == NEURONS:
                value = cast(HasUnits, network.get_submodule(part.path.rpartition(".")[0])).units(value)
            activations[part._replace(layer=part.layer + time)] = value.numpy()
    return Read(text, [tokenizer.show(token) for token in ids], offsets, activations)


def _times(seen: Sequence[Tensor], *, most: int) -> list[Tensor]:
    """What a module gave in one pass: apart for each time that it read all of it (ALBERT), joined if piece by piece."""
    if len(seen) > 1 and all(values.shape[1] == seen[0].shape[1] > most for values in seen):
        return list(seen)
    return [torch.cat(list(seen), dim=1)] if seen else []


def _segments(model: Any, ids: Sequence[int]) -> Iterator[tuple[Callable[[], object], list[int]]]:
    """What runs each of the passes over a text, and the positions of the text's tokens in it."""
    network, frame = model.model, model.frame
    both = ability(network, PredictsBothWays)
    reader: Any = network if both is None else both.directions()[0]
    if isinstance(reader, PredictsNext) and reader.window is None and not frame.backwards:
        before = frame.row()["tokens"][:1]
        stream, state = torch.tensor([[*before, *ids]], device=network.device), reader.start(1)
        for number, segment in enumerate(torch.split(stream, SEGMENT, dim=1)):

            def carry(segment: Tensor = segment) -> None:
                nonlocal state
                state = cast(Any, reader)(segment, state=state).state

            yield carry, list(range(len(before) if number == 0 else 0, segment.shape[1]))
        return
    room = (network.window or SEGMENT) - frame.overhead("tokens", "a")
    for start in range(0, len(ids), room):
        (row,) = frame.rows([{"a": list(ids[start : start + room])}])
        tokens = torch.tensor([row.inputs["tokens"].pieces], device=network.device)
        positions = row.inputs["tokens"].positions("a")
        yield partial(network, tokens), [positions[i] for i in range(len(positions))]


@dataclass(frozen=True)
class CellText(Viewed):
    """One unit over a text, in colour: blue where it is above zero, orange below."""

    layer: int
    part: str
    unit: int
    pieces: list[tuple[str, float]]
    title: str = field(default="A cell over a text", init=False)

    @classmethod
    def of(cls, read: Read, *, layer: int, part: str, unit: int) -> CellText:
        """A unit of a text that was read."""
        parts = {(each.layer, each.name): values for each, values in read.activations.items()}
        if (layer, part) not in parts:
            known = ", ".join(f"{name} of layer {number}" for number, name in parts)
            raise ValueError(f"there is no {part} of layer {layer}; read were: {known}")
        values = parts[layer, part]
        if not 0 <= unit < values.shape[1]:
            raise ArgumentError("unit", unit, f"there are {values.shape[1]}, 0 to {values.shape[1] - 1}")
        return cls(layer, part, unit, cut_at_tokens(read, values[:, unit]))

    def lead(self) -> str:
        values = [value for _, value in self.pieces]
        return (
            f"Unit {self.unit} of {self.part}, layer {self.layer}: {min(values, default=0.0):.2f} to "
            f"{max(values, default=0.0):.2f} over {len(values)} tokens."
        )

    def table(self) -> Table:
        rows = [(position, text, value) for position, (text, value) in enumerate(self.pieces)]
        return Table(("position", "token", "activation"), rows, ("d", "", "+.3f"))

    def figures(self) -> list[Figure]:
        most = max((abs(value) for _, value in self.pieces), default=1.0) or 1.0
        return [ColouredText(f"{self.part} {self.unit} of layer {self.layer}", self.pieces, most, unit="+.2f")]


def cut_at_tokens(read: Read, values: Activations) -> list[tuple[str, float]]:
    """The text of each token, with the text before it that no token covers, and its value."""
    found, position = [], 0
    for (_, end), value in zip(read.offsets, values.tolist(), strict=True):
        end = max(position, end)
        found.append((read.text[position:end], value))
        position = end
    return found
