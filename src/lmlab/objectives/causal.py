"""The pure language model: predict each token from those before it."""

from __future__ import annotations

from torch import Tensor

from lmlab.models.model import Model, State
from lmlab.objectives.objective import Batch, Loss


class Causal:
    """Mean cross-entropy of P(w_i | w_1 .. w_i-1); every position is a blank."""

    def batch(self, raw: Tensor) -> Batch:
        """raw [B, T+1] -> the first T tokens, and the T tokens that follow them."""
        return Batch(inputs={"tokens": raw[:, :-1]}, targets=raw[:, 1:])

    def loss(self, model: Model, batch: Batch, state: State = None) -> tuple[Loss, State]:
        hidden, state = model(**batch.inputs, state=state)
        targets = batch.targets.flatten()
        return Loss(model.total_nll(hidden.flatten(0, 1), targets), targets.numel()), state


def training_pairs(tokens: list[str], *, start: str = "<s>") -> list[tuple[list[str], str]]:
    """The (context, next token) pairs that one text gives: its own labels, with nobody labelling."""
    text = [start, *tokens]
    return [(text[:i], text[i]) for i in range(1, len(text))]
