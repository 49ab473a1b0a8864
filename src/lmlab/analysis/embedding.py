"""Vectors of tokens and of whole texts, from any mix of a model's layers (see layer_mix.py).

Shapes: B texts, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.analysis.layer_vectors import check_stateful, read_layers, read_next
from lmlab.layers.layer_mix import Selection, select_layers
from lmlab.messages import ArgumentError, TooLongError
from lmlab.models import name_of
from lmlab.models.abilities import GivesVectors, State, require
from lmlab.models.model import Model
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, Framed, pad_rows
from lmlab.tokenizers.words import find_words

Vectors = NDArray[np.float32]
Pool = Literal["cls", "mean", "max"]
POOLS: tuple[Pool, ...] = ("cls", "mean", "max")
BATCH_TOKENS = 4096


def find_pool(name: str) -> Pool:
    """The way of pooling of that name; a ValueError where there is none."""
    for pool in POOLS:
        if name == pool:
            return pool
    raise ValueError(f"pool {name!r} is not known; allowed: {', '.join(POOLS)}")


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
            (positions,) = np.nonzero(numbers == word)
            if len(positions):
                result[word] = self.vectors[positions[:1] if pool == "first" else positions].mean(0)
        return result


class Reading(TypedDict, total=False):
    """The options of an `Embedder` by name, for signatures that take them one by one."""

    layers: str | int
    truncate: bool
    carry_state: bool
    batch_tokens: int
    progress: ReportProgress | None


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """Takes the vectors of texts out of a model, each read in its frame.

    The mean over a text of a masked model counts [CLS] and [SEP], as sentence encoders made from BERT were trained
    (Reimers & Gurevych 2019), so that it is the same as theirs; a boundary never counts.

    Texts of about the same length are read together, `batch_tokens` tokens at a time, which changes only the speed. A
    text that the model cannot hold is an error, or is cut (`truncate`). The same text always has the same vectors: each
    is read from a fresh state, unless a recurrent model is to carry its state from text to text (`carry_state`).
    """

    model: object
    tokenizer: Tokenizer
    frame: Frame
    layers: str | int = "last"
    truncate: bool = False
    carry_state: bool = False
    batch_tokens: int = BATCH_TOKENS
    progress: ReportProgress | None = None

    def tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        """The vectors of each text's tokens."""
        ids = self._encode(texts)
        results = []
        for text, kept, vectors in zip(texts, ids, self.read(ids), strict=True):
            offsets = self.tokenizer.encode_with_offsets(text)[1][: len(kept)]
            names = [self.tokenizer.show(token) for token in kept]
            results.append(TokenVectors(text, names, vectors, offsets, find_words(text, offsets)))
        return results

    def whole(self, texts: Sequence[str], pool: Pool) -> Vectors:
        """One vector for each text [N, D]: at [CLS], or the mean or the maximum over its tokens.

        That of an empty text, or of white space alone, is zero, whatever the model.
        """
        find_pool(pool)
        if pool == "cls" and not self.frame.has("cls"):
            name = name_of(self.model)
            raise ValueError(f"{name} has no [CLS] token at which to read a text: pool by mean or max")
        ids = self._encode(texts)
        full = [i for i, (text, document) in enumerate(zip(texts, ids, strict=True)) if document and text.strip()]
        found = self.read([ids[i] for i in full] or [[]] * bool(texts), pool)
        result = np.zeros((len(texts), *(found[0].shape if found else (0,))), np.float32)
        if full:
            result[full] = np.stack(found)
        return result

    @torch.inference_mode()
    def read(self, documents: Sequence[Sequence[int]], pool: Pool | None = None) -> list[Vectors]:
        """The vectors of each document's tokens [T, D], without the frame; with `pool`, its one vector [D]."""
        if self.batch_tokens < 1:
            raise ArgumentError("batch_tokens", self.batch_tokens, "give at least 1")
        model, selection = self._network, select_layers(self.layers)
        reads, counted = self.frame.reads, self.frame.has("cls")
        rows = [_fill_empty(row.inputs[reads]) for row in self.frame.rows([{"a": each} for each in documents])]
        found: list[Vectors] = [np.zeros(0, np.float32)] * len(rows)
        done, total = 0, sum(len(row.pieces) for row in rows)
        groups = _batches([len(row.pieces) for row in rows], self.batch_tokens)
        state: State = None
        if self.carry_state:
            check_stateful(model)
            groups = ([i] for i in range(len(rows)))
        for group in groups:
            check_cancelled()
            tokens, lengths = pad_rows([rows[i].pieces for i in group], device=model.device)
            if self.carry_state:
                mixed, state = read_next(model, tokens, state, selection)
            else:
                mixed = read_layers(model, tokens, lengths, selection)
            mixed = mixed.float()
            if pool is None:
                for i, vectors in zip(group, mixed.cpu().numpy(), strict=True):
                    positions = rows[i].positions("a")
                    found[i] = vectors[[positions[number] for number in range(len(positions))]]
            else:
                real = _real([rows[i] for i in group], counted=counted).to(mixed.device)
                cls = self._cls_of([rows[i] for i in group]) if pool == "cls" else None
                for i, vector in zip(group, _pool(mixed, real, pool, cls=cls).cpu().numpy(), strict=True):
                    found[i] = vector
            done += int(lengths.sum())
            if self.progress is not None:
                self.progress(done, total)
        return found

    def _cls_of(self, rows: Sequence[Framed]) -> list[int]:
        """The position of [CLS] in each row."""
        return [self.frame.position_of("cls", self.frame.reads, {"a": row.parts.count("a")}) for row in rows]

    @property
    def _network(self) -> Model:
        if not isinstance(self.model, Model):
            require(self.model, GivesVectors)
            raise AssertionError(f"{name_of(self.model)} gives vectors, but is not a network")
        return self.model

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of texts, if each fits into the model's window with its frame; cut so that it does, if wanted."""
        documents = [ids.tolist() for ids in self.tokenizer.encode_batch(texts)]
        if not self.truncate:
            self.check_lengths(documents)
        return [document[: self._most] for document in documents]

    def check_lengths(self, documents: Sequence[Sequence[int]]) -> None:
        """A `TooLongError` where a document does not fit into the model's window with its frame."""
        for number, document in enumerate(documents, start=1):
            if self._most is not None and len(document) > self._most:
                remedy = "split it into shorter texts, or have texts cut there (truncate=True)"
                raise TooLongError("text", number, tokens=len(document), most=self._most, remedy=remedy)

    @torch.inference_mode()
    def check_layers(self) -> None:
        """A ValueError where `layers` is not understood, or the model does not have them; one token is read."""
        selection, device = select_layers(self.layers), self._network.device
        one = torch.zeros(1, 1, dtype=torch.long, device=device)
        widths = read_layers(self._network, one, torch.ones(1, dtype=torch.long, device=device), _Widths("sum", ()))
        selection.of([torch.zeros(1, int(width)) for width in widths[0, 0]])

    @property
    def _most(self) -> int | None:
        """Tokens of a text, at most; None where nothing bounds them."""
        window = self._network.window
        return None if window is None else window - self.frame.overhead(self.frame.reads, "a")


class _Widths(Selection):
    """Takes no layer: gives the width of each, as [1, 1, L]."""

    def of(self, layers: Sequence[Tensor]) -> Tensor:
        return torch.tensor([[[layer.shape[-1] for layer in layers]]])


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


def _fill_empty(row: Framed) -> Framed:
    """The row, or one token that belongs to no text where it has none, since a network reads at least one."""
    return row if row.pieces else Framed([0], [""], [-1], row.segments and [0])


def _real(rows: Sequence[Framed], *, counted: bool) -> Tensor:
    """[B, T], True at each row's own pieces, and at its special tokens if they are counted."""
    padded, _ = pad_rows([[counted or part == "a" for part in row.parts] for row in rows])
    return padded.bool()


def _pool(vectors: Tensor, real: Tensor, pool: Pool, *, cls: list[int] | None) -> Tensor:
    """[B, T, D] -> [B, D], over the positions that are real, or where [CLS] is."""
    if cls is not None:
        return vectors[torch.arange(len(vectors)), cls]
    if pool == "max":
        return vectors.masked_fill(~real[..., None], -torch.inf).amax(1)
    return vectors.masked_fill(~real[..., None], 0).sum(1) / real.sum(1, keepdim=True)
