"""Soft alignments: how much each word of a target attends to each word of its source.

Bahdanau, Cho & Bengio 2015, figure 3, read them from the one attention of a recurrent decoder. A Transformer has one in
each head of each decoder block: here the mean over the heads of the last block, unless another is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from lmlab.layers.watching import watching
from lmlab.messages import ArgumentError
from lmlab.models import name_of
from lmlab.models.model import EncoderDecoder
from lmlab.pages.figures import Heatmap
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, pad_rows

NAMES = ("cross_attention.probabilities", "alignment.probabilities")
"""How the modules are called through which attention from target to source passes its weights."""


class Alignment(NamedTuple):
    """Which source tokens the model looked at when it wrote each target token."""

    source: list[str]
    target: list[str]
    weights: list[list[float]]  # for each target token, over the source tokens; they sum to 1
    texts: tuple[str, str] = ("", "")  # the whole source and target, where they are known

    def _repr_html_(self) -> str:
        """In a notebook: the weights as a picture, target by source."""
        return Heatmap("Alignment", self.target, self.source, self.weights, most=1.0, unit=".1%").html()

    def in_order(self, before: int, after: int) -> Alignment:
        """The same for a model that reads its source backwards: reversed, except for the special tokens at its ends."""
        positions = list(range(len(self.source)))
        end = len(positions) - after
        positions[before:end] = positions[before:end][::-1]
        turned = [[row[position] for position in positions] for row in self.weights]
        return self._replace(source=[self.source[position] for position in positions], weights=turned)


def attention_names(model: nn.Module) -> list[str]:
    """The names of the modules whose output is the attention from target to source, first block first."""
    names = (name for name, _ in model.named_modules())
    return [name for name in names if any(name == end or name.endswith("." + end) for end in NAMES)]


@torch.inference_mode()
def cross_attention(
    model: EncoderDecoder,
    tokens: Tensor,
    *,
    source: Tensor,
    lengths: Tensor | None = None,
    layer: int = -1,
    head: int | None = None,
) -> Tensor:
    """The weights [B, T, S] with which targets [B, T] are written from sources [B, S], read while the model runs.

    `layer` counts the decoder blocks from 0, or from the last with -1; without `head` it is the mean over the heads.
    """
    names = attention_names(model)
    if not names:
        raise ValueError(f"{name_of(model)} has no attention from the target to the source, so nothing is aligned")
    if not -len(names) <= layer < len(names):
        raise ArgumentError("layer", layer, f"the decoder has the layers 0 to {len(names) - 1}; -1 is the last")
    with watching(model, names[layer]) as seen:
        model(tokens, source=source, lengths=lengths)
    weights = torch.cat(seen[names[layer]], dim=-2)  # [B, H, T, S]; a recurrent decoder may look once for each token
    if head is not None and not 0 <= head < weights.shape[1]:
        raise ArgumentError("head", head, f"there are {weights.shape[1]}, 0 to {weights.shape[1] - 1}")
    return weights.mean(1) if head is None else weights[:, head]


def align(
    model: EncoderDecoder,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    show_source: Callable[[int], str],
    show_target: Callable[[int], str],
    layer: int = -1,
    head: int | None = None,
    batch: int = 32,
) -> list[Alignment]:
    """The alignment of each pair: sources as they are read, targets from what begins them to what ends them."""
    found = []
    for first in range(0, len(sources), batch):
        rows, texts = sources[first : first + batch], targets[first : first + batch]
        source, lengths = pad_rows(rows, device=model.device)
        text, _ = pad_rows(texts, device=model.device)
        weights = cross_attention(model, text[:, :-1], source=source, lengths=lengths, layer=layer, head=head)
        for row, written, matrix in zip(rows, texts, weights.cpu().double(), strict=True):
            kept = matrix[: len(written) - 1, : len(row)].tolist()
            found.append(Alignment([*map(show_source, row)], [*map(show_target, written[1:])], kept))
    return found


class AlignedTarget(Protocol):
    """A target text together with the tokens that were generated for it."""

    @property
    def text(self) -> str: ...

    @property
    def tokens(self) -> list[int]: ...


class Translates(Protocol):
    """What turns texts into the rows that a translator reads and writes (decoding/translator.py)."""

    @property
    def model(self) -> Any: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def source_tokenizer(self) -> Tokenizer | None: ...

    @property
    def frame(self) -> Frame: ...

    def source_rows(self, texts: Sequence[str]) -> list[list[int]]: ...

    def target_rows(self, texts: Sequence[Any]) -> list[list[int]]: ...


@dataclass(frozen=True)
class Aligner:
    """Reads the attention from targets to sources while a translator reads both."""

    translator: Translates

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str | AlignedTarget],
        *,
        layer: int = -1,
        head: int | None = None,
        batch: int = 32,
    ) -> list[Alignment]:
        """How much each target token attends to each source token: the mean over the heads of the decoder's last block.

        Another `layer` (from 0) or a single `head` can be chosen. A translation is aligned by the tokens that it was
        written with.
        """
        if len(sources) != len(targets):
            raise ValueError(f"{len(sources)} sources and {len(targets)} targets: one target for each source is needed")
        translator = self.translator
        found = align(
            translator.model,
            translator.source_rows(sources),
            translator.target_rows(targets),
            show_source=(translator.source_tokenizer or translator.tokenizer).show,
            show_target=translator.tokenizer.show,
            layer=layer,
            head=head,
            batch=batch,
        )
        texts = [each if isinstance(each, str) else each.text for each in targets]
        found = [each._replace(texts=(a, b)) for each, a, b in zip(found, sources, texts, strict=True)]
        if "source" not in translator.frame.backwards:
            return found
        slots = [slot.is_part for slot, _ in translator.frame.layout("source", "a")]
        before, after = slots.index(True), slots[::-1].index(True)
        return [each.in_order(before, after) for each in found]
