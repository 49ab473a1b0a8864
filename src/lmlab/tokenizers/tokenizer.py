"""The tokenizer that models, corpora and decoders hold: text to token ids and back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray
from tokenizers import models

from lmlab.tokenizers.engines import (
    BOUNDARY,
    BYTE_OF,
    BYTE_PIECES,
    CHARACTER_OF,
    CLIP_START,
    END_OF_LINE,
    LETTERS,
    START,
    byte_engine,
    byte_level_engine,
    character_engine,
    has_step,
    list_steps,
    word_engine,
    wordpiece_engine,
)
from lmlab.tokenizers.spellings import NEW_WORDS
from lmlab.tokenizers.word_cache import WordCache, find_added

BOUNDARIES = (BOUNDARY, END_OF_LINE, "<eod>", "</s>", "<|end_of_text|>", "<|im_end|>", "[SEP]", "<sep>", "<s>", "[CLS]")
"""The names of the token between documents in published tokenizers, the best first."""
MOST_UNUSED = 100_000
"""Ids below the highest one that belong to no token."""

SPECIAL_TOKENS: dict[str, tuple[str, ...]] = {
    "pad": ("[PAD]", "<pad>"),
    "cls": ("[CLS]", "<cls>", "<s>", CLIP_START),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
"""The special tokens of models that fill masks, each with the pieces that published tokenizers use for it."""

WORD_KINDS = ("words", "spelled")
"""The kinds whose tokens are whole words, known or read by their letters."""

Ids = NDArray[np.uint32]


class TokenizerWarning(UserWarning):
    """A tokenizer is usable, but not quite what was asked for."""


class Tokenizer:
    """Text to token ids and back; everything it knows is derived from one Hugging Face tokenizer.

    `boundary` separates documents: the token of that name, or the first of BOUNDARIES in the vocabulary, or a new
    one. Special tokens that are written in a text are split like other text (`split_special_tokens`), so a document
    with the characters `<|endoftext|>` is encoded as those characters; the tokenizer of an imported model reads them as
    the special token, as `transformers` does. In `words`, `<eos>` and `<unk>` standing alone are what the published
    corpora mean by them. A tokenizer of `spelled` words is open: new words get a number of this process.
    """

    def __init__(self, engine: hf.Tokenizer, *, boundary: str | None = None, split_special_tokens: bool = True) -> None:
        engine.no_truncation()
        engine.no_padding()
        engine.encode_special_tokens = split_special_tokens
        vocabulary = engine.get_vocab()
        name = next((each for each in (boundary, *BOUNDARIES) if each in vocabulary), None)
        self.has_new_boundary = name is None
        if name is None:
            engine.add_special_tokens([BOUNDARY])
            name, vocabulary = BOUNDARY, engine.get_vocab()
        self.engine, self.split_special_tokens = engine, split_special_tokens
        self.named_boundary = boundary if boundary == name else None
        self.boundary: int = vocabulary[name]
        self.vocabulary: int = max(vocabulary.values()) + 1
        if self.vocabulary > len(vocabulary) + MOST_UNUSED:
            raise ValueError(
                f"a tokenizer with {len(vocabulary):,} tokens has the id {self.vocabulary - 1:,}; "
                f"at most {MOST_UNUSED:,} ids may be unused: number its tokens from 0"
            )
        self._vocabulary = vocabulary
        self._settings: dict[str, Any] = json.loads(engine.to_str())
        self._settings["model"].pop("vocab")
        self._merges = bool(self._settings["model"].pop("merges", None))

    @cached_property
    def kind(self) -> str:
        """`characters`, `bytes`, `words`, `spelled`, `bpe`, `wordpiece` or `unigram`, as the parts of the file show."""
        kind = str(self._settings["model"]["type"]).lower()
        if kind == "wordlevel":
            if self._cuts_as(character_engine("")):
                return "characters"
            return "spelled" if LETTERS in self._vocabulary and self._cuts_as(word_engine("")) else "words"
        if kind == "bpe" and self._cuts_as(byte_engine()) and not self._merges and not self.may_drop_bytes:
            return "bytes"
        return kind

    @property
    def options(self) -> dict[str, Any]:
        """The options that a `tokenizer.json` cannot hold; empty by default."""
        named = {} if self.named_boundary is None else {"boundary": self.named_boundary}
        return named if self.split_special_tokens else {**named, "split_special_tokens": False}

    @property
    def spec(self) -> str:
        """The spec, as far as the file shows it: the kind and the size."""
        return self.kind if self.kind in ("characters", "bytes") else f"{self.kind}:{self.predicted}"

    @property
    def of_words(self) -> bool:
        """Whether each token is a whole word: `words`, `spelled`."""
        return self.kind in WORD_KINDS

    @property
    def is_open(self) -> bool:
        """Whether every word has a number, whatever its letters: for models that read letters (`spelled`)."""
        return self.kind == "spelled"

    @cached_property
    def predicted(self) -> int:
        """The number of ids that can be predicted: all, or for `spelled` words those before the mark."""
        return self._vocabulary[LETTERS] if self.is_open else self.vocabulary

    def is_unknown(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which ids are predicted as the unknown token."""
        unknown: NDArray[np.bool_] = ids == (-1 if self.unknown is None else self.unknown)
        return unknown | (ids >= self.predicted) if self.is_open else unknown

    @cached_property
    def lossy(self) -> bool:
        """Whether case, spaces or rare words may be lost, so that different texts get the same ids.

        `characters` and byte-level tokenizers lose only characters or bytes that they lack. Whether a given text loses
        anything says `inspecting.loses_text`.
        """
        characters = self._settings["model"]["type"] == "WordLevel" and self._cuts_as(character_engine(""))
        return not (characters or self._byte_level)

    @cached_property
    def may_drop_bytes(self) -> bool:
        """Whether the vocabulary lacks some of the 256 bytes in the alphabet of byte-level tokenizers."""
        return not set(CHARACTER_OF) <= self._vocabulary.keys()

    @cached_property
    def newline_is_boundary(self) -> bool:
        """Whether a newline is itself the boundary, as in the word-level experiments on PTB, WikiText and Brown."""
        return self.of_words and self._cuts_as(word_engine("")) and self._vocabulary.get(END_OF_LINE) == self.boundary

    @cached_property
    def unknown(self) -> int | None:
        """The id of the unknown token, or None."""
        model = self._settings["model"]
        if model["type"] == "Unigram":
            return None if model["unk_id"] is None else int(model["unk_id"])
        return None if model.get("unk_token") is None else self._vocabulary.get(model["unk_token"])

    @cached_property
    def start(self) -> int:
        """The id of the token before a text: the boundary, or a special token of its own."""
        own = self._vocabulary.get(START, self.boundary)
        return own if own in self._specials else self.boundary

    def special(self, name: str) -> int:
        """Return the id of the special token `pad`, `cls`, `sep` or `mask`; a ValueError if there is none."""
        for piece in SPECIAL_TOKENS[name]:
            if piece in self._vocabulary:
                return self._vocabulary[piece]
        raise ValueError(
            f"the tokenizer has no token for {name} (looked for {' and '.join(SPECIAL_TOKENS[name])}); "
            f"a model that was trained to fill masks has one"
        )

    def has_special(self, name: str) -> bool:
        """Whether there is a special token of this name: `pad`, `cls`, `sep` or `mask`."""
        return any(piece in self._vocabulary for piece in SPECIAL_TOKENS[name])

    def with_specials(self, names: Iterable[str]) -> Tokenizer:
        """Return a tokenizer that also has these special tokens; the ids of all others stay."""
        missing = [SPECIAL_TOKENS[name][0] for name in names if not self.has_special(name)]
        if not missing:
            return self
        changed = self.changed(self.engine.to_str())
        changed.engine.add_special_tokens(missing)
        return changed.changed(changed.engine.to_str())

    def changed(self, content: str) -> Tokenizer:
        """The tokenizer of other content of a `tokenizer.json`, with the boundary and the reading of this one."""
        return _from_string(content, self.named_boundary, self.split_special_tokens)

    @cached_property
    def splitting_specials(self) -> Tokenizer:
        """The same tokenizer for training text, in which special tokens are split like other text."""
        if self.split_special_tokens:
            return self
        return _from_string(self.engine.to_str(), self.named_boundary, True)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the tokenizer's file, and of its boundary where it has been named."""
        return hashlib.sha256((self.engine.to_str() + (self.named_boundary or "")).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; no boundary is added."""
        ids: list[int] = self.encode_batch([text])[0].tolist()
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of several texts, computed in parallel."""
        try:
            if self._added is not None and any(map(self._added.search, texts)):
                return [np.array(ids, np.uint32) for ids in self._encode_afresh(texts)]
            if self.kind == "bytes":
                return [self._id_of_byte[np.frombuffer(text.encode(), np.uint8)] for text in texts]
            if self.kind == "characters":
                return [self._id_of_character[np.frombuffer(text.encode("utf-32-le"), "<u4")] for text in texts]
            if not self.is_open and any(map(_UNSURE.search, texts)):
                return [np.array(ids, np.uint32) for ids in self._encode_afresh(texts)]
            if self.is_open:
                return [_collect(_split(text), self._number_of) for text in texts]
            if self.newline_is_boundary:
                return [self._words(text) for text in texts]
            if self._memory is not None:
                return self._memory.encode_batch(texts)
            return [np.array(ids, np.uint32) for ids in self._encode_afresh(texts)]
        except (UnicodeEncodeError, TypeError):
            raise ValueError(
                "the text contains half of a surrogate pair, which is not Unicode text; "
                "leave that character out, or replace it"
            ) from None

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text, each with its characters, from and to."""
        if self.is_open:
            found = list(re.finditer(r"\S+|\n", text))
            ids = [self._number_of(each[0].replace("\n", END_OF_LINE)) for each in found]
            return ids, [each.span() for each in found]
        encoding = self.engine.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def encode_closed(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids to store for training: special tokens are split, and words that the file lacks are unknown."""
        if not self.is_open:
            return self.splitting_specials.encode_batch(texts)
        get, unknown = self._plain.get, self.unknown
        return [_collect(_split(text), lambda word: get(word, unknown)) for text in texts]

    def new_words(self, ids: Iterable[int]) -> list[str]:
        """Return the words among ids that have an id in this process only."""
        return NEW_WORDS.words([token - self.vocabulary for token in ids if token >= self.vocabulary])

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; boundaries give nothing, or a newline if a newline is the boundary."""
        if self.is_open:
            return str(self.engine.decoder.decode([self._word(int(i)) for i in ids]))
        return str(self.engine.decode([int(i) for i in ids], skip_special_tokens=True))

    def show(self, token: int) -> str:
        """One token as people can read it: control characters and lone bytes are escaped.

        A number without a token is shown as such: imported models may have more rows than their tokenizer has tokens.
        """
        if token < 0:
            raise ValueError(f"token {token} is outside the vocabulary of {self.vocabulary}")
        piece = self._word(token) if self.is_open else self.engine.id_to_token(token)
        if piece is None:
            return f"[{token}]"
        if (raw := self.bytes_of(token)) is not None:
            piece = raw.decode(errors="backslashreplace")
        return re.sub(r"[\x00-\x1f\x7f-\xa0]", lambda match: repr(match[0])[1:-1], piece)

    @cached_property
    def text_of(self) -> Callable[[int], str | None]:
        """Return the text that a token adds after any other token; None if that depends on the other."""
        return cache(self._find_text)

    def _find_text(self, token: int) -> str | None:
        raw, piece = self.bytes_of(token), self.engine.id_to_token(token) or ""
        if not raw or len(raw) != len(piece):  # special, or added as a text that is not spelled in bytes
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError:  # a part of a character
            return None

    def bytes_of(self, token: int) -> bytes | None:
        """Return the bytes of a token; None for tokens of characters and special tokens."""
        piece = self.engine.id_to_token(token) or ""
        if not self._byte_level:  # bytes of characters that the vocabulary does not have: <0xE2>
            return BYTE_PIECES.get(piece) if has_step(self._settings["decoder"], "ByteFallback") else None
        if token in self._specials:
            return None
        return bytes(map(BYTE_OF.__getitem__, piece)) if set(piece) <= BYTE_OF.keys() else piece.encode()

    def save(self, path: str | Path, *, shared: bool = False) -> None:
        """Write `tokenizer.json`, to a file or into a folder, and the options that this file cannot store.

        If it is `shared`, other processes may write the same file at the same time.
        """
        from lmlab.tokenizers.files import save

        save(self, path, shared=shared)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a `tokenizer.json`, of GPT-2's two files, or of a folder that holds them."""
        from lmlab.tokenizers.files import load

        return load(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_string, (self.engine.to_str(), self.named_boundary, self.split_special_tokens)

    def __repr__(self) -> str:
        return f"Tokenizer({self.spec!r})"

    @cached_property
    def _byte_level(self) -> bool:
        """Whether the pieces are bytes in GPT-2's alphabet and nothing is changed or added before them."""
        layers = self._settings["pre_tokenizer"]
        return (
            has_step(layers, "ByteLevel")
            and not any(layer.get("add_prefix_space") for layer in list_steps(layers))
            and self._settings["normalizer"] is None
            and has_step(self._settings["decoder"], "ByteLevel")
        )

    def _cuts_as(self, engine: hf.Tokenizer) -> bool:
        """Whether a text is changed and cut into pieces as another tokenizer does it."""
        other = json.loads(engine.to_str())
        return all(self._settings[part] == other[part] for part in ("normalizer", "pre_tokenizer"))

    @cached_property
    def _specials(self) -> set[int]:
        return {token["id"] for token in self._settings["added_tokens"] if token["special"]}

    @cached_property
    def _id_of_byte(self) -> Ids:
        return np.array([self._vocabulary[CHARACTER_OF[byte]] for byte in range(256)], np.uint32)

    @cached_property
    def _id_of_character(self) -> Ids:
        table = np.full(0x110000, self.unknown, np.uint32)
        for piece, index in self._vocabulary.items():
            if len(piece) == 1:
                table[ord(piece)] = index
        return table

    @cached_property
    def _added(self) -> re.Pattern[str] | None:
        """Finds texts with tokens that were added to the vocabulary, which are left to the library."""
        return find_added(self._settings, split_special_tokens=self.split_special_tokens)

    @cached_property
    def _memory(self) -> WordCache | None:
        """Where pieces never reach over white space, words can be encoded one by one and cached."""
        empty = models.BPE()
        known = [byte_level_engine(empty), *(wordpiece_engine(empty, cased=cased) for cased in (True, False))]
        return WordCache(self._encode_afresh) if any(map(self._cuts_as, known)) else None

    def _encode_afresh(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            encodings = self.engine.encode_batch_fast(list(texts), add_special_tokens=False)
        except Exception as error:
            if type(error) is not Exception:  # a lone surrogate is an error of Python
                raise
            raise ValueError(f"the tokenizer cannot encode this text: {error}") from None
        return [encoding.ids for encoding in encodings]

    @cached_property
    def _plain(self) -> dict[str, int]:
        """The vocabulary without special tokens, which in a text are words like others."""
        marks = {LETTERS, *sum(SPECIAL_TOKENS.values(), ())}
        return {piece: i for piece, i in self._vocabulary.items() if piece not in marks and i not in self._specials}

    def _words(self, text: str) -> Ids:
        get, unknown = self._plain.get, self.unknown
        return _collect(_split(text), lambda word: get(word, unknown))

    def _number_of(self, word: str) -> int:
        """The id of a word: that of the file or, where the file does not have it, its number in this process."""
        known = self._plain.get(word)
        return self.vocabulary + NEW_WORDS.number(word) if known is None else known

    def _word(self, token: int) -> str:
        """The word of an id, of the file or of this process."""
        if token < self.vocabulary:
            return self.engine.id_to_token(token) or ""
        return NEW_WORDS.word(token - self.vocabulary)


_UNSURE = re.compile(r"[\x0b\x0c\x1c-\x1f\x85]")
"""What is white space for Python but not for Unicode, or not for BERT: texts with it are left to the library."""


def _split(text: str) -> list[str]:
    return text.replace("\n", f" {END_OF_LINE} ").split()


def _collect(words: list[str], number: Callable[[str], int | None]) -> Ids:
    return np.fromiter(map(number, words), np.uint32, len(words))


def _from_string(content: str, boundary: str | None = None, split_special_tokens: bool = True) -> Tokenizer:
    engine = hf.Tokenizer.from_str(content)
    return Tokenizer(engine, boundary=boundary, split_special_tokens=split_special_tokens)
