"""Properties of each token of a vocabulary: whether it begins a word, whether it can end a sentence."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.tokenizers.engines import BYTE_OF
from lmlab.tokenizers.tokenizer import SPECIAL_TOKENS, Tokenizer

Flags = NDArray[np.bool_]

SPACE = "▁"
"""The character by which SentencePiece writes a space."""
STOPS = ".!?…؟۔।"
"""Characters that end a sentence if a new word follows."""
FULL_STOPS = "。！？"
"""Characters that end a sentence in scripts without spaces, whatever follows."""
CLOSERS = ")]}”’»›」』"
"""Characters that may still belong to a sentence after its stop."""
QUOTES = "\"'"
"""Closers too, but only where the pieces show white space: elsewhere they may as well open the next sentence."""


class Pieces(NamedTuple):
    """Flags [V] of a vocabulary, by which a text of any length is searched quickly."""

    special: Flags  # has no text: the boundary, [CLS], [MASK] …, and ids without a piece
    opens: Flags  # begins with white space
    closes: Flags  # ends with white space, or has no text
    white: Flags  # is nothing but white space
    newline: Flags  # holds a newline
    stop: Flags  # ends a sentence if a word follows
    full_stop: Flags  # ends a sentence whatever follows
    closer: Flags  # is nothing but closing brackets and quotes

    def begins_word(self, tokens: NDArray[np.integer]) -> Flags:
        """Return which tokens [..., T] begin a word; white space belongs to the word after it, as in most pieces.

        The first token of a row begins one, and so does whatever follows a special token.
        """
        begins: Flags = self.opens[tokens]
        before = tokens[..., :-1]
        begins[..., 1:] &= ~self.white[before]
        begins[..., 1:] |= (self.closes & ~self.white)[before]
        begins[..., :1] = True
        begins |= self.special[tokens]
        return begins


def describe_pieces(tokenizer: Tokenizer) -> Pieces:
    """Return the flags of a tokenizer's vocabulary."""
    texts = spell_pieces(tokenizer)
    unspaced = tokenizer.of_words or tokenizer.kind == "wordpiece"
    spaced = not unspaced and not _model(tokenizer).get("end_of_word_suffix")
    closers = CLOSERS + QUOTES * spaced
    ending = re.compile(rf"[{re.escape(CLOSERS + QUOTES)}]*\s*\Z")
    ends = ["" if text is None else ending.sub("", text)[-1:] for text in texts]
    known = ["" if text is None else text for text in texts]

    def flags(values: list[bool]) -> Flags:
        return np.array(values, dtype=bool)

    special = flags([text is None for text in texts])
    newline = flags(["\n" in text for text in known])
    if tokenizer.newline_is_boundary:
        newline[tokenizer.boundary] = True
    return Pieces(
        special=special,
        opens=flags([text[:1].isspace() for text in known]),
        closes=special | flags([text[-1:].isspace() for text in known]),
        white=flags([text.isspace() for text in known]),
        newline=newline,
        stop=flags([end != "" and end in STOPS for end in ends]),
        full_stop=flags([end != "" and end in FULL_STOPS for end in ends]),
        closer=flags([(bare := text if spaced else text.strip()) != "" and not bare.strip(closers) for text in known]),
    )


def spell_pieces(tokenizer: Tokenizer) -> list[str | None]:
    """Return the text of each token with its white space; None if it has no text.

    Words, and the first pieces of words in WordPiece, have a space before them.
    A byte that is no character alone is U+FFFD.
    """
    model = _model(tokenizer)
    byte_level = '"ByteLevel"' in json.dumps(tokenizer._settings["pre_tokenizer"])
    suffix = model.get("end_of_word_suffix")
    prefix = model.get("continuing_subword_prefix") if model["type"] == "WordPiece" else None

    def spell(piece: str) -> str:
        if byte_level:
            return bytes(BYTE_OF[sign] for sign in piece if sign in BYTE_OF).decode(errors="replace")
        if prefix:
            return piece.removeprefix(prefix) if piece.startswith(prefix) else f" {piece}"
        if tokenizer.of_words:
            return f" {piece}"
        if suffix:
            return f"{piece.removesuffix(suffix)} " if piece.endswith(suffix) else piece
        return piece.replace(SPACE, " ")

    special = tokenizer._specials | {tokenizer.boundary}
    marks = {name for names in SPECIAL_TOKENS.values() for name in names}
    texts: list[str | None] = [None] * tokenizer.vocabulary
    for piece, index in tokenizer.engine.get_vocab().items():
        if index not in special and piece not in marks:
            texts[index] = spell(piece)
    return texts


def _model(tokenizer: Tokenizer) -> dict[str, Any]:
    settings: dict[str, Any] = tokenizer._settings["model"]
    return settings
