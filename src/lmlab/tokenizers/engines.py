"""The pipelines of each kind of tokenizer, in Hugging Face `tokenizers`: cut, look up, put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers

from lmlab.tokenizers.byte_alphabet import CHARACTER_OF

BOUNDARY = "<|endoftext|>"
END_OF_LINE = "<eos>"
UNKNOWN = "<unk>"
START = "<S>"
"""A special token with which texts begin, where that is not the boundary."""
LETTERS = "<letters>"
"""Where it stands in a vocabulary of words: those before it can be predicted, those after it are only read."""
BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def character_engine(characters: Sequence[str]) -> hf.Tokenizer:
    """One token for each character; others are unknown."""
    pieces = [BOUNDARY, UNKNOWN, *characters]
    engine = hf.Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token=UNKNOWN))
    engine.pre_tokenizer = pre_tokenizers.Split(hf.Regex(r"[\s\S]"), "isolated")
    engine.decoder = decoders.Fuse()
    engine.add_special_tokens([BOUNDARY])
    return engine


def byte_engine() -> hf.Tokenizer:
    """One token for each byte, whose id is its value; the boundary is 256."""
    engine = hf.Tokenizer(models.BPE({character: byte for byte, character in enumerate(CHARACTER_OF)}, []))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens([BOUNDARY])
    return engine


def word_engine(words: Sequence[str], *, size: int | None = None) -> hf.Tokenizer:
    """Words between white space, a newline being the word `<eos>`.

    `<eos>` and `<unk>` are words like others, not special tokens: published corpora hold them in their text.
    """
    return numbered_word_engine([UNKNOWN, END_OF_LINE, *words][:size], boundary=1)


def spelled_engine(words: Sequence[str], others: Sequence[str], *, size: int | None = None) -> hf.Tokenizer:
    """The same, with a mark behind the words that can be predicted and all `others` behind it."""
    predicted = [UNKNOWN, END_OF_LINE, *words][:size]
    rest = [*words[max(0, len(predicted) - 2) :], *others]
    return numbered_word_engine([*predicted, LETTERS, *rest], boundary=1)


def numbered_word_engine(words: Sequence[str], *, boundary: int) -> hf.Tokenizer:
    """The same for words whose numbers are given; the one at `boundary` stands for the end of a line."""
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
    """A model over bytes, cut by GPT-2's pattern: letters, digits or other signs, each with the space before it."""
    engine = hf.Tokenizer(model)
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    return engine


def gpt_engine(model: Any) -> hf.Tokenizer:
    """GPT's pairs over lower-cased words that end in `</w>` (Radford et al. 2018)."""
    engine = hf.Tokenizer(model)
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.BPEDecoder(suffix="</w>")
    return engine


def wordpiece_engine(model: Any, *, cased: bool) -> hf.Tokenizer:
    """BERT's WordPiece (Devlin et al. 2019): lower case without accents unless cased, cut at spaces and punctuation."""
    engine = hf.Tokenizer(model)
    engine.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return engine


def list_steps(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A pre-tokenizer or decoder, as its file has it, as the list of its steps."""
    if part is None:
        return []
    steps = part.get("pretokenizers") or part.get("decoders")
    return [part] if steps is None else [inner for step in steps for inner in list_steps(step)]


def has_step(part: dict[str, Any] | None, name: str) -> bool:
    """Whether a pre-tokenizer or decoder has a step of this type."""
    return any(step["type"] == name for step in list_steps(part))
