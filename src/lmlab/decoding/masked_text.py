"""Texts with masks: from the text of the user to the tokens of the model, and back with the masks filled."""

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
"""Tokens before a mask that are decoded with its filling, to find out whether there is a space between them."""


class MaskedText(NamedTuple):
    """A text with masks as the model reads it."""

    tokens: list[int]  # in their frame, with the mask token at each position
    positions: list[int]  # of the masks in the tokens
    parts: list[str]  # of the text, around the masks


def encode_masked_text(text: str, tokenizer: Tokenizer, frame: Frame) -> MaskedText:
    """Encode a text with `[MASK]`, `<mask>` or the tokenizer's own mask token in it.

    The parts around a mask get the tokens that they have in the whole text. If tokens include the space before them, as
    in byte-level BPE, the space before a mask belongs to it, so that it can be a new word; a mask right after letters
    continues their word. A tokenizer that adds a space to the start of a text adds it there only.
    """
    mask = tokenizer.special("mask")
    names = {*SPECIAL_TOKENS["mask"], str(tokenizer.engine.id_to_token(mask))}
    parts = re.split("|".join(map(re.escape, sorted(names, key=len, reverse=True))), text)
    if len(parts) == 1:
        raise ValueError('the text has no mask: write [MASK] in place of a token, as in "The [MASK] sat on the mat."')
    includes_space, inside = _includes_space(tokenizer), _InnerEncoder(tokenizer)
    tokens: list[int] = []
    masks: list[int] = []
    for number, part in enumerate(parts):
        before_mask = number < len(parts) - 1
        piece = part.removesuffix(" ") if includes_space and before_mask else part
        tokens += inside.encode(piece) if number else tokenizer.encode(piece)
        if before_mask:
            masks.append(len(tokens))
            tokens.append(mask)
    framed = frame.rows([{"a": tokens}])[0].inputs["tokens"]
    positions = framed.positions("a")
    return MaskedText(framed.pieces, [positions[each] for each in masks], parts)


def _includes_space(tokenizer: Tokenizer) -> bool:
    """Whether the space before a word is part of its first token."""
    pieces = tokenizer.engine.encode("a a", add_special_tokens=False).tokens
    return tokenizer.kind != "bytes" and any(piece[0] in "Ġ▁" for piece in pieces)


class _InnerEncoder:
    """Encodes the text after a mask, where a tokenizer must not add the space that it adds to the start of a text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.engine: hf.Tokenizer | None = None
        pieces = tokenizer.engine.encode("a", add_special_tokens=False).tokens
        if pieces and pieces[0][0] in "Ġ▁":
            self.engine = _without_prefix_space(tokenizer)
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


def _without_prefix_space(tokenizer: Tokenizer) -> hf.Tokenizer:
    """The same tokenizer, without the space that it adds to the start of a text."""
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
    """The user's text with its masks filled by tokens, with spaces as the tokens need them."""
    spaced, plain = _includes_space(tokenizer), tokenizer.kind in ("characters", "bytes")
    text = parts[0]
    for token, after in zip(filling, parts[1:], strict=True):
        context = tokenizer.encode(text)[-CONTEXT:]
        before, both = tokenizer.decode(context), tokenizer.decode([*context, token])
        piece = both[len(before) :] if both.startswith(before) else ""
        if not piece:  # a special token, or an unfinished character
            text += tokenizer.show(token)
        elif plain:
            text += piece
        elif spaced:
            text = text.removesuffix(" ") + piece if text else piece.removeprefix(" ")
        elif piece.startswith(" ") or not context:
            text += piece.removeprefix(" ")
        else:
            text = text.rstrip() + piece
        text += after
    return text
