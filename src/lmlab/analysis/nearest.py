"""Neighbours in the embeddings of a run: the nearest tokens to a word, and analogies, by the vectors that enter it.

What lies near what is told by `neighbours.py`, for these vectors as for those of any file; here a word may have several
tokens, whose mean is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from lmlab.analysis.neighbours import Neighbour, nearest
from lmlab.analysis.view import Viewed
from lmlab.config import suggest_near
from lmlab.models import name_of
from lmlab.models.model import ReadsLetters
from lmlab.pages.figures import Bar, Bars, Figure
from lmlab.pages.inspection import Table
from lmlab.tokenizers.pieces import spell_pieces
from lmlab.tokenizers.word_vectors import WordVectors

SPACES = " ▁Ġ"
LOOKED_AT = 20_000
"""Words, the most frequent ones, among which one that is spelled like an unknown word is looked for."""


@dataclass(frozen=True)
class Neighbours(Viewed):
    """The nearest tokens to a word, or to a sum of words."""

    asked: str
    neighbours: list[Neighbour]
    pieces: list[str]
    """The tokens of the words that were asked for."""
    words: int = 1
    title: str = field(default="Nearest tokens", init=False)

    def lead(self) -> str:
        return f"Nearest to {self.asked}: {', '.join(each.word.strip() for each in self.neighbours[:5])}."

    def notes(self) -> list[str]:
        several = len(self.pieces) > self.words
        return [f"of a word of several tokens the mean is taken: {' '.join(self.pieces)}"] if several else []

    def table(self) -> Table:
        return Table(("token", "cosine"), self.neighbours, ("", ".3f"))

    def figures(self) -> list[Figure]:
        return [Bars("Cosine", [Bar(*each) for each in self.neighbours], unit=".3f", most=1.0)]


def embedding_table(model: Any) -> WordVectors:
    """The tokens of a LanguageModel with the vectors [V, D] that it reads text by."""
    table = getattr(getattr(model.model, "main", model.model), "embedding", None)
    if model.source_tokenizer is not None:
        table = getattr(model.model, "source_embedding", None) or table
    weight = getattr(table, "weight", None)
    if isinstance(model.model, ReadsLetters):
        raise ValueError(
            f"{name_of(model.model)} reads words by their characters and has no table of word vectors: take a model of "
            "tokens, or word2vec; lmlab embed gives vectors of texts"
        )
    if not isinstance(weight, Tensor):
        raise ValueError(f"{name_of(model.model)} has no table of token vectors: take a neural model of tokens")
    tokenizer = model.source_tokenizer or model.text_tokenizer
    vectors = weight.detach().float().cpu().numpy()[: tokenizer.vocabulary]
    return WordVectors([tokenizer.show(token) for token in range(len(vectors))], vectors)


def find_neighbours(model: Any, words: str | Sequence[str], *, top: int = 10) -> Neighbours:
    """The tokens nearest to a word; of three words a, b, c, those nearest to b − a + c, which is an analogy."""
    given = [words] if isinstance(words, str) else list(words)
    if len(given) not in (1, 3):
        raise ValueError(f"{len(given)} words: give one, or three for an analogy (a is to b as c is to what?)")
    tokenizer, space = model.source_tokenizer or model.text_tokenizer, embedding_table(model)
    pieces = [_pieces(tokenizer, word) for word in given]
    means = [space.vectors[ids].mean(0) for ids in pieces]
    ways = [mean / max(float(np.linalg.norm(mean)), 1e-12) for mean in means]
    asked = ways[0] if len(given) == 1 else ways[1] - ways[0] + ways[2]
    silent = [token for token, text in enumerate(spell_pieces(tokenizer)) if text is None or token == tokenizer.unknown]
    without = {*silent, *(token for ids in pieces for token in ids)}
    found = nearest(space, asked, top=top, without=[token for token in without if token < len(space.words)])
    told = f"“{given[0]}”" if len(given) == 1 else f"“{given[1]}” − “{given[0]}” + “{given[2]}”"
    return Neighbours(told, found, [space.words[token] for ids in pieces for token in ids], len(given))


def _pieces(tokenizer: Any, word: str) -> list[int]:
    """The tokens of a word in the middle of a text, or at its beginning, whichever are fewer."""
    ways = [
        [token for token in tokenizer.encode(text) if tokenizer.show(token).strip(SPACES)]
        for text in (f" {word}", word)
    ]
    ids = min(ways, key=len)
    if not ids:
        raise ValueError(f"{word!r} has no token")
    if tokenizer.unknown is not None and tokenizer.unknown in ids:
        whole = [text.strip() for text in spell_pieces(tokenizer)[:LOOKED_AT] if text is not None and text[:1] == " "]
        raise ValueError(f"{word!r} is not in the vocabulary of this run{suggest_near(word, whole)}")
    return [int(token) for token in ids]
