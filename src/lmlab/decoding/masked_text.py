"""Texts with blanks: from what a user writes to what a model reads, and back with tokens in the blanks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import tokenizers as hf

from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.tokenizer import SPECIAL_TOKENS

CONTEXT = 8
"""Tokens before a blank that are decoded with what fills it, to see whether there is a space between them."""


class MaskedText(NamedTuple):
    """A text with blanks as the model reads it."""

    tokens: list[int]  # in their frame, with a mask at each blank
    places: list[int]  # of the blanks in the tokens
    parts: list[str]  # of the text, around the blanks


def encode_masked_text(text: str, tokenizer: Tokenizer, frame: Frame) -> MaskedText:
    """Read a text in which `[MASK]`, `<mask>` or the tokenizer's own mask is a blank.

    The parts around a blank get the tokens that they have in the whole text. Where tokens carry the space before them,
    as in byte-level BPE, the space before a blank belongs to it, so that it can be a new word; a blank right after
    letters goes on with their word. A tokenizer that adds a space to the beginning of a text adds it there only.
    """
    mask = tokenizer.special("mask")
    names = {*SPECIAL_TOKENS["mask"], str(tokenizer.engine.id_to_token(mask))}
    parts = re.split("|".join(map(re.escape, sorted(names, key=len, reverse=True))), text)
    if len(parts) == 1:
        raise ValueError(
            'the text has no blank: write [MASK] where a token is missing, as in "The [MASK] sat on the mat."'
        )
    eats, inside = _carries_space(tokenizer), _Inside(tokenizer)
    tokens: list[int] = []
    blanks: list[int] = []
    for number, part in enumerate(parts):
        before_blank = number < len(parts) - 1
        piece = part.removesuffix(" ") if eats and before_blank else part
        tokens += inside.encode(piece) if number else tokenizer.encode(piece)
        if before_blank:
            blanks.append(len(tokens))
            tokens.append(mask)
    framed = frame.rows([{"a": tokens}])[0].inputs["tokens"]
    places = framed.places("a")
    return MaskedText(framed.pieces, [places[blank] for blank in blanks], parts)


def _carries_space(tokenizer: Tokenizer) -> bool:
    """Whether the space before a word is part of its first token."""
    pieces = tokenizer.engine.encode("a a", add_special_tokens=False).tokens
    return tokenizer.kind != "bytes" and any(piece[0] in "Ġ▁" for piece in pieces)


class _Inside:
    """Encodes what stands after a blank: a tokenizer that adds a space to the beginning of a text adds none here."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.engine: hf.Tokenizer | None = None
        pieces = tokenizer.engine.encode("a", add_special_tokens=False).tokens
        if pieces and pieces[0][0] in "Ġ▁":
            self.engine = _adding_nothing(tokenizer)
            self.adds_only_if_missing = tokenizer.encode(" a") == tokenizer.encode("a")

    def encode(self, part: str) -> list[int]:
        if self.engine is None:
            return self.tokenizer.encode(part)
        word = re.split(r"(?=\s)", part, maxsplit=1)[0]
        rest = part[len(word) :]
        tokens: list[int] = self.engine.encode(word, add_special_tokens=False).ids
        if self.adds_only_if_missing:
            return tokens + self.tokenizer.encode(rest)
        return tokens + list(self.engine.encode(rest, add_special_tokens=False).ids)


def _adding_nothing(tokenizer: Tokenizer) -> hf.Tokenizer:
    """The same tokenizer, without the space that it adds to the beginning of a text."""
    settings = json.loads(tokenizer.engine.to_str())

    def visit(part: Any) -> None:
        if isinstance(part, list):
            for inner in part:
                visit(inner)
        elif isinstance(part, dict):
            off = {"prepend_scheme": "never", "add_prefix_space": False, "prepend": ""}
            part.update({key: value for key, value in off.items() if key in part})
            visit(list(part.values()))

    visit([settings["pre_tokenizer"], settings["normalizer"]])
    changed = hf.Tokenizer.from_str(json.dumps(settings))
    changed.encode_special_tokens = tokenizer.split_special_tokens
    return changed


def fill_masks(parts: Sequence[str], filling: Sequence[int], tokenizer: Tokenizer) -> str:
    """The user's own text with tokens in its blanks, spaces as the tokens want them."""
    stateful, plain = _carries_space(tokenizer), tokenizer.kind in ("characters", "bytes")
    text = parts[0]
    for token, after in zip(filling, parts[1:], strict=True):
        context = tokenizer.encode(text)[-CONTEXT:]
        before, both = tokenizer.decode(context), tokenizer.decode([*context, token])
        piece = both[len(before) :] if both.startswith(before) else ""
        if not piece:  # a special token, or half a character
            text += tokenizer.show(token)
        elif plain:
            text += piece
        elif stateful:
            text = text.removesuffix(" ") + piece if text else piece.removeprefix(" ")
        elif piece.startswith(" ") or not context:
            text += piece.removeprefix(" ")
        else:
            text = text.rstrip() + piece
        text += after
    return text
