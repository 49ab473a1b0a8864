"""Regions of a picture: where they are, as numbers. Shapes: B rows, R regions, F width of a region's vector."""

from __future__ import annotations

import torch
from torch import Tensor

LOCATION = 5
"""Numbers that say where a region is."""
USUAL = 36
"""Regions of a picture in VisualBERT's and ViLBERT's experiments."""


def locate(boxes: Tensor) -> Tensor:
    """boxes [B, R, 4], left, top, right, bottom as fractions -> [B, R, 5]: the same, and the fraction of the area."""
    area = (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    return torch.cat([boxes, area[..., None]], dim=-1)


def blank_regions(rows: int, width: int, *, device: torch.device) -> dict[str, Tensor]:
    """Inputs with the shapes of the regions of `rows` pictures, to measure a forward pass."""
    shapes = {"regions": (rows, USUAL, width), "boxes": (rows, USUAL, 4)}
    return {name: torch.zeros(shape, device=device) for name, shape in shapes.items()}


def check_regions(regions: Tensor, boxes: Tensor | None, *, width: int, located: bool) -> None:
    """A ValueError where the vectors of regions [B, R, F] do not have the width F of a model, or boxes are missing."""
    if regions.shape[-1] != width:
        raise ValueError(
            f"regions of {regions.shape[-1]} numbers each, and this model reads {width}: give regions of the kind that "
            "it was trained on"
        )
    if located and boxes is None:
        raise ValueError("this model reads the places of regions: give boxes [B, R, 4]")
