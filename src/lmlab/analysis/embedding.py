"""Vectors of tokens and of whole texts, from any mix of a model's layers (see layer_mix.py).

Shapes: B texts, T tokens, D width.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lmlab.analysis.layer_mix import read_layers, select_layers
from lmlab.models.model import EncoderDecoder, EncoderModel, Model
from lmlab.tokenizers import Tokenizer

Vectors = NDArray[np.float32]
Pool = Literal["cls", "mean", "max"]
Progress = Callable[[int, int], None]
"""Is told how many tokens are read, and of how many."""
POOLS: tuple[Pool, ...] = ("cls", "mean", "max")
BATCH_TOKENS = 4096


def find_pool(name: str) -> Pool:
    """The way of pooling of that name; a ValueError where there is none."""
    for pool in POOLS:
        if name == pool:
            return pool
    raise ValueError(f"pool {name!r} is not known; allowed: {', '.join(POOLS)}")


class Frame(NamedTuple):
    """What a model was trained to see around a text."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    counted: bool  # whether the vectors of the frame go into the mean or the maximum


def frame_of(model: Model, tokenizer: Tokenizer) -> Frame:
    """[CLS] … [SEP] for a model that reads both ways, the boundary before the text for one that reads left to right.

    The mean over a text of a masked model counts [CLS] and [SEP], as sentence encoders made from BERT were trained
    (Reimers & Gurevych 2019), so that it is the same as theirs.
    """
    if isinstance(model, EncoderModel):
        return Frame((tokenizer.role("cls"),), (tokenizer.role("sep"),), counted=True)
    if isinstance(model, EncoderDecoder):
        return Frame((), (tokenizer.boundary,), counted=False)
    return Frame((tokenizer.boundary,), (), counted=False)


@dataclass(frozen=True)
class TokenVectors:
    """A text as the vectors of its tokens, each with its place in the text and the word that it is in."""

    text: str
    tokens: list[str]
    vectors: Vectors  # [T, D]
    offsets: list[tuple[int, int]]  # the characters of the text that are the token, from and to
    words: list[int | None]  # the number of the word between white space; None for white space itself

    def word_vectors(self, pool: Literal["first", "mean"] = "mean") -> Vectors:
        """One vector for each word of `text.split()` [W, D]: of its first token, as in BERT's tagging, or their mean.

        A word that no token is in (of a text that was cut short) is zero.
        """
        if pool not in ("first", "mean"):
            raise ValueError(f"pool {pool!r} of a word's tokens; allowed: first, mean")
        result = np.zeros((len(self.text.split()), self.vectors.shape[1]), np.float32)
        numbers = np.array([-1 if word is None else word for word in self.words], np.int64)
        for word in range(len(result)):
            (places,) = np.nonzero(numbers == word)
            if len(places):
                result[word] = self.vectors[places[:1] if pool == "first" else places].mean(0)
        return result


