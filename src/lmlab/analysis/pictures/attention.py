"""Where in a picture a Transformer over patches attends: each layer and head, and rollout through all layers.

The weights are those of one watched pass (layers/watching.py). Shapes: L layers, H heads, T = 1 + P positions: the
class vector [CLS], then the patches from left to right and from top to bottom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from lmlab.analysis.attention import MOST_CELLS, Attention, self_attention_names
from lmlab.analysis.view import Viewed, plain
from lmlab.data.readers.examples import Example
from lmlab.data.readers.media import Picture
from lmlab.layers.watching import watching
from lmlab.messages import ArgumentError
from lmlab.models import name_of
from lmlab.models.abilities import MatchesPictures, ability
from lmlab.pages.figures.pictures import PictureHeatmap
from lmlab.pages.views import Table
from lmlab.tokenizers.processors.pictures import PictureProcessor

CLS = "[CLS]"
Weights = NDArray[np.float32]


class PictureHead(NamedTuple):
    """Where a head attends: entropy in bits, mean distance in pixels between patches, mean weight on [CLS]."""

    layer: int
    head: int
    entropy: float
    distance: float
    cls: float


@dataclass(frozen=True)
class PictureAttention(Viewed):
    """The attention of a picture's positions to each other, drawn from one of them: [CLS], or a patch."""

    pixels: NDArray[np.uint8]  # [height, width, channels]
    weights: Weights  # [L, H, T, T]
    grid: tuple[int, int]
    """Rows and columns of patches."""
    prediction: str = ""
    """The class that the run predicts, with its probability; empty where it predicts none."""
    patch: tuple[int, int] | None = None
    """Row and column of the patch that attends; None: [CLS]."""
    layer: int | None = None
    head: int | None = None
    only_rollout: bool = False
    title: str = field(default="Attention over the picture", init=False)

    def __post_init__(self) -> None:
        for name, value, count in zip(("layer", "head"), (self.layer, self.head), self.weights.shape[:2], strict=True):
            if value is not None and not 0 <= value < count:
                raise ArgumentError(name, value, f"there are {count}, 0 to {count - 1}")
        if self.patch is not None and not all(0 <= at < of for at, of in zip(self.patch, self.grid, strict=True)):
            rows, columns = self.grid
            raise ArgumentError(
                "patch",
                "{},{}".format(*self.patch),
                f"there are {rows} rows and {columns} columns of patches, counted from 0",
            )

    def of(
        self,
        *,
        layer: int | None = None,
        head: int | None = None,
        patch: tuple[int, int] | None = None,
        only_rollout: bool = False,
    ) -> PictureAttention:
        """The same, limited to one layer, head or patch."""
        return replace(self, layer=layer, head=head, patch=patch, only_rollout=only_rollout)

    @property
    def query(self) -> int:
        """The position that attends."""
        return 0 if self.patch is None else 1 + self.patch[0] * self.grid[1] + self.patch[1]

    def rollout(self) -> Weights:
        """How much of each position reaches each other through all layers (Abnar & Zuidema 2020), [T, T]."""
        return Attention("self", [], [], self.weights).rollout()

    def map(self, weights: Weights) -> list[list[float]]:
        """Weights [T] of the positions as rows of patches, without [CLS]."""
        found: list[list[float]] = weights[1:].reshape(self.grid).tolist()
        return found

    def heads(self) -> list[PictureHead]:
        """Statistics of each head; distance as in Dosovitskiy et al. 2020, figure 7."""
        a = self.weights.astype(np.float64)
        rows, columns = np.divmod(np.arange(a.shape[-1] - 1), self.grid[1])
        side = self.pixels.shape[0] / self.grid[0], self.pixels.shape[1] / self.grid[1]
        far = np.hypot((rows[:, None] - rows) * side[0], (columns[:, None] - columns) * side[1])
        among = a[:, :, 1:, 1:]
        total = np.maximum(among.sum(-1), 1e-12)
        distance = ((among * far).sum(-1) / total).mean(-1)
        entropy = -(a * np.log2(np.where(a > 0, a, 1.0))).sum(-1).mean(-1)
        cls = a[:, :, :, 0].mean(-1)
        return [
            PictureHead(layer, head, float(entropy[layer, head]), float(distance[layer, head]), float(cls[layer, head]))
            for layer in range(a.shape[0])
            for head in range(a.shape[1])
        ]

    def lead(self) -> str:
        layers, heads = self.weights.shape[:2]
        predicted = f"Predicted: {self.prediction}. " if self.prediction else ""
        return (
            f"{predicted}{layers} layers of {heads} heads over {self.grid[0]} × {self.grid[1]} patches, from "
            f"{self._source}."
        )

    @property
    def _source(self) -> str:
        return CLS if self.patch is None else f"the patch in row {self.patch[0]}, column {self.patch[1]}"

    def notes(self) -> list[str]:
        return [
            "a clear patch has the largest weight of its figure, a dark blue one no weight",
            "rollout follows attention through all layers, with the residual connections (Abnar & Zuidema 2020)",
            "attention is not an explanation (Jain & Wallace 2019)",
        ]

    def table(self) -> Table:
        return Table(PictureHead._fields, self.heads(), ("d", "d", ".2f", ".1f", ".1%"))

    def figures(self) -> list[PictureHeatmap]:
        layers, heads = self.weights.shape[:2]
        whole = [PictureHeatmap("Picture", self.pixels), self._figure(self.rollout()[self.query], "Rollout")]
        if self.only_rollout:
            return whole
        cells = layers * heads * math.prod(self.grid)
        if self.layer is None and self.head is None and cells > MOST_CELLS:
            means = self.weights[:, :, self.query].mean(1)
            return whole + [self._figure(each, f"Layer {layer}, mean") for layer, each in enumerate(means)]
        return whole + [
            self._figure(self.weights[layer, head, self.query], f"Layer {layer}, head {head}")
            for layer in (range(layers) if self.layer is None else [self.layer])
            for head in (range(heads) if self.head is None else [self.head])
        ]

    def _figure(self, weights: Weights, title: str) -> PictureHeatmap:
        return PictureHeatmap(title, self.pixels, self.map(weights))

    def as_json(self) -> dict[str, Any]:
        return {
            "grid": list(self.grid),
            "prediction": self.prediction,
            "heads": plain(self.heads()),
            "rollout": np.round(self.rollout().astype(np.float64), 6).tolist(),
            "weights": np.round(self.weights.astype(np.float64), 6).tolist(),
        }


