"""Words as their letters: the input of models that read letters.

A spelling is a row of L numbers: the bytes of the word in UTF-8 between a mark of its beginning and one of its end, and
padding. So no word is unknown to the reader, and none needs a row of its own in a table (Kim et al. 2016). The numbers
are those of ELMo (Peters et al. 2018), where a text begins and ends with a word of a single mark.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from lmlab.tokenizers.tokenizer import Tokenizer

BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
"""After the 256 bytes."""
ALPHABET = 261
MOST_LETTERS = 50
"""Of a spelling, marks included; of a longer word the first bytes are read."""

Letters = NDArray[np.int16]


def spell(words: Iterable[bytes | int], *, letters: int = MOST_LETTERS) -> Letters:
    """The spellings [N, letters] of words, each given as its bytes, or as a mark that replaces a whole word."""
    given = [[word] if isinstance(word, int) else word[: letters - 2] for word in words]
    rows = np.full((len(given), letters), PADDING, np.int16)
    rows[:, 0] = BEGIN_WORD
    for row, word in zip(rows, given, strict=True):
        row[1 : len(word) + 1] = list(word)
        row[len(word) + 1] = END_WORD
    return rows


class NewWords:
    """Words that no file has, numbered as they are met: a word has the same number as long as it is cached.

    So texts of users are ids like all others, on their way to a model that asks for the letters. What is kept on disk
    holds no such number. At most `room` words are kept: of the oldest the numbers
    are given to no other word, and are an error from then on.
    """

    def __init__(self, *, room: int = 2**27) -> None:
        self.room, self.count = room, 0  # bytes, about; how many numbers were given
        self._numbers: OrderedDict[str, int] = OrderedDict()  # the one met longest ago first
        self._words: dict[int, str] = {}
        self._size = 0
        self._lock = Lock()

    def number(self, word: str) -> int:
        with self._lock:
            found = self._numbers.get(word)
            if found is not None:
                self._numbers.move_to_end(word)
                return found
            number, self.count = self.count, self.count + 1
            self._numbers[word], self._words[number] = number, word
            self._size += _size_of(word)
            while self._size > self.room and len(self._numbers) > 1:
                old, forgotten = self._numbers.popitem(last=False)
                del self._words[forgotten]
                self._size -= _size_of(old)
            return number

    def word(self, number: int) -> str:
        found = self._words.get(number)
        if found is None:
            raise ValueError(f"new word {number} is not known, or forgotten after many others: give the text again")
        return found

    def words(self, numbers: Sequence[int]) -> list[str]:
        return [self.word(number) for number in numbers]


def _size_of(word: str) -> int:
    """The bytes that a word takes, with its places in both tables, roughly."""
    return len(word.encode(errors="replace")) + 200


NEW_WORDS = NewWords()


class Spellings:
    """The letters of every token of a tokenizer, whatever its kind, and of words that are new to it."""

    def __init__(self, tokenizer: Tokenizer, *, letters: int = MOST_LETTERS) -> None:
        import torch  # here, because tokenizers are used where nothing so heavy is

        self.count, self.letters = tokenizer.vocabulary, letters
        self.table = torch.from_numpy(spell(_texts(tokenizer), letters=letters))  # [V, letters]

    def __call__(self, tokens: Tensor) -> Tensor:
        """The spellings [N, letters] of tokens [N]."""
        known = self.table[tokens.clamp(max=self.count - 1).cpu()]
        new = (tokens >= self.count).nonzero()[:, 0].cpu()
        if len(new):
            words = NEW_WORDS.words((tokens.cpu()[new] - self.count).tolist())
            known[new] = self.table.new_tensor(spell([word.encode() for word in words], letters=self.letters))
        return known.to(tokens.device).long()


def _texts(tokenizer: Tokenizer) -> list[bytes | int]:
    """The bytes of each token; for special tokens their names, or a mark at the ends of a text."""
    from lmlab.tokenizers.pieces import spell_pieces

    marks: dict[int, int] = {tokenizer.start: BEGIN_TEXT, tokenizer.boundary: END_TEXT}
    for name, mark in (("cls", BEGIN_TEXT), ("sep", END_TEXT)):
        if tokenizer.has_special(name):
            marks[tokenizer.special(name)] = mark
    plain = tokenizer.of_words
    texts: list[bytes | int] = []
    for token, text in enumerate(spell_pieces(tokenizer)):
        if text is None:
            texts.append(marks.get(token, (tokenizer.engine.id_to_token(token) or "").encode()))
        else:
            texts.append((text[1:] if plain else text).encode(errors="replace"))
    return texts


PAD, BEGIN, END = 0, 1, 2
SYMBOLS = 3 + 256
"""The alphabet of `spell_rows`: padding, the marks of the beginning and the end of a word, and the bytes of UTF-8."""


def spell_word(word: str, *, longest: int) -> list[int]:
    """Return the begin mark, the bytes of a word and the end mark, at most `longest` numbers in all."""
    return [BEGIN, *(3 + byte for byte in word.encode()[: longest - 2]), END]


def spell_rows(rows: Sequence[Sequence[str]], *, longest: int) -> Tensor:
    """Return rows of words as their spellings [B, T, C], padded to the longest row and the longest word."""
    import torch

    spelled = [[spell_word(word, longest=longest) for word in row] for row in rows]
    width = max((len(word) for row in spelled for word in row), default=1)
    found = torch.zeros(len(rows), max(map(len, rows), default=1), width, dtype=torch.long)
    for number, row in enumerate(spelled):
        if row:
            padded = [word + [PAD] * (width - len(word)) for word in row]
            found[number, : len(row)] = torch.tensor(padded)
    return found
