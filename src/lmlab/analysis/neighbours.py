"""Neighbours: the nearest words of a word in a vector space, analogies, and correlation with human similarity scores.

An analogy a : b = c : ? is answered by the word whose vector is nearest to b − a + c, the three left out (Mikolov et
al. 2013, "Linguistic Regularities in Continuous Space Word Representations"; vectors of length one, as there). The
first part works on any table of word vectors, `find_neighbours` on the input embeddings of a run.
Shapes: V words, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lmlab.analysis.view import Viewed
from lmlab.config import suggest_near
from lmlab.messages import ArgumentError
from lmlab.models import name_of
from lmlab.models.model import ReadsLetters
from lmlab.pages.figures import Bar, Bars, Figure
from lmlab.pages.views import Table
from lmlab.tokenizers.pieces import spell_pieces
from lmlab.tokenizers.word_vectors import WordVectors

__all__ = ["Analogies", "Neighbour", "Similarity", "WordVectors", "analogy", "nearest", "neighbours", "score_analogies"]

CHUNK = 512
"""Questions that are answered at once."""
Numbers = NDArray[np.int64]


class Neighbour(NamedTuple):
    """A word, and the cosine of its vector with the query."""

    word: str
    cosine: float


class Analogies(NamedTuple):
    """How many questions of one kind were answered rightly, of those whose four words are all known."""

    right: int
    asked: int
    total: int  # those with unknown words among them

    @property
    def accuracy(self) -> float | None:
        return self.right / self.asked if self.asked else None


class Similarity(NamedTuple):
    """The rank correlation of cosines with human ratings, over the pairs whose words are both known."""

    spearman: float | None
    asked: int
    total: int


def neighbours(
    vectors: NDArray[Any] | WordVectors, tokens: Sequence[str] | None, word: str, top: int = 10
) -> list[Neighbour]:
    """The `top` tokens whose vectors [V, D] have the largest cosine with that of a word, itself left out."""
    space = _space(vectors, tokens)
    number = _number(space, word)
    return nearest(space, space.directions[number], top=top, without=[number])


def analogy(space: WordVectors, a: str, b: str, c: str, *, top: int = 1) -> list[Neighbour]:
    """What is to c as b is to a: the words nearest to b − a + c (man, king, woman -> queen)."""
    x, y, z = (_number(space, word) for word in (a, b, c))
    d = space.directions
    return nearest(space, d[y] - d[x] + d[z], top=top, without=[x, y, z])


def similarity(space: WordVectors, pairs: Sequence[tuple[str, str, float]]) -> Similarity:
    """How well cosines follow the scores that people gave to pairs of words: Spearman's correlation."""
    known = [(space.find(a), space.find(b), score) for a, b, score in pairs]
    found = [(x, y, score) for x, y, score in known if x is not None and y is not None]
    if len(found) < 2:
        return Similarity(None, len(found), len(pairs))
    left, right = [x for x, _, _ in found], [y for _, y, _ in found]
    cosines = (space.directions[left] * space.directions[right]).sum(1)
    ranks = [_ranks(np.asarray(each, np.float64)) for each in (cosines, [score for *_, score in found])]
    a, b = (each - each.mean() for each in ranks)
    norms = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return Similarity(float((a * b).sum()) / norms if norms else None, len(found), len(pairs))


def score_analogies(
    space: WordVectors, questions: Sequence[tuple[str, Sequence[tuple[str, str, str, str]]]]
) -> dict[str, Analogies]:
    """For each kind of question how many are answered rightly; the three given words are never the answer."""
    return {kind: _score_kind(space, rows) for kind, rows in questions}


def _score_kind(space: WordVectors, questions: Sequence[tuple[str, str, str, str]]) -> Analogies:
    rows = [[space.find(word) for word in each] for each in questions]
    known: Numbers = np.array([row for row in rows if None not in row], dtype=np.int64).reshape(-1, 4)
    right, d = 0, space.directions
    for part in (known[first : first + CHUNK] for first in range(0, len(known), CHUNK)):
        a, b, c, answer = part.T
        scores = (d[b] - d[a] + d[c]) @ d.T
        for given in (a, b, c):
            scores[np.arange(len(part)), given] = -np.inf
        right += int((scores.argmax(1) == answer).sum())
    return Analogies(right, len(known), len(questions))


def read_analogies(path: str | Path) -> list[tuple[str, list[tuple[str, str, str, str]]]]:
    """Questions in the format of word2vec's questions-words.txt: `: kind` lines, then four words per line."""
    found: list[tuple[str, list[tuple[str, str, str, str]]]] = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if line.startswith(":"):
            found.append((line[1:].strip(), []))
        elif len(words) == 4 and found:
            found[-1][1].append((words[0], words[1], words[2], words[3]))
        elif words:
            raise ValueError(f"{path}, line {number}: give `: kind` lines, each followed by lines of four words")
    return found


def read_pairs(path: str | Path) -> list[tuple[str, str, float]]:
    """Pairs of words with a score, separated by tabs (WordSim-353, SimLex-999); lines with # are comments."""
    found = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split("\t")
        try:
            found.append((parts[0], parts[1], float(parts[2])))
        except (IndexError, ValueError):
            raise ValueError(f"{path}, line {number}: give two words and a number, with tabs between them") from None
    return found


def _space(vectors: NDArray[Any] | WordVectors, tokens: Sequence[str] | None) -> WordVectors:
    if isinstance(vectors, WordVectors):
        return vectors
    if tokens is None:
        raise ValueError("vectors without their tokens: give tokens, one for each row, or a WordVectors")
    return WordVectors(tokens, np.asarray(vectors, np.float32))


def _number(space: WordVectors, word: str) -> int:
    number = space.find(word)
    if number is None:
        from lmlab.config import suggest_near

        near = suggest_near(word, space.words[:20_000])
        raise ValueError(f"{word!r} has no vector here{near}; there are {len(space.words):,} words")
    return number


def nearest(space: WordVectors, vector: NDArray[Any], *, top: int, without: Sequence[int] = ()) -> list[Neighbour]:
    """The words whose vectors have the largest cosine with any vector, the rows `without` left out."""
    if top < 1:
        raise ArgumentError("top", top, "ask for 1 neighbour or more")
    cosines = space.directions @ (vector / max(float(np.linalg.norm(vector)), 1e-12))
    cosines[list(without)] = -np.inf
    order = np.argsort(-cosines, kind="stable")[: max(0, min(top, len(cosines) - len(set(without))))]
    return [Neighbour(space.words[number], float(cosines[number])) for number in order]


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each value; equal ones share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: NDArray[np.float64] = (ends - (counts - 1) / 2)[inverse]
    return means


SPACES = " ▁Ġ"
LOOKED_AT = 20_000
"""Words, the most frequent ones, among which one that is spelled like an unknown word is looked for."""


@dataclass(frozen=True)
class Neighbours(Viewed):
    """The nearest tokens to a word, or to a sum of words."""

    asked: str
    neighbours: list[Neighbour]
    pieces: list[str]
    """The tokens of the query words."""
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
            f"{name_of(model.model)} reads words by their characters and has no table of word vectors: use a model of "
            "tokens, or word2vec; lmlab embed gives vectors of texts"
        )
    if not isinstance(weight, Tensor):
        raise ValueError(f"{name_of(model.model)} has no table of token vectors: use a neural model of tokens")
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
    expression = f"“{given[0]}”" if len(given) == 1 else f"“{given[1]}” − “{given[0]}” + “{given[2]}”"
    return Neighbours(expression, found, [space.words[token] for ids in pieces for token in ids], len(given))


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
