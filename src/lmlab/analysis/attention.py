"""Attention by layer and head: the weights of one pass over a text, and statistics of each head.

The weights are those of the very pass that is watched (layers/watching.py); nothing is computed twice. They show where
a head looks, not why the model decides as it does (Jain & Wallace 2019). Shapes: L layers, H heads, T queries, S keys.
`Rollout` follows attention through all layers; `Links` ranks the heads by their weight from one word to another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lmlab.analysis.alignment import attention_names
from lmlab.analysis.view import Viewed
from lmlab.layers.watching import watching
from lmlab.messages import ArgumentError
from lmlab.models import name_of
from lmlab.models.abilities import FillsMasks, ability, learns_by_gradient
from lmlab.models.model import EncoderDecoder
from lmlab.pages.figures import Bar, Bars, Figure, Heatmap
from lmlab.pages.views import Table
from lmlab.tokenizers.frames import collate, pad_rows

Weights = NDArray[np.float32]
NAME = "probabilities"
"""What the modules are called through which attention passes its weights."""
MOST_WEIGHTS = 2**26
"""Weights of all heads of a text, where the model has no window."""
MOST_CELLS = 12_000
"""Cells of all heads that a page draws; of larger ones the mean of each layer."""


class HeadSummary(NamedTuple):
    """Where a head looks, as means over the tokens of the text.

    Weights on the token itself, on the one before and after, on the first position, and on special tokens. `distance`
    is in tokens, `entropy` in bits (0 where all attention is on one token).
    """

    layer: int
    head: int
    entropy: float
    distance: float | None
    itself: float | None
    previous: float | None
    following: float | None
    first: float
    special: float


@dataclass(frozen=True)
class Attention(Viewed):
    """The weights of one kind of attention: a text to itself, or a target to its source."""

    kind: str
    """self, encoder, decoder or cross."""
    queries: list[str]
    keys: list[str]
    weights: Weights  # [L, H, T, S]
    special: list[bool] = field(default_factory=list)
    """Which keys are special tokens."""
    layer: int | None = None
    head: int | None = None
    """What is drawn; None for all."""
    removed: tuple[tuple[int, str], ...] = ()
    """Tokens that the model was not given, and where they were: in queries and keys, in cross-attention in keys."""
    title: str = field(default="Attention", init=False)

    def __post_init__(self) -> None:
        layers, heads = self.weights.shape[:2]
        for name, value, count in (("layer", self.layer, layers), ("head", self.head, heads)):
            if value is not None and not 0 <= value < count:
                raise ArgumentError(name, value, f"there are {count}, 0 to {count - 1}")

    def of(self, *, layer: int | None = None, head: int | None = None) -> Attention:
        """The same, with one layer or head selected for the plot."""
        return replace(self, layer=layer, head=head)

    def heads(self) -> list[HeadSummary]:
        """What each head does."""
        layers, heads, _, _ = self.weights.shape
        return [self._describe(layer, head) for layer in range(layers) for head in range(heads)]

    def _describe(self, layer: int, head: int) -> HeadSummary:
        a = self.weights[layer, head].astype(np.float64)  # [T, S]
        entropy = float(-(a * np.log2(np.where(a > 0, a, 1.0))).sum(1).mean())
        special = float(a[:, np.array(self.special, bool)].sum(1).mean()) if self.special else 0.0
        first = float(a[:, 0].mean())
        if self.kind == "cross":
            return HeadSummary(layer, head, entropy, None, None, None, None, first, special)
        positions = np.arange(len(a))
        distance = float((a * np.abs(positions[:, None] - positions[None, :])).sum(1).mean())
        own, before, after = (float(np.diagonal(a, at).mean()) if len(a) > abs(at) else 0.0 for at in (0, -1, 1))
        return HeadSummary(layer, head, entropy, distance, own, before, after, first, special)

    def rollout(self) -> Weights:
        """How much of each key reaches each query through all layers: Π (½ Ā + ½ I) (Abnar & Zuidema 2020), [T, S].

        Ā is the mean over the heads; the identity is the residual connection.
        """
        if self.kind == "cross":
            raise ValueError("rollout follows attention of a text to itself from layer to layer, not from text to text")
        total = np.eye(self.weights.shape[2])
        for weights in self.weights.astype(np.float64).mean(1):
            total = (0.5 * weights + 0.5 * np.eye(len(weights))) @ total
        return total.astype(np.float32)

    def looking(self, source: str, target: str) -> list[tuple[int, int, float]]:
        """The heads by how much they look from one word to another ("it" to "cat"), best first: layer, head, weight."""
        at = [self._positions(self.queries, source), self._positions(self.keys, target)]
        found = self.weights[:, :, at[0]][:, :, :, at[1]].sum(-1).mean(-1)  # [L, H]
        order = np.argsort(-found, axis=None, kind="stable")
        return [(int(i // found.shape[1]), int(i % found.shape[1]), float(found.flat[i])) for i in order]

    @staticmethod
    def _positions(tokens: Sequence[str], word: str) -> list[int]:
        found = [position for position, token in enumerate(tokens) if token.strip(" ▁Ġ").removeprefix("##") == word]
        if not found:
            raise ValueError(f"no token is {word!r}; there are: {' '.join(token.strip() for token in tokens)}")
        return found

    def lead(self) -> str:
        layers, heads, queries, keys = self.weights.shape
        return f"{layers} layers of {heads} heads, {queries} queries over {keys} keys ({self.kind} attention)."

    def notes(self) -> list[str]:
        return ["attention shows where a head looks, which need not be why the model decides (Jain & Wallace 2019)"]

    def table(self) -> Table:
        kept = [name for name in HeadSummary._fields if any(getattr(each, name) is not None for each in self.heads())]
        rows = [tuple(getattr(each, name) for name in kept) for each in self.heads()]
        formats = {"layer": "d", "head": "d", "entropy": ".2f", "distance": ".1f"}
        return Table(tuple(kept), rows, tuple(formats.get(name, ".1%") for name in kept))

    def figures(self) -> list[Figure]:
        layers, heads, queries, keys = self.weights.shape
        if self.layer is not None or self.head is not None or layers * heads * queries * keys <= MOST_CELLS:
            return [
                self._map(self.weights[layer, head], f"Layer {layer}, head {head}")
                for layer in (range(layers) if self.layer is None else [self.layer])
                for head in (range(heads) if self.head is None else [self.head])
            ]
        found = [self._map(self.weights[layer].mean(0), f"Layer {layer}, mean of heads") for layer in range(layers)]
        return [*self._overview(), *found]

    def _overview(self) -> list[Figure]:
        """Layers by heads: how much each looks at the token before, at special tokens, how widely."""
        layers, heads = self.weights.shape[:2]
        names = [str(head) for head in range(heads)]
        rows = [f"layer {layer}" for layer in range(layers)]
        kinds = [("entropy", "Entropy in bits")] + [("special", "Weight on special tokens")] * any(self.special)
        if self.kind != "cross":
            kinds.append(("previous", "Weight on the token before"))
        described = self.heads()
        return [
            Heatmap(
                title,
                rows,
                names,
                [[getattr(described[heads * i + j], name) for j in range(heads)] for i in range(layers)],
            )
            for name, title in kinds
        ]

    def _map(self, weights: Weights, title: str) -> Figure:
        return Heatmap(title, self.queries, self.keys, weights.tolist(), most=1.0, unit=".1%")

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "queries": self.queries,
            "keys": self.keys,
            "special": self.special,
            "heads": [each._asdict() for each in self.heads()],
            "weights": np.round(self.weights.astype(np.float64), 6).tolist(),
        }


def self_attention_names(model: nn.Module) -> list[str]:
    """The names of all modules whose output is attention, but that from a target to its source."""
    cross = attention_names(model)
    names = [name for name, _ in model.named_modules()]
    return [name for name in names if name.rpartition(".")[2] == NAME and name not in cross]


def read_attention(
    model: Any, text: str, *, target: str | None = None, masked: Sequence[int] = ()
) -> dict[str, Attention]:
    """The attention of one pass over a text, by kind: `self`, or of a translator `encoder`, `decoder` and `cross`.

    `model` is a LanguageModel. A translator writes the target itself if none is given. A text is framed as the model
    reads it. The tokens of the text (of a translator its source) at the positions `masked` are hidden from the model:
    they are masked if it fills masks, else it reads the text without them.
    """
    network = model.model
    cross = attention_names(network) if learns_by_gradient(network) else []
    own = self_attention_names(network) if learns_by_gradient(network) else []
    if not cross and not own:
        raise ValueError(
            f"{name_of(network)} has no attention; look at its cells (lmlab inspect cells), or use a Transformer"
        )
    if network.main_input not in ("tokens", "source"):
        raise ValueError(
            f"{name_of(network)} needs a picture or a recording, not only text: attention over pictures is shown for "
            "vit and clip (lmlab inspect attention RUN PICTURE), and for captions by lmlab caption --attention"
        )
    if isinstance(network, EncoderDecoder):
        return _read_pair(model, network, text, target=target, own=own, cross=cross, masked=masked)
    (row,) = model.frame.rows([{"a": model.text_tokenizer.encode(text)}])
    pieces, parts = row.inputs["tokens"].pieces, row.inputs["tokens"].parts
    if not pieces:
        raise ValueError("there is no token in the text to read")
    if network.window is not None and len(pieces) > network.window:
        raise ValueError(f"the text has {len(pieces)} tokens, and the model reads at most {network.window}: shorten it")
    if network.window is None:
        _check_size(network, own, len(pieces))
    inputs = {name: part.to(network.device) for name, part in collate([row]).items()}
    hidden = hide(pieces, masked, network, model.text_tokenizer)
    for name, each in inputs.items():
        if each.shape == (1, len(pieces)):  # tokens, segments
            inputs[name] = each[:, hidden.kept]
    inputs = {name: each for name, each in inputs.items() if name != "lengths"}  # one text has no padding
    inputs["tokens"] = torch.tensor([hidden.pieces], device=network.device)
    with torch.inference_mode(), watching(network, *own) as seen:
        network(**inputs)
    shown = [model.text_tokenizer.show(piece) for piece in hidden.pieces]
    special = [not parts[position] for position in hidden.kept]
    return {"self": Attention("self", shown, shown, _stack(seen, own), special, removed=hidden.removed)}


def _check_size(network: Any, names: Sequence[str], length: int) -> None:
    """Raise an error if the weights of a text would fill the memory, where no window limits it."""
    config = getattr(network, "config", None)
    maps = max(len(names), getattr(config, "layers", 1)) * getattr(config, "heads", 1)
    if maps * length**2 > MOST_WEIGHTS:
        most = math.isqrt(MOST_WEIGHTS // maps)
        raise ValueError(f"the text has {length} tokens, and attention is shown of at most {most}: shorten it")


class Hidden(NamedTuple):
    """The tokens that a model is given where some are hidden from it."""

    pieces: list[int]
    kept: list[int]
    """The positions that these had."""
    removed: tuple[tuple[int, str], ...]
    """The positions and texts of those that are left out."""


def hide(pieces: Sequence[int], positions: Sequence[int], network: object, tokenizer: Any) -> Hidden:
    """Return the tokens with those at some positions hidden: masked if the model fills masks, else left out."""
    everything = list(range(len(pieces)))
    if positions and not 0 <= min(positions) <= max(positions) < len(pieces):
        raise ValueError(f"masked = {list(positions)}: there are {len(pieces)} tokens, from 0 on")
    if tokenizer.has_special("mask") and ability(network, FillsMasks) is not None:
        mask = tokenizer.special("mask")
        return Hidden([mask if at in positions else piece for at, piece in enumerate(pieces)], everything, ())
    kept = [position for position in everything if position not in positions]
    if not kept:
        raise ValueError(f"masked = {list(positions)}: at least one token must be left to read")
    removed = tuple((position, tokenizer.show(pieces[position])) for position in sorted(set(positions)))
    return Hidden([pieces[position] for position in kept], kept, removed)


def _read_pair(
    model: Any,
    network: EncoderDecoder,
    text: str,
    *,
    target: str | None,
    own: list[str],
    cross: list[str],
    masked: Sequence[int],
) -> dict[str, Attention]:
    translator = model.translator
    written: Any = target if target is not None else translator.translate([text])[0][0]
    sources, targets = translator.source_rows([text]), translator.target_rows([written])
    hidden = hide(sources[0], masked, network, translator.source_tokenizer or translator.tokenizer)
    sources = [hidden.pieces]
    source, lengths = pad_rows(sources, device=network.device)
    tokens, _ = pad_rows(targets, device=network.device)
    with torch.inference_mode(), watching(network, *own, *cross) as seen:
        network(tokens[:, :-1], source=source, lengths=lengths)
    read = [(translator.source_tokenizer or translator.tokenizer).show(piece) for piece in sources[0]]
    shown = [translator.tokenizer.show(piece) for piece in targets[0]]
    ends = [position == len(read) - 1 for position in range(len(read))]
    found = {}
    for kind in ("encoder", "decoder"):
        if names := [name for name in own if name.split(".")[0] == kind and seen[name]]:
            tokens_of = read if kind == "encoder" else shown[:-1]
            marks = ends if kind == "encoder" else [position == 0 for position in range(len(tokens_of))]
            removed = hidden.removed if kind == "encoder" else ()
            found[kind] = Attention(kind, tokens_of, tokens_of, _stack(seen, names), marks, removed=removed)
    if cross:
        weights = _stack(seen, cross, in_time=True)
        found["cross"] = Attention("cross", shown[1:], read, weights, ends, removed=hidden.removed)
    return found


def _stack(seen: dict[str, list[Tensor]], names: Sequence[str], *, in_time: bool = False) -> Weights:
    """[L, H, T, S]: a module that was called several times is several layers (ALBERT's), or one at several times."""
    layers: list[Tensor] = []
    for name in names:
        layers += [torch.cat(seen[name], dim=-2)] if in_time and seen[name] else seen[name]
    found: Weights = torch.cat([layer.float() for layer in layers]).cpu().numpy()
    assert math.isclose(float(found[0, 0, 0].sum()), 1.0, rel_tol=1e-3)
    return found


MOST_BARS = 24


@dataclass(frozen=True)
class Rollout(Viewed):
    """How much of each token reaches each other through all layers (Abnar & Zuidema 2020)."""

    tokens: list[str]
    weights: Weights  # [T, T]
    title: str = field(default="Attention rollout", init=False)

    @classmethod
    def of(cls, attention: Attention) -> Rollout:
        """That of a text's attention to itself."""
        return cls(attention.queries, attention.rollout())

    def lead(self) -> str:
        return f"What each of {len(self.tokens)} tokens has of the others after all layers; each row sums to 1."

    def table(self) -> Table:
        rows = [(token, *map(float, row)) for token, row in zip(self.tokens, self.weights, strict=True)]
        return Table(("token", *self.tokens), rows, ("", *[".2f"] * len(self.tokens)))

    def figures(self) -> list[Figure]:
        return [Heatmap("Rollout", self.tokens, self.tokens, self.weights.tolist(), unit=".1%")]


class Link(NamedTuple):
    """How much a head looks from the one word to the other."""

    layer: int
    head: int
    weight: float


@dataclass(frozen=True)
class Links(Viewed):
    """The heads that look most from one word to another: "it" to "cat", a verb to its object (Clark et al. 2019)."""

    source: str
    target: str
    links: list[Link]
    title: str = field(default="Heads that link two words", init=False)

    @classmethod
    def of(cls, attention: Attention, source: str, target: str) -> Links:
        """The heads of a text's attention, best first."""
        return cls(source, target, [Link(*each) for each in attention.looking(source, target)])

    def lead(self) -> str:
        best = self.links[0]
        return (
            f"Head {best.head} of layer {best.layer} has the largest weight from “{self.source}” to “{self.target}”: "
            f"{best.weight:.1%} of its attention there."
        )

    def notes(self) -> list[str]:
        return ["Exploratory: the best of many heads on one text. Try it on other texts."]

    def table(self) -> Table:
        return Table(("layer", "head", "weight"), self.links, ("d", "d", ".1%"))

    def figures(self) -> list[Figure]:
        bars = [Bar(f"layer {each.layer}, head {each.head}", each.weight) for each in self.links[:MOST_BARS]]
        return [Bars(f"From “{self.source}” to “{self.target}”", bars)]
