"""The shapes of GPT-3, which lmlab does not implement, and the formulas of a pre-norm Transformer decoder.

For a layer of width d over T tokens, with 4d inner units (biases and norms included in the parameters):

    parameters  4d² + 4d (attention), 8d² + 5d (feed-forward), 4d (two norms)
    FLOPs       2 per weight and token, and 4Td for QKᵀ and its product with V
    activations 34d · 2 bytes per token in half precision: Korthikanti et al. 2022, eq. 1, without the T × T weights,
                which fused attention does not keep
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lmlab.config import suggest
from lmlab.costs.parameters import Parameters


class Shape(NamedTuple):
    """The dimensions of a decoder whose softmax shares the table of token vectors."""

    source: str
    width: int
    layers: int
    vocabulary: int = 50257
    window: int = 2048

    def changed(self, settings: Mapping[str, Any]) -> Shape:
        """The shape with some dimensions replaced."""
        changeable = self._fields[1:]
        for key, value in settings.items():
            if key not in changeable:
                raise ValueError(f"unknown setting model.{key}{suggest(key, changeable)}")
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"model.{key} = {value!r}: give a whole number above 0")
        return self._replace(**settings)

    @property
    def block(self) -> int:
        """Parameters of one layer."""
        return 12 * self.width**2 + 13 * self.width

    def parameters(self) -> Parameters:
        tables = (self.vocabulary + self.window) * self.width
        return Parameters(tables + self.layers * self.block + 2 * self.width, tables)

    def forward_flops(self, window: int) -> float:
        """Forward FLOPs per token, including the scores over the vocabulary."""
        layer = 24.0 * self.width**2 + 4.0 * window * self.width
        return self.layers * layer + 2.0 * self.width * self.vocabulary

    def activation_bytes(self, window: int) -> float:
        """Bytes per row saved for the backward pass, in fp32."""
        return 4.0 * window * self.layers * 34 * self.width


_BROWN = "Brown et al. 2020, table 2.1"

SHAPES: dict[str, dict[str, Shape]] = {
    "gpt3": {
        "175B": Shape(_BROWN, 12288, 96),
        "13B": Shape(_BROWN, 5120, 40),  # printed as 5140; 40 heads of 128 are 5120, as are the parameters of table D.1
        "6.7B": Shape(_BROWN, 4096, 32),
        "2.7B": Shape(_BROWN, 2560, 32),
        "1.3B": Shape(_BROWN, 2048, 24),
        "760M": Shape(_BROWN, 1536, 24),
        "350M": Shape(_BROWN, 1024, 24),
        "125M": Shape(_BROWN, 768, 12),
    },
}
