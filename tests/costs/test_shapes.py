"""GPT-3's shapes: their formulas against the real model that it grew from."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lmlab.costs.design import describe
from lmlab.costs.parameters import count_parameters
from lmlab.costs.published import PUBLISHED
from lmlab.costs.shapes import SHAPES
from lmlab.models import LINEAGE, create


@pytest.mark.parametrize(("size", "heads"), [("125M", 12), ("2.7B", 32), ("175B", 96)])
def test_gpt3_is_gpt2_grown(size: str, heads: int) -> None:
    """The formulas give what the real model has, with as few as three layers."""
    shape = SHAPES["gpt3"][size].changed({"layers": 3})
    values = {"vocabulary": 50257, "width": shape.width, "heads": heads, "layers": 3, "window": 2048}
    with torch.device("meta"):
        model: Any = create("gpt2", values)
    assert shape.parameters() == count_parameters(model)
    assert shape.forward_flops(2048) == pytest.approx(model.pretraining_flops(2048), rel=1e-6)
    assert shape.block == sum(weight.numel() for weight in model.blocks[0].parameters())


def test_settings_change_a_shape() -> None:
    shallow = describe("gpt3", settings={"layers": 2})
    whole = describe("gpt3")
    assert whole.parameters.total - shallow.parameters.total == 94 * SHAPES["gpt3"]["175B"].block
    assert shallow.published is None, "it is no longer the published one"
    longer = describe("gpt3", settings={"window": 4096})
    assert longer.parameters.total - whole.parameters.total == 2048 * 12288
    assert describe("gpt3", vocabulary=1000).published is None
    with pytest.raises(ValueError, match="did you mean 'layers'"):
        describe("gpt3", settings={"layer": 2})
    with pytest.raises(ValueError, match="whole number above 0"):
        describe("gpt3", settings={"layers": -2})


def test_a_shape_is_only_needed_without_a_file() -> None:
    assert not SHAPES.keys() & LINEAGE.keys()
    assert {name for name, _ in PUBLISHED} <= SHAPES.keys() | LINEAGE.keys()
