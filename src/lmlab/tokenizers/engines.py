"""The pipelines of each kind of tokenizer, in Hugging Face `tokenizers`: split, look up, decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers

BOUNDARY = "<|endoftext|>"
END_OF_LINE = "<eos>"
UNKNOWN = "<unk>"
START = "<S>"
"""A special token at the start of a text, in vocabularies where that is not the boundary."""
CLIP_START = "<|startoftext|>"
CLIP_WORDS = r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
"""What CLIP's byte pairs never reach across: a contraction, letters, one digit, other signs."""
LETTERS = "<letters>"
"""A mark in a vocabulary of words: words before it can be predicted, words after it are only read."""
BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_REST = [byte for byte in range(256) if byte not in _PRINTABLE]

BYTE_OF: dict[str, int] = {
    **{chr(byte): byte for byte in _PRINTABLE},
    **{chr(0x100 + number): byte for number, byte in enumerate(_REST)},
}
CHARACTER_OF: list[str] = sorted(BYTE_OF, key=BYTE_OF.__getitem__)
"""GPT-2's alphabet (Radford et al. 2019, section 2.2): the printable character of each byte, at the index of the byte.

Bytes that print as themselves in Latin-1 keep their character; the others take the characters from U+0100 on.
"""
BYTE_PIECES: dict[str, bytes] = {f"<0x{byte:02X}>": bytes((byte,)) for byte in range(256)}
"""The pieces by which SentencePiece spells the bytes of characters that a vocabulary does not have."""


def character_engine(characters: Sequence[str]) -> hf.Tokenizer:
    """Return a tokenizer with one token per character; other characters are unknown."""
    pieces = [BOUNDARY, UNKNOWN, *characters]
    engine = hf.Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token=UNKNOWN))
    engine.pre_tokenizer = pre_tokenizers.Split(hf.Regex(r"[\s\S]"), "isolated")
    engine.decoder = decoders.Fuse()
    engine.add_special_tokens([BOUNDARY])
    return engine


def byte_engine() -> hf.Tokenizer:
    """Return a tokenizer with one token per byte, whose id is the byte; the boundary is 256."""
    engine = hf.Tokenizer(models.BPE({character: byte for byte, character in enumerate(CHARACTER_OF)}, []))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens([BOUNDARY])
    return engine


def word_engine(words: Sequence[str], *, size: int | None = None) -> hf.Tokenizer:
    """Return a tokenizer that splits at white space; a newline is the word `<eos>`.

    `<eos>` and `<unk>` are ordinary words, not special tokens: published corpora have them in their text.
    """
    return numbered_word_engine([UNKNOWN, END_OF_LINE, *words][:size], boundary=1)


def spelled_engine(words: Sequence[str], others: Sequence[str], *, size: int | None = None) -> hf.Tokenizer:
    """Return the same with a mark after the words that can be predicted, and all `others` after the mark."""
    predicted = [UNKNOWN, END_OF_LINE, *words][:size]
    rest = [*words[max(0, len(predicted) - 2) :], *others]
    return numbered_word_engine([*predicted, LETTERS, *rest], boundary=1)


def numbered_word_engine(words: Sequence[str], *, boundary: int) -> hf.Tokenizer:
    """Return the same for words whose ids are given; the word at `boundary` is the end of a line."""
    numbers = {word: number for number, word in enumerate(words) if number != boundary}
    numbers[END_OF_LINE] = boundary
    if UNKNOWN not in numbers or len(numbers) < len(words):
        raise ValueError(f"a vocabulary of words needs {UNKNOWN}, and no word twice")
    engine = hf.Tokenizer(models.WordLevel(numbers, unk_token=UNKNOWN))
    engine.normalizer = normalizers.Replace("\n", f" {END_OF_LINE} ")
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    spaced = decoders.WordPiece(prefix=" ", cleanup=False)
    newline = decoders.Replace(hf.Regex(rf" ?(?<!\S){END_OF_LINE}(?!\S) ?"), "\n")
    engine.decoder = decoders.Sequence([spaced, decoders.Fuse(), newline])
    return engine


def byte_level_engine(model: Any) -> hf.Tokenizer:
    """Return a model over bytes, split by GPT-2's pattern: letters, digits or other signs, with the space before."""
    engine = hf.Tokenizer(model)
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    return engine


def gpt_engine(model: Any) -> hf.Tokenizer:
    """Return GPT's byte pairs over lowercase words that end in `</w>` (Radford et al. 2018)."""
    engine = hf.Tokenizer(model)
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.BPEDecoder(suffix="</w>")
    return engine


def clip_engine(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> hf.Tokenizer:
    """Return CLIP's byte pairs: lowercase words, digits and signs, each ending in `</w>` (Radford et al. 2021).

    The text comes back with a space after every word; its spaces and upper case are lost.
    """
    engine = hf.Tokenizer(models.BPE(vocabulary, merges, end_of_word_suffix="</w>"))
    spaces = normalizers.Replace(hf.Regex(r"\s+"), " ")
    engine.normalizer = normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()])
    words = pre_tokenizers.Split(hf.Regex(CLIP_WORDS), "removed", invert=True)
    engine.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    ends = [decoders.Replace("</w>", " "), decoders.Strip(" ", 0, 1)]
    engine.decoder = decoders.Sequence([decoders.ByteLevel(), *ends])
    engine.add_special_tokens([CLIP_START, BOUNDARY])
    return engine


def wordpiece_engine(model: Any, *, cased: bool) -> hf.Tokenizer:
    """Return BERT's WordPiece (Devlin et al. 2019): lowercase without accents unless cased, split at punctuation."""
    engine = hf.Tokenizer(model)
    engine.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return engine


def list_steps(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the steps of a pre-tokenizer or decoder of a `tokenizer.json`."""
    if part is None:
        return []
    steps = part.get("pretokenizers") or part.get("decoders")
    return [part] if steps is None else [inner for step in steps for inner in list_steps(step)]


def has_step(part: dict[str, Any] | None, name: str) -> bool:
    """Whether a pre-tokenizer or decoder has a step of this type."""
    return any(step["type"] == name for step in list_steps(part))
