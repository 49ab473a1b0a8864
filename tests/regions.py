"""Texts with the regions of pictures, as inputs of a model, and tiny models that read them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lmlab.config import build
from lmlab.models import load_class

VOCABULARY, REGION_WIDTH = 23, 7
SETTINGS: dict[str, Any] = {
    **{"vocabulary": VOCABULARY, "region_width": REGION_WIDTH, "width": 16, "heads": 2, "layers": 3, "window": 12},
    **{"dropout": 0.0, "connections": 2, "picture_width": 12, "picture_heads": 3, "joint_width": 20, "joint_heads": 2},
}
SYSTEMS = ("visualbert", "vilbert")


def make_model(name: str, **changes: Any) -> Any:
    """A tiny model in evaluation mode, with weights that are not small."""
    cls = load_class(name)
    known = {key: value for key, value in {**SETTINGS, **changes}.items() if key in cls.Config.model_fields}
    torch.manual_seed(0)
    model = cls(build(cls.Config, known, where="model")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def make_inputs(
    rows: int = 3, words: int = 9, regions: int = 6, *, seed: int = 1, padded: bool = True
) -> dict[str, Tensor]:
    """Random inputs; with `padded` rows of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.rand(rows, regions, 4, generator=generator).sort(-1).values
    found = {
        "tokens": torch.randint(0, VOCABULARY, (rows, words), generator=generator),
        "regions": torch.randn(rows, regions, REGION_WIDTH, generator=generator),
        "boxes": edges,
    }
    if not padded:
        return found
    lengths = torch.tensor([words, max(1, words - 4), 1, 2, 5])[:rows]
    region_lengths = torch.tensor([max(1, regions - 3), regions, 1, 2, 3])[:rows]
    return {**found, "lengths": lengths, "region_lengths": region_lengths}


def one_row(inputs: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    """A row without its padding."""
    words, regions = int(inputs["lengths"][row]), int(inputs["region_lengths"][row])
    cut = {"tokens": words, "regions": regions, "boxes": regions}
    return {name: inputs[name][row : row + 1, :length] for name, length in cut.items()}
