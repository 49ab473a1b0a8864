"""The vectors of every layer of a model, for token ids and for sentences of words.

Layer 0 is the input of the first block (the embeddings, with positions), layers 1 to L are the outputs of the blocks,
and layer L is what the model predicts from: in GPT-2 it is after the last norm.
Shapes: B texts, T tokens, D width, L layers, ΣD the widths of all layers together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lmlab.layers.layer_mix import Selection
from lmlab.layers.watching import watching_layers
from lmlab.models import name_of
from lmlab.models.abilities import PredictsNext, State
from lmlab.models.model import Model
from lmlab.progress import check_cancelled
from lmlab.tokenizers.frames import pad_rows
from lmlab.tokenizers.words import read_words

SEGMENT = 256
"""Tokens that a model without a window reads at once, carrying its state: as in scoring."""


def read_layers(model: Model, tokens: Tensor, lengths: Tensor, selection: Selection) -> Tensor:
    """tokens [B, T], row i of lengths[i] tokens -> the selected mix of layers [B, T, D]; padding holds anything.

    Of ELECTRA the part that is used, of an encoder-decoder the encoder. What predicts the next token and has no window
    reads a long text in segments, carrying its state.
    """
    if not isinstance(model, PredictsNext) or model.window is not None:  # XLNet, too, reads both ways here
        return selection.of(model.layers(**{model.main_input: tokens}, lengths=lengths))
    parts, state = [], model.start(len(tokens))
    for segment in torch.split(tokens, SEGMENT, dim=1):
        with watching_layers() as layers:
            state = model(segment, state=state).state
        parts.append(selection.of(layers))
    return torch.cat(parts, dim=1)


def read_next(model: Model, tokens: Tensor, state: State, selection: Selection) -> tuple[Tensor, State]:
    """The same of one text [1, T] that follows on another, after which the state was as given; None at the first."""
    with watching_layers() as layers:
        state = model(tokens, state=state).state
    return selection.of(layers), state


def check_stateful(model: Model) -> None:
    """A ValueError where a model has no state that could be carried from one text to the next."""
    if not model.stateful or model.window is not None:
        raise ValueError(
            f"{name_of(model)} has no recurrent state: leave out --carry-state, or use a recurrent "
            "model (lstm, lm-1b, elmo)"
        )


EVERY = Selection("concat", slice(None))
AT_ONCE = 32
"""Sentences read at once."""


class SentenceVectors(NamedTuple):
    """The vectors [T, ΣD] of the pieces that were read, all layers concatenated, and the word that each is in."""

    vectors: Tensor
    words: Tensor
    """[T], −1 at white space."""

    def of(self, position: int | None = None) -> Tensor | None:
        """The mean over the pieces of a word [ΣD], or over all; None where none was read."""
        chosen = self.vectors if position is None else self.vectors[self.words == position]
        return chosen.mean(0) if len(chosen) else None


@torch.no_grad()
def read_sentences(
    model: Any, sentences: Sequence[Sequence[str]], *, around: Sequence[int] | None = None
) -> Iterator[SentenceVectors]:
    """Sentences of words as a LanguageModel reads them, several at once.

    Of a sentence that it cannot hold, the first pieces are read, or those `around` a word of each.
    """
    network, frame = model.model, model.frame
    tokenizer = model.source_tokenizer or model.text_tokenizer
    room = None if network.window is None else network.window - frame.overhead(frame.reads, "a")
    for first in range(0, len(sentences), AT_ONCE):
        check_cancelled()
        documents, numbers = [], []
        for number, sentence in enumerate(sentences[first : first + AT_ONCE], first):
            text = read_words(sentence, tokenizer)
            start = 0
            if room is not None and around is not None:
                start = max(0, min(text.words.index(around[number]) - room // 2, len(text.pieces) - room))
            end = None if room is None else start + room
            documents.append({"a": text.pieces[start:end]})
            numbers.append(torch.tensor([-1 if word is None else word for word in text.words[start:end]]))
        rows = [row.inputs[frame.reads] for row in frame.rows(documents)]
        tokens, lengths = pad_rows([row.pieces for row in rows], device=network.device)
        mixed = read_layers(network, tokens, lengths, EVERY).float().cpu()  # [B, T, ΣD]
        for row, vectors, words in zip(rows, mixed, numbers, strict=True):
            positions = row.positions("a")
            yield SentenceVectors(vectors[[positions[i] for i in range(len(positions))]], words)


def layer_widths(model: Any) -> list[int]:
    """How wide the vectors of each layer are; a ValueError where a model has no layers."""
    network, frame = model.model, model.frame
    if not isinstance(network, Model):
        model.embedder.read([])  # says what is missing
        raise ValueError(f"{name_of(network)} has no layers to look at: use a neural model")
    (row,) = frame.rows([{"a": [0]}])
    tokens, lengths = pad_rows([row.inputs[frame.reads].pieces], device=network.device)
    return [layer.shape[-1] for layer in network.layers(**{frame.reads: tokens}, lengths=lengths)]
