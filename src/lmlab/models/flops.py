"""Counts of a model's floating-point operations: embeddings, body and head separately.

Matrix products and convolutions are counted, a multiply-add as two operations. Look-ups, norms, activations and other
elementwise work are not. Attention is counted for all pairs of a query and a key, as profilers count it. Padding is
counted if it is computed. `torch.utils.flop_counter` gives the same numbers (tests/costs/test_flops.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

PASSES = 3.0
"""Training takes three times the FLOPs of the forward pass: gradients of activations and of weights cost one each."""


class CountsFlops:
    """The FLOPs of a model. All numbers are for the forward pass."""

    memory: int

    def embedding_flops(self) -> float:
        """FLOPs per token of the embedding layer; 0 for a lookup table.

        An estimate for models that read the letters of words: each token counts as a new word of average length.
        """
        return 0.0

    def embedding_flops_of(self, inputs: Mapping[str, Tensor]) -> float:
        """FLOPs of the embedding layer for this batch, counted exactly."""
        return 0.0

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """FLOPs per token of all layers between the embeddings and the head, for a text of `window` tokens.

        `fraction`: output vectors that are needed, as a fraction of the tokens (a masked model needs only some).
        `memory_length`: tokens in the memory before the text. A model without tokens counts per unit of its loader,
        such as an image or a patch (units.py).
        """
        raise NotImplementedError

    def head_flops(self) -> float:
        """FLOPs per predicted token of the output layer in training; 0 if there is no such layer."""
        return 0.0

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        """FLOPs of the body for a batch; `positions`: output vectors needed per row, None for all."""
        rows, window = next(iter(inputs.values())).shape[:2]
        fraction = 1.0 if positions is None else positions / window
        return rows * window * self.body_flops(window, fraction=fraction, memory_length=memory_length)

    def training_passes(self, window: int) -> float:
        """The cost of a forward and a backward pass, measured in forward passes of the body."""
        return PASSES

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        """FLOPs per token of a full row in pre-training; `predicted` is the fraction of tokens that are predicted."""
        body = self.body_flops(window, fraction=predicted, memory_length=self.memory)
        return self.embedding_flops() + body + predicted * self.head_flops()


def row_lengths(inputs: Mapping[str, Tensor], name: str = "tokens", *, lengths: str = "lengths") -> list[int]:
    """The number of tokens of each row, without padding."""
    rows, window = inputs[name].shape[:2]
    given = inputs.get(lengths)
    return [window] * rows if given is None else given.tolist()
