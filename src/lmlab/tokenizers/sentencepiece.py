"""SentencePiece's `.model` files (Kudo & Richardson 2018): Unigram and BPE vocabularies, as of ALBERT, XLNet, LLaMA.

A file is a protocol buffer with three parts: the pieces, how they were trained, and how a text is normalised. Its wire
format is a few lines, so no package is needed to read one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers

SPACE = "▁"
UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
"""Kinds of pieces, as the file numbers them."""


class VocabularyPiece(NamedTuple):
    """One row of the vocabulary."""

    text: str
    score: float
    kind: int


class Vocabulary(NamedTuple):
    """What of a file matters for encoding."""

    pieces: list[VocabularyPiece]
    kind: int  # UNIGRAM or BPE
    charsmap: bytes  # how characters are normalised, as SentencePiece compiled it
    prefix: bool  # whether a space is put before a text
    squeeze: bool  # whether runs of spaces become one


def read_model(path: Path) -> Vocabulary:
    """The content of a `.model` file; a ValueError where it is none."""
    try:
        parts = list(_fields(path.read_bytes()))
        pieces = [_piece(value) for number, value in parts if number == 1]
        trainer = dict(_fields(next((value for number, value in parts if number == 2), b"")))
        normalizer = dict(_fields(next((value for number, value in parts if number == 3), b"")))
    except (LookupError, struct.error, UnicodeDecodeError, TypeError, AttributeError, ValueError):
        raise ValueError(f"{path} is not a SentencePiece model: its content cannot be read") from None
    kind = trainer.get(3, UNIGRAM)
    if not pieces or kind not in (UNIGRAM, BPE):
        raise ValueError(f"{path} is not a SentencePiece model of the kind unigram or bpe, which are what lmlab reads")
    return Vocabulary(pieces, kind, normalizer.get(2, b""), bool(normalizer.get(3, 1)), bool(normalizer.get(4, 1)))


def load_sentencepiece(
    path: Path, *, lowercase: bool = False, strip_accents: bool = False, quotes: bool = False
) -> hf.Tokenizer:
    """The tokenizer of a `.model` file.

    A model may want its texts in lower case, without accents, or with ``quotes'' as \" besides.
    """
    read = read_model(path)
    unknown = next((number for number, piece in enumerate(read.pieces) if piece.kind == UNKNOWN), None)
    bytes_too = any(piece.kind == BYTE for piece in read.pieces)
    if read.kind == UNIGRAM:
        scores = [(piece.text, piece.score) for piece in read.pieces]
        engine = hf.Tokenizer(models.Unigram(scores, unknown, bytes_too))
    else:
        names = {piece.text: number for number, piece in enumerate(read.pieces)}
        unk = None if unknown is None else read.pieces[unknown].text
        model = models.BPE(names, _merges(read.pieces), unk_token=unk, fuse_unk=True, byte_fallback=bytes_too)
        engine = hf.Tokenizer(model)
    engine.normalizer = _normalizer(read, lowercase=lowercase, strip_accents=strip_accents, quotes=quotes)
    fallback: list[Any] = [decoders.ByteFallback(), decoders.Fuse()] if bytes_too else [decoders.Fuse()]
    if read.squeeze:
        scheme = "always" if read.prefix else "never"
        engine.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme)
        engine.decoder = decoders.Sequence([decoders.Metaspace(replacement=SPACE, prepend_scheme=scheme), *fallback])
    else:  # every space counts, also that before a text that begins with one
        first = [decoders.Strip(" ", 1, 0)] if read.prefix else []
        engine.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), *fallback, *first])
    engine.add_special_tokens(
        [
            hf.AddedToken(piece.text, special=True, normalized=False)
            for piece in read.pieces
            if piece.kind in (CONTROL, UNKNOWN) or (piece.kind == USER and piece.text[:1] in "[<")
        ]
    )
    return engine


def _normalizer(read: Vocabulary, *, lowercase: bool, strip_accents: bool, quotes: bool) -> Any:
    steps: list[Any] = [normalizers.Replace(each, '"') for each in ("``", "''") if quotes]
    if strip_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if read.charsmap:
        steps.append(normalizers.Precompiled(read.charsmap))
    if read.squeeze:
        steps += [normalizers.Strip(), normalizers.Replace(hf.Regex(" {2,}"), " ")]
    else:
        steps += [normalizers.Prepend(SPACE)] if read.prefix else []
        steps.append(normalizers.Replace(" ", SPACE))
    return normalizers.Sequence(steps) if steps else None


def _merges(pieces: list[VocabularyPiece]) -> list[tuple[str, str]]:
    """The pairs that make each piece, the best piece first: what scores say of BPE."""
    rank = {piece.text: number for number, piece in enumerate(pieces) if piece.kind in (NORMAL, USER, UNUSED)}
    found = []
    for piece in pieces:
        if piece.kind != NORMAL:
            continue
        cuts = [(piece.text[:cut], piece.text[cut:]) for cut in range(1, len(piece.text))]
        known = [(left, right) for left, right in cuts if left in rank and right in rank]
        found += [(-piece.score, rank[left], rank[right], left, right) for left, right in known]
    return [(left, right) for *_, left, right in sorted(found)]


def _piece(content: bytes) -> VocabularyPiece:
    fields = dict(_fields(content))
    return VocabularyPiece(
        fields[1].decode(), struct.unpack("<f", fields.get(2, b"\0\0\0\0"))[0], fields.get(3, NORMAL)
    )


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message in the wire format: numbers as numbers, all else as bytes."""
    at = 0
    while at < len(content):
        tag, at = _number(content, at)
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            value: Any
            value, at = _number(content, at)
        else:
            length = {1: 8, 5: 4}.get(wire)
            if wire == 2:
                length, at = _number(content, at)
            if length is None or at + length > len(content):
                raise ValueError("no such field")
            value, at = content[at : at + length], at + length
        yield field, value


def _number(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
