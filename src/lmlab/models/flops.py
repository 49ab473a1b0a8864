"""The floating-point operations of a model, counted apart: embeddings, body and head.

Matrix products and convolutions are counted, a multiply-add as two operations. Look-ups, norms, activations and other
elementwise work are not. Attention is counted for all pairs of a query and a key, as profilers count it. Padding is
counted where it is computed. `torch.utils.flop_counter` gives the same numbers (tests/costs/test_flops.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

PASSES = 3.0
"""Training takes three times the FLOPs of the forward pass: gradients of activations and of weights cost one each."""


class CountsFlops:
    """What every model says of its operations; all numbers are of forward passes."""

    memory: int

    def embedding_flops(self) -> float:
        """Per token, of what gives tokens their first vectors: none for a table.

        Of words that are read by their letters it is an estimate, as if each token were a new word of usual length.
        """
        return 0.0

    def embedding_flops_of(self, inputs: Mapping[str, Tensor]) -> float:
        """The same for the tokens of a batch, counted."""
        return 0.0

    def body_flops(self, window: int, *, share: float = 1.0, remembered: int = 0) -> float:
        """Per token of a text of `window` tokens: of all that `vectors` computes after the embeddings.

        `share` of the vectors are asked for, after a memory of `remembered` tokens. Where no tokens are read, it is per
        unit in which the loader counts what is read: an image, a patch (units.py).
        """
        raise NotImplementedError

    def head_flops(self) -> float:
        """Per predicted token, of the output layer in training; none where there is no such layer."""
        return 0.0

    def reading_flops(self, inputs: Mapping[str, Tensor], *, places: int | None = None, remembered: int = 0) -> float:
        """Of the body for a batch, of whose rows all vectors or those at `places` places are asked for."""
        rows, window = next(iter(inputs.values())).shape[:2]
        share = 1.0 if places is None else places / window
        return rows * window * self.body_flops(window, share=share, remembered=remembered)

    def training_passes(self, window: int) -> float:
        """The cost of a forward and backward pass in training, in forward passes of the body."""
        return PASSES

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        """Per token of a full row, of all that pre-training computes; `predicted` is the share of predicted tokens."""
        body = self.body_flops(window, share=predicted, remembered=self.memory)
        return self.embedding_flops() + body + predicted * self.head_flops()


def row_lengths(inputs: Mapping[str, Tensor], name: str = "tokens", *, lengths: str = "lengths") -> list[int]:
    """How many tokens of each row are no padding."""
    rows, window = inputs[name].shape[:2]
    given = inputs.get(lengths)
    return [window] * rows if given is None else given.tolist()
