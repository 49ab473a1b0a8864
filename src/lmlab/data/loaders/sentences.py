"""The sentences of a token stream, found by look-ups in flags of the vocabulary, so that any length is quick.

The splitter: a sentence ends after a token whose text ends in `. ! ? …` (or the same followed by closing quotes or
brackets) if the next token begins a word; after `。！？` whatever follows; and at a newline, which opens the next
sentence, as the space before a word belongs to that word. Abbreviations (`Mr. Smith`) are cut like sentences, and
WordPiece, which drops newlines, ends sentences at stops alone: for telling whether two runs of sentences belong
together that is good enough, and it is the same for every tokenizer and language.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.tokenizers.pieces import Flags, Pieces

Places = NDArray[np.int64]

BLOCK = 1 << 22
"""Tokens searched at a time, to bound memory."""
CONTEXT = 32
"""Tokens looked at around a block: stops, closing quotes and white space in a row are fewer."""
MOST_CLOSERS = 4
"""Closing tokens after a stop that are followed up."""


class Sentences(NamedTuple):
    """Where sentences are, in the order of the text: sentence i is `tokens[starts[i] : ends[i]]`."""

    starts: Places
    ends: Places
    document: Places  # the number of the document that each is in


def find_sentences(tokens: NDArray[np.integer], documents: Places, pieces: Pieces) -> Sentences:
    """The sentences of documents that start at positions of a stream, each with a boundary after it."""
    documents = np.asarray(documents)
    document_ends = np.append(documents[1:], len(tokens)) - 1
    found = []
    for low in range(0, len(tokens), BLOCK):
        first = max(0, low - CONTEXT)
        last = min(len(tokens), low + BLOCK + CONTEXT)
        positions = first + np.flatnonzero(_begins_sentence(np.asarray(tokens[first:last]), pieces))
        found.append(positions[(positions >= low) & (positions < low + BLOCK)])
    positions = np.concatenate(found) if found else np.zeros(0, np.int64)
    owner = np.searchsorted(documents, positions, "right") - 1
    inside = (owner >= 0) & (positions > documents[owner]) & (positions < document_ends[owner])
    starts = np.sort(np.concatenate([positions[inside], documents[document_ends > documents]]))
    document = np.searchsorted(documents, starts, "right") - 1
    ends = np.minimum(np.append(starts[1:], len(tokens)), document_ends[document])
    return Sentences(starts, ends, document)


def _begins_sentence(tokens: NDArray[np.integer], pieces: Pieces) -> Flags:
    """Return which tokens begin a sentence, from the tokens before them; the first token of a document is ignored."""
    closer = pieces.closer[tokens]
    begins = np.zeros(len(tokens), dtype=bool)
    words = np.flatnonzero(pieces.begins_word(tokens))
    begins[words] = True
    begins[1:] &= _ended(pieces.stop[tokens], closer)[:-1]
    begins[1:] |= _ended(pieces.full_stop[tokens], closer)[:-1]
    begins &= ~closer

    lines = np.logical_or.reduceat(pieces.newline[tokens], words)
    blank = np.logical_and.reduceat((pieces.white | pieces.special)[tokens], words)
    lines[1:] &= ~blank[:-1]
    begins[words[lines]] = True
    final = np.append(pieces.special[tokens[words[1:]]], True)  # white space before a boundary is no sentence
    begins[words[blank & final & ~(pieces.special & pieces.newline)[tokens[words]]]] = False
    return begins


def _ended(stop: Flags, closer: Flags) -> Flags:
    """Which tokens are a stop, or close what follows a stop."""
    ended = stop.copy()
    for _ in range(MOST_CLOSERS):
        ended[1:] |= closer[1:] & ended[:-1]
    return ended