def parse_patch(text: str) -> tuple[int, int]:
    """Row and column of a patch from `3,4`."""
    row, _, column = text.partition(",")
    if not (row.strip().isdecimal() and column.strip().isdecimal()):
        raise ArgumentError("patch", text, "give row and column, counted from 0, as 3,4")
    return int(row), int(column)


def reads_pictures(model: Any) -> bool:
    """Whether a LanguageModel reads a picture alone, as patches: a ViT, or the picture encoder of CLIP."""
    network = model.model
    alone = getattr(network, "main_input", None) == "pixels" or ability(network, MatchesPictures) is not None
    return isinstance(model.processor, PictureProcessor) and alone and hasattr(network.config, "patch_side")


def look(model: Any, pixels: NDArray[np.uint8]) -> PictureAttention:
    """The attention of one pass over a picture [h, w, C]; `model` is a LanguageModel."""
    if not reads_pictures(model):
        raise ValueError(f"{name_of(model.model)} does not read pictures as patches: give a run of vit or clip")
    network, processor = model.model, model.processor
    shown = processor.process(pixels)
    inputs = processor.normalise(shown[None]).to(network.device)
    matches = ability(network, MatchesPictures)
    places = self_attention_names(network)
    with torch.inference_mode(), watching(network, *places) as seen:
        _ = network(pixels=inputs) if matches is None else matches.embed_pictures(inputs)
    weights = torch.cat([layer.float() for name in places for layer in seen[name]]).cpu().numpy()
    side = network.config.patch_side
    grid = shown.shape[0] // side, shown.shape[1] // side
    return PictureAttention(shown, weights, grid, _predict(model, shown))


def _predict(model: Any, shown: NDArray[np.uint8]) -> str:
    """The class that a run predicts, with its probability; empty where it has learnt no task."""
    if model.own_predictor is None:
        return ""
    found = model.own_predictor.predict([Example(media=Picture(shown))])[0]
    return f"{found.value} ({found.probability:.1%})"
