"""Neighbours: the tokens whose embeddings lie nearest to a word's, and analogies by their differences.

a : b :: c : argmax_d cos(d, b − a + c)                                     Mikolov et al. 2013
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lmlab.analysis.view import Viewed
from lmlab.pages.figures import Bar, Bars, Figure
from lmlab.pages.inspection import Table

SPACES = " ▁Ġ"


class Neighbour(NamedTuple):
    """A token and its cosine to what was asked for."""

    token: str
    cosine: float


@dataclass(frozen=True)
class Neighbours(Viewed):
    """The nearest tokens to a word, or to a sum of words."""

    asked: str
    neighbours: list[Neighbour]
    pieces: list[str]
    """The tokens of the word, of which the mean was taken."""
    title: str = field(default="Nearest tokens", init=False)

    def lead(self) -> str:
        return f"Nearest to {self.asked}: {', '.join(each.token.strip() for each in self.neighbours[:5])}."

    def notes(self) -> list[str]:
        return [f"the mean of several tokens: {' '.join(self.pieces)}"] if len(self.pieces) > 1 else []

    def table(self) -> Table:
        return Table(("token", "cosine"), self.neighbours, ("", ".3f"))

    def figures(self) -> list[Figure]:
        return [Bars("Cosine", [Bar(*each) for each in self.neighbours], unit=".3f", most=1.0)]


def embedding_table(model: Any) -> Tensor:
    """The token vectors [V, D] that a LanguageModel reads text by."""
    table = getattr(model.model, "embedding", None)
    if model.source_tokenizer is not None:
        table = getattr(model.model, "source_embedding", None) or table
    weight = getattr(table, "weight", None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{type(model.model).__name__} has no table of token vectors: take a neural model of tokens")
    return weight.detach().float().cpu()


def find_neighbours(model: Any, words: str | Sequence[str], *, top: int = 10) -> Neighbours:
    """The tokens nearest to a word; of three words a, b, c, those nearest to b − a + c, which is an analogy."""
    given = [words] if isinstance(words, str) else list(words)
    if len(given) not in (1, 3):
        raise ValueError(f"{len(given)} words: give one, or three for an analogy (a is to b as c is to what?)")
    tokenizer, table = model.source_tokenizer or model.text_tokenizer, embedding_table(model)
    pieces = [_pieces(tokenizer, word) for word in given]
    directions = [F.normalize(table[ids].mean(0), dim=0) for ids in pieces]
    asked = directions[0] if len(given) == 1 else directions[1] - directions[0] + directions[2]
    cosines = F.normalize(table, dim=1) @ F.normalize(asked, dim=0)
    cosines[[token for ids in pieces for token in ids]] = -2.0
    found = torch.topk(cosines, min(top, len(cosines) - 1))
    nearest = [
        Neighbour(tokenizer.show(i), v) for v, i in zip(found.values.tolist(), found.indices.tolist(), strict=True)
    ]
    told = f"“{given[0]}”" if len(given) == 1 else f"“{given[1]}” − “{given[0]}” + “{given[2]}”"
    return Neighbours(told, nearest, [tokenizer.show(token) for ids in pieces for token in ids])


def _pieces(tokenizer: Any, word: str) -> list[int]:
    """The tokens of a word in the middle of a text, or at its beginning, whichever are fewer."""
    inside, first = (
        [t for t in tokenizer.encode(text) if tokenizer.show(t).strip(SPACES)] for text in (f" {word}", word)
    )
    ids = min(inside, first, key=len)
    if not ids:
        raise ValueError(f"{word!r} has no token")
    if tokenizer.unknown is not None and tokenizer.unknown in ids:
        raise ValueError(f"{word!r} is not in the vocabulary of this run")
    return [int(token) for token in ids]
