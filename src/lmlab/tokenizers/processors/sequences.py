"""Tokenizers of data that are not text: music, pictures. Each gives a sequence of token ids without words and bytes.

A model that predicts the next token needs three facts: the size of the vocabulary, the boundary between two items, and
the name of what a token is (`unit`), which scores are divided by. A run keeps the settings as `processor.json`.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from lmlab.files import write_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class SequenceTokenizer(ABC):
    """Turns items of one kind of data into token ids, and token ids into items."""

    kind: ClassVar[str]
    """The name in a spec and in `processor.json`."""
    reads: ClassVar[str]
    """The kind of data that it encodes (`lmlab.data.DATA`)."""
    unit: ClassVar[str]
    """What one token is: `event`, `note`, `pixel`."""
    item: ClassVar[str]
    """What one document is: `piece`, `picture`."""
    forms: ClassVar[str]
    """The specs that are allowed, for error messages."""
    commands: ClassVar[tuple[str, ...]]
    """Commands to try with a run, in which {run} is its folder."""
    newline_is_boundary: ClassVar[bool] = False
    is_open: ClassVar[bool] = False

    def examples(self) -> tuple[str, ...]:
        """Return commands to try with a run of this very tokenizer, in which {run} is its folder."""
        return self.commands

    @classmethod
    @abstractmethod
    def from_spec(cls, options: str) -> Self:
        """Return the tokenizer of a spec; `options` is the part after its colon."""

    @property
    @abstractmethod
    def spec(self) -> str:
        """The spec that gives this tokenizer."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return the arguments that create this tokenizer, as JSON values."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """The number of token ids, the boundary included."""

    @property
    def predicted(self) -> int:
        """The number of ids that can be predicted: all."""
        return self.vocabulary

    @property
    def boundary(self) -> int:
        """The id of the token before, between and after items: the last one."""
        return self.vocabulary - 1

    @property
    def length(self) -> int | None:
        """The number of tokens of each item; None if items differ."""
        return None

    @abstractmethod
    def show(self, token: int) -> str:
        """Return one token as people read it."""

    @abstractmethod
    def scores(self, nats: float) -> dict[str, float]:
        """Return the usual scores by name, from the mean nats per token without boundaries; the main one first."""

    def totals(self, ids: NDArray[np.int64], nats: NDArray[np.float64]) -> dict[str, tuple[float, float]]:
        """Return, by score, the sum over an item from the nats of its tokens, and what it is divided by.

        The score of several items is the ratio of the sums of both.
        """
        return {name: (value * float(nats.sum()), float(len(ids))) for name, value in self.scores(1.0).items()}

    def describe(self, nats: float) -> str:
        """Return the usual scores in words."""
        return ", ".join(f"{value:.4f} {name.replace('_', ' ')}" for name, value in self.scores(nats).items())

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the settings: equal tokenizers give equal ids."""
        return hashlib.sha256(self._to_json().encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Write the settings as JSON."""
        write_text(path, self._to_json() + "\n")

    def _to_json(self) -> str:
        return json.dumps({"kind": self.kind, **self.settings()}, indent=1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SequenceTokenizer) and self._to_json() == other._to_json()

    def __hash__(self) -> int:
        return hash(self._to_json())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec!r})"