def find_words(text: str, offsets: Sequence[tuple[int, int]]) -> list[int | None]:
    """For each token the number of the word, as `text.split()` has them, in which its first letter is."""
    starts = [found.start() for found in re.finditer(r"\S+", text)]
    result: list[int | None] = []
    for first, end in offsets:
        piece = text[first:end]
        letter = first + len(piece) - len(piece.lstrip())
        result.append(bisect_right(starts, letter) - 1 if letter < end else None)
    return result


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """Takes the vectors of texts out of a model.

    Texts of about the same length are read together, `batch_tokens` tokens at a time, which changes only the speed. A
    text that the model cannot hold is an error, or is cut (`truncate`).
    """

    model: object
    tokenizer: Tokenizer
    layers: str | int = "last"
    truncate: bool = False
    backwards: bool = False  # the model reads the tokens of a text from the last to the first
    batch_tokens: int = BATCH_TOKENS
    progress: Progress | None = None

    def tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        """The vectors of each text's tokens."""
        ids = self._encode(texts)
        encodings = self.tokenizer.engine.encode_batch(list(texts), add_special_tokens=False)
        results = []
        for text, kept, encoding, vectors in zip(texts, ids, encodings, self.read(ids), strict=True):
            offsets = encoding.offsets[: len(kept)]
            names = [self.tokenizer.show(token) for token in kept]
            results.append(TokenVectors(text, names, vectors, offsets, find_words(text, offsets)))
        return results

    def whole(self, texts: Sequence[str], pool: Pool) -> Vectors:
        """One vector for each text [N, D]: at [CLS], or the mean or the maximum over its tokens."""
        find_pool(pool)
        if pool == "cls" and not isinstance(self._network, EncoderModel):
            name = type(self.model).__name__
            raise ValueError(f"{name} has no [CLS] token at which to read a text: pool by mean or max")
        ids = self._encode(texts)
        if not self._frame.counted:
            for number, document in enumerate(ids, start=1):
                if not document:
                    raise ValueError(f"text {number} is empty: it has no token to take a vector from; leave it out")
        found = self.read(ids, pool)
        return np.stack(found) if found else np.zeros((0, 0), np.float32)

    @torch.inference_mode()
    def read(self, documents: Sequence[Sequence[int]], pool: Pool | None = None) -> list[Vectors]:
        """The vectors of each document's tokens [T, D], without the frame; with `pool`, its one vector [D]."""
        if self.batch_tokens < 1:
            raise ValueError(f"batch_tokens = {self.batch_tokens}: give at least 1")
        model, frame, selection = self._network, self._frame, select_layers(self.layers)
        step = -1 if self.backwards else 1
        rows = [[*frame.before, *document[::step], *frame.after] for document in documents]
        found: list[Vectors] = [np.zeros(0, np.float32)] * len(rows)
        done, total = 0, sum(map(len, rows))
        for group in _batches(list(map(len, rows)), self.batch_tokens):
            padded = nn.utils.rnn.pad_sequence([torch.tensor(rows[i]) for i in group], batch_first=True)
            lengths = torch.tensor([len(rows[i]) for i in group], device=model.device)
            mixed = read_layers(model, padded.to(model.device), lengths, selection).float()
            if pool is None:
                for i, vectors in zip(group, mixed.cpu().numpy(), strict=True):
                    found[i] = vectors[len(frame.before) : len(rows[i]) - len(frame.after)][::step].copy()
            else:
                for i, vector in zip(group, _pool(mixed, lengths, frame, pool).cpu().numpy(), strict=True):
                    found[i] = vector
            done += sum(len(rows[i]) for i in group)
            if self.progress is not None:
                self.progress(done, total)
        return found

    @property
    def _network(self) -> Model:
        if isinstance(self.model, Model):
            return self.model
        raise ValueError(
            f"{type(self.model).__name__} has no layers of vectors: it counts, or mixes other models; "
            f"take a run of a neural one, such as lstm, gpt2 or bert"
        )

    @property
    def _frame(self) -> Frame:
        return frame_of(self._network, self.tokenizer)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of texts, if each fits into the model's window with its frame; cut so that it does, if wanted."""
        window, frame = self._network.window, self._frame
        documents = [ids.tolist() for ids in self.tokenizer.encode_batch(texts)]
        if window is None:
            return documents
        most = window - len(frame.before) - len(frame.after)
        for number, document in enumerate(documents, start=1):
            if len(document) > most and not self.truncate:
                raise ValueError(
                    f"text {number} has {len(document)} tokens, and the model reads at most {most}: "
                    f"split it into shorter texts, or have texts cut there (truncate)"
                )
        return [document[:most] for document in documents]


def _batches(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """The numbers of rows that are read together, the longest first."""
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if group and (len(group) + 1) * lengths[group[0]] > batch_tokens:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def _pool(vectors: Tensor, lengths: Tensor, frame: Frame, pool: Pool) -> Tensor:
    """[B, T, D] -> [B, D], over each row's own tokens, and those of the frame if they count."""
    if pool == "cls":
        return vectors[:, 0]
    before, after = (0, 0) if frame.counted else (len(frame.before), len(frame.after))
    place = torch.arange(vectors.shape[1], device=vectors.device)
    real = ((place >= before) & (place < lengths[:, None] - after))[..., None]
    if pool == "max":
        return vectors.masked_fill(~real, -torch.inf).amax(1)
    return vectors.masked_fill(~real, 0).sum(1) / real.sum(1)
