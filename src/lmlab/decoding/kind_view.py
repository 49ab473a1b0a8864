"""A model of several kinds of data as a model of one kind: it reads and writes only the tokens of that kind."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lmlab.models.abilities import LearnsNext, State


class KindView(nn.Module):
    """A model over a joined vocabulary (tokenizers/processors/joined.py), seen in the ids of one kind (`PredictsNext`).

    What is generated has tokens of this kind only. Scores are those of the whole vocabulary: probability that the model
    gives to other kinds counts against it.
    """

    main_input: ClassVar[str] = "tokens"

    ids: Tensor

    def __init__(self, model: LearnsNext, ids: NDArray[np.int64]) -> None:
        """`ids` has the joined id of each id of the kind."""
        super().__init__()
        self.model = model
        self.register_buffer("ids", torch.from_numpy(ids).to(model.device), persistent=False)

    def offers(self) -> tuple[object, ...]:
        return (self,)

    @property
    def viewed(self) -> LearnsNext:
        """The model, whose name messages say."""
        return self.model

    @property
    def vocabulary(self) -> int:
        return len(self.ids)

    @property
    def window(self) -> int | None:
        return self.model.window

    @property
    def device(self) -> torch.device:
        return self.model.device

    def forward(self, tokens: Tensor, **inputs: Any) -> Any:
        """The vectors of tokens [B, T] of this kind."""
        return self.model(tokens=self.ids[tokens], **inputs)

    def start(self, batch_size: int, **inputs: Any) -> State:
        return self.model.start(batch_size, **inputs)

    def step(self, tokens: Tensor, state: State, **inputs: Any) -> tuple[Tensor, State]:
        logits, state = self.model.step(self.ids[tokens], state)
        return logits[:, self.ids], state

    def score(self, tokens: Tensor, targets: Tensor, state: State) -> tuple[Tensor, State]:
        return self.model.score(self.ids[tokens], self.ids[targets], state)
