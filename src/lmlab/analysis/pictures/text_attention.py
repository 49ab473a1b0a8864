"""Attention between the words of a text and the regions of a picture (VisualBERT, ViLBERT).

The weights are those of one watched pass (layers/watching.py). In a model of one stream they are a part of its
self-attention: the rest of a word's weight is on other words. In a model of two streams they are its co-attention: the
rest is on [IMG], the whole picture. Shapes: L layers, H heads, T tokens, R regions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.analysis.attention import NAME
from lmlab.analysis.view import Viewed, plain
from lmlab.data.readers.examples import Example
from lmlab.data.readers.media import Picture
from lmlab.data.readers.pictures.decoding import read_picture
from lmlab.data.readers.pictures.regions import GRID, grid_boxes, make_vectors
from lmlab.layers.watching import watching
from lmlab.messages import ArgumentError
from lmlab.models import name_of
from lmlab.models.abilities import ReadsRegions, require
from lmlab.objectives.masked_captions import collate_regions
from lmlab.pages.figures import Figure, Heatmap
from lmlab.pages.figures.pictures import PictureHeatmap
from lmlab.pages.views import Table
from lmlab.tokenizers.frames import collate
from lmlab.tokenizers.processors.pictures import PictureProcessor

Weights = NDArray[np.float32]
CELLS = 24
"""Rows and columns of cells in which boxes are drawn."""


class CrossWeights(NamedTuple):
    """Where a head attends: the mean weight of words on regions, of regions on words, and the entropy in bits.

    `entropy` is that of a word's weights on the regions, as fractions of their sum.
    """

    layer: int
    head: int
    words_on_regions: float
    regions_on_words: float
    entropy: float


@dataclass(frozen=True)
class PictureTextAttention(Viewed):
    """The attention of each word to the regions of a picture, and back."""

    pixels: NDArray[np.uint8]  # [height, width, channels]
    tokens: list[str]
    regions: list[str]
    """Names of the regions: those of the data, or numbers; of a grid of patches row and column."""
    boxes: NDArray[np.float32]  # [R, 4]
    to_regions: Weights  # [L, H, T, R]
    to_words: Weights  # [L, H, R, T]
    match: float | None = None
    """The probability that the text describes the picture; None where the run has not learnt that."""
    prediction: str = ""
    """The class that a fine-tuned run predicts, with its probability."""
    layer: int | None = None
    head: int | None = None
    title: str = field(default="Attention between words and regions", init=False)

    def __post_init__(self) -> None:
        shape = self.to_regions.shape[:2]
        for name, value, count in zip(("layer", "head"), (self.layer, self.head), shape, strict=True):
            if value is not None and not 0 <= value < count:
                raise ArgumentError(name, value, f"there are {count}, 0 to {count - 1}")

    def of(self, *, layer: int | None = None, head: int | None = None) -> PictureTextAttention:
        """The same, limited to one layer or head."""
        return replace(self, layer=layer, head=head)

    def heads(self) -> list[CrossWeights]:
        """Statistics of each head."""
        on_regions = self.to_regions.astype(np.float64)
        among = on_regions / np.maximum(on_regions.sum(-1, keepdims=True), 1e-12)
        entropy = -(among * np.log2(np.where(among > 0, among, 1.0))).sum(-1).mean(-1)
        words, regions = on_regions.sum(-1).mean(-1), self.to_words.astype(np.float64).sum(-1).mean(-1)
        return [
            CrossWeights(
                layer, head, float(words[layer, head]), float(regions[layer, head]), float(entropy[layer, head])
            )
            for layer in range(words.shape[0])
            for head in range(words.shape[1])
        ]

    def chosen(self) -> Weights:
        """The weights [T, R] that are drawn: the mean over the layers and heads that are not excluded."""
        layers = slice(None) if self.layer is None else slice(self.layer, self.layer + 1)
        heads = slice(None) if self.head is None else slice(self.head, self.head + 1)
        found: Weights = self.to_regions[layers, heads].mean((0, 1))
        return found

    def map(self, weights: Weights) -> list[list[float]]:
        """Weights [R] of regions as rows of cells: of boxes that overlap the largest counts."""
        if _is_grid(self.boxes):
            found: list[list[float]] = weights.reshape(GRID, GRID).tolist()
            return found
        centres = (np.arange(CELLS) + 0.5) / CELLS
        left, top, right, bottom = (edge[:, None, None] for edge in self.boxes.T)
        across, down = centres[None, None, :], centres[None, :, None]
        inside = (left <= across) & (across <= right) & (top <= down) & (down <= bottom)  # [R, CELLS, CELLS]
        cells: list[list[float]] = np.where(inside, weights[:, None, None], 0.0).max(0).tolist()
        return cells

    def lead(self) -> str:
        layers, heads = self.to_regions.shape[:2]
        best = max(self.heads(), key=lambda each: each.words_on_regions)
        predicted = f"Predicted: {self.prediction}. " if self.prediction else ""
        matches = "" if self.match is None else f"The text describes the picture with probability {self.match:.1%}. "
        return (
            f"{predicted}{matches}{layers} layers of {heads} heads between {len(self.tokens)} tokens and "
            f"{len(self.regions)} regions; words attend most to the picture in head {best.head} of layer {best.layer}: "
            f"{best.words_on_regions:.1%} of their weight."
        )

    def notes(self) -> list[str]:
        which = [f"{name} {value}" for name, value in (("layer", self.layer), ("head", self.head)) if value is not None]
        return [
            f"figures: {', '.join(which) or 'mean of all layers and heads'}; a clear region has the largest weight of "
            "its figure, a dark blue one none",
            "attention is not an explanation (Jain & Wallace 2019)",
        ]

    def table(self) -> Table:
        columns = tuple(name.replace("_", " ") for name in CrossWeights._fields)
        return Table(columns, self.heads(), ("d", "d", ".1%", ".1%", ".2f"))

    def figures(self) -> list[Figure]:
        weights = self.chosen()
        matrix = Heatmap("Words and regions", self.tokens, self.regions, weights.tolist(), unit=".1%")
        if np.ptp(self.pixels) == 0:  # regions that are known by their vectors alone
            return [matrix]
        words = [
            PictureHeatmap(token, self.pixels, self.map(row)) for token, row in zip(self.tokens, weights, strict=True)
        ]
        return [PictureHeatmap("Picture", self.pixels), *words, matrix]

    def as_json(self) -> dict[str, Any]:
        rounded = {
            name: np.round(getattr(self, name).astype(np.float64), 6).tolist() for name in ("to_regions", "to_words")
        }
        known = {"tokens": self.tokens, "regions": self.regions, "boxes": self.boxes.tolist()}
        return {
            **known,
            "match": self.match,
            "prediction": self.prediction,
            "heads": plain(self.heads()),
            **rounded,
        }


def open_picture(model: Any, picture: str | Path | Picture) -> Picture:
    """A picture in the size that a LanguageModel reads, from a file or with its regions."""
    if not isinstance(model.processor, PictureProcessor):
        raise ValueError(f"{name_of(model.model)} reads no pictures: leave the picture out")
    if isinstance(picture, Picture):
        return picture
    return Picture(model.processor.process(read_picture(picture)))


def region_inputs(model: Any, picture: str | Path | Picture) -> dict[str, Tensor]:
    """The regions of a picture as inputs of a LanguageModel that reads texts with pictures."""
    require(model.model, ReadsRegions)
    return collate_regions([open_picture(model, picture)], model.processor)


def read_picture_text(model: Any, picture: str | Path | Picture, text: str) -> PictureTextAttention:
    """The attention of one pass over a picture with a text; `model` is a LanguageModel."""
    network, shown = model.model, open_picture(model, picture)
    reader = require(network, ReadsRegions)
    row = model.frame.rows([{"a": model.text_tokenizer.encode(text)}])[0]
    pieces = row.inputs["tokens"].pieces
    if network.window is not None and len(pieces) > network.window:
        raise ValueError(f"the text has {len(pieces)} tokens, and the model reads at most {network.window}: shorten it")
    inputs = {**collate([row]), **region_inputs(model, shown)}
    inputs = {name: value.to(network.device) for name, value in inputs.items()}
    places = [name for name, _ in network.named_modules() if name.rpartition(".")[2] == NAME]
    with torch.inference_mode(), watching(network, *places) as seen:
        both = reader.read_both(**inputs)
        match = _match(reader, both.joint)
    to_regions, to_words = _between(seen, places, words=len(pieces))
    return PictureTextAttention(
        shown.pixels,
        [model.text_tokenizer.show(piece) for piece in pieces],
        _names(shown, inputs["boxes"][0].cpu().numpy()),
        make_vectors(shown, model.processor).boxes,
        to_regions,
        to_words,
        match,
        _predict(model, shown, text),
    )


def _between(seen: dict[str, list[Tensor]], places: list[str], *, words: int) -> tuple[Weights, Weights]:
    """The weights of words on regions [L, H, T, R], and of regions on words [L, H, R, T].

    In co-attention (layers/attention/co_attention.py) `first` are the words; the first region of `second` is [IMG].
    """
    streams = {
        name: [each for where in places if f".{name}." in where for each in seen[where]] for name in ("first", "second")
    }
    if streams["first"]:
        to_regions = [each[..., 1:] for each in streams["first"]]
        to_words = [each[:, :, 1:] for each in streams["second"]]
    else:
        every = [each for position in places for each in seen[position]]
        to_regions = [each[:, :, :words, words:] for each in every]
        to_words = [each[:, :, words:, :words] for each in every]
    first, second = (torch.cat([each.float() for each in parts]).cpu().numpy() for parts in (to_regions, to_words))
    return first, second


def _match(reader: ReadsRegions, joint: Tensor) -> float | None:
    """The probability that text and picture belong together; None for a model without that head."""
    try:
        return float(reader.match(joint).float().softmax(-1)[0, 0])
    except ValueError:
        return None


def _names(picture: Picture, boxes: NDArray[np.float32]) -> list[str]:
    known = () if picture.regions is None else picture.regions.names
    if len(known) == len(boxes):
        return list(known)
    if _is_grid(boxes):
        return [f"{position // GRID},{position % GRID}" for position in range(len(boxes))]
    return [str(number) for number in range(len(boxes))]


def _is_grid(boxes: NDArray[np.float32]) -> bool:
    return len(boxes) == GRID * GRID and np.allclose(boxes, grid_boxes(GRID))


def _predict(model: Any, picture: Picture, text: str) -> str:
    """The class that a fine-tuned run predicts, with its probability; empty where it has learnt no task."""
    if model.own_predictor is None:
        return ""
    found = model.own_predictor.predict([Example(text, media=picture)])[0]
    return f"{found.value} ({found.probability:.1%})"
