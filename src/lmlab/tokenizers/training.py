"""Training a tokenizer from text, by a short spec such as `bpe:4096` or `words:min=4`."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import tokenizers as hf
from tokenizers import models, trainers

from lmlab.config import suggest
from lmlab.tokenizers.engines import (
    BERT_SPECIALS,
    BOUNDARY,
    CHARACTER_OF,
    END_OF_LINE,
    LETTERS,
    UNKNOWN,
    byte_engine,
    byte_level_engine,
    character_engine,
    spelled_engine,
    word_engine,
    wordpiece_engine,
)
from lmlab.tokenizers.files import load
from lmlab.tokenizers.tokenizer import WORD_KINDS, Tokenizer, TokenizerWarning

KINDS = ("characters", "bytes", "words", "spelled", "bpe", "wordpiece", "unigram")
SMALLEST = {"bpe": 257, "unigram": 257, "wordpiece": 64, "words": 3, "spelled": 3}
"""The least vocabulary of each kind: for the byte-level ones the 256 bytes and the boundary."""
LONGEST_WORD = 256
"""A longer run without white space is no word: `words` takes it as unknown, the otherslearn from its parts."""
MOST_COUNTED = 2_000_000
"""Above this number of different words, those seen once are dropped and counted again, to limit memory."""
MOST_DIFFERENT = {"bpe": 6_000_000, "wordpiece": 6_000_000, "unigram": 2_000_000}
"""Subwords are learned from texts whose different words have about this many characters in total, which takes 600 MB.
Languages with spaces hardly reach it; where words hardly repeat (no spaces at all, say) it is that much text."""
FEW_NEW, UNSEARCHED = 1 / 8, 7
"""If fewer than this fraction of a text's characters are in new words, this many texts are skipped."""


class Spec(NamedTuple):
    """A tokenizer to be trained."""

    kind: str
    size: int | None = None  # of the whole vocabulary; None: as many as there are
    minimum: int = 1  # words: how often a word must be seen
    cased: bool = False  # wordpiece: whether upper case is kept

    def __str__(self) -> str:
        options = [str(self.size)] if self.size is not None else []
        options += [f"min={self.minimum}"] * (self.minimum > 1) + ["cased"] * self.cased
        return ":".join([self.kind, ",".join(options)]) if options else self.kind


def parse(text: str) -> Spec:
    """Read a spec; a ValueError says what is allowed."""
    kind, colon, tail = text.partition(":")
    if kind not in KINDS:
        raise ValueError(f"unknown tokenizer {text!r}{suggest(kind, KINDS)}; or the path of a tokenizer.json")
    values: dict[str, int | bool] = {}
    for option in tail.split(",") if colon else []:
        key, _, value = option.strip().rpartition("=")
        if kind == "wordpiece" and option.strip() == "cased":
            values["cased"] = True
        elif re.fullmatch(r"[0-9_]+", value) and (
            (key == "" and kind in SMALLEST) or (key == "min" and kind in WORD_KINDS)
        ):
            values["minimum" if key else "size"] = int(value)
        else:
            raise ValueError(f"tokenizer {text!r}: {option!r} is not understood; allowed: {_FORMS[kind]}")
    spec = Spec(kind, **values)  # type: ignore[arg-type]
    if spec.size is None and kind in ("bpe", "wordpiece", "unigram"):
        raise ValueError(f"tokenizer {text!r} needs the size of its vocabulary, for instance {kind}:4096")
    if spec.size is not None and spec.size < SMALLEST[kind]:
        raise ValueError(f"tokenizer {text!r}: {spec.size} is too few; {kind} needs at least {SMALLEST[kind]}")
    if spec.minimum < 1:
        raise ValueError(f"tokenizer {text!r}: min={spec.minimum} is not allowed; it must be at least 1")
    return spec


_FORMS = {
    "characters": "characters",
    "bytes": "bytes",
    "words": "words, words:10000, words:min=4, words:10000,min=2",
    "spelled": "spelled, spelled:10000, spelled:min=4, spelled:10000,min=2",
    "bpe": "bpe:4096",
    "wordpiece": "wordpiece:4096, wordpiece:4096,cased",
    "unigram": "unigram:4096",
}


def resolve(given: str | Path | Tokenizer, texts: Callable[[], Iterable[str]]) -> Tokenizer:
    """The tokenizer for training: the given one, one read from its files, or one trained on `texts()` by a spec."""
    if isinstance(given, Tokenizer):
        return given.splitting_specials
    if is_path(given):
        return load(given)
    return train(str(given), texts())


def is_path(given: str | Path) -> bool:
    """Whether a tokenizer is given as a path rather than as a spec."""
    if isinstance(given, Path):
        return True
    return given.partition(":")[0] not in KINDS and (Path(given).exists() or "/" in given or given.endswith(".json"))


def train(spec: str | Spec, texts: Iterable[str]) -> Tokenizer:
    """Train a tokenizer on texts, which are read once.

    Where the text does not allow so large a vocabulary, the tokenizer has as many tokens as it does, with a
    TokenizerWarning that says how many.
    """
    spec = parse(spec) if isinstance(spec, str) else spec
    tokenizer = Tokenizer(_TRAINERS[spec.kind](spec, texts))
    if spec.size is not None and tokenizer.predicted < spec.size:
        warnings.warn(
            f"{spec}: the text allows only {tokenizer.predicted:,} tokens; the vocabulary has that size",
            TokenizerWarning,
            stacklevel=2,
        )
    return tokenizer


def _characters(spec: Spec, texts: Iterable[str]) -> hf.Tokenizer:
    seen: set[str] = set()
    for text in texts:
        seen.update(text)
    if not seen:
        raise ValueError("a characters tokenizer cannot be trained on an empty text")
    return character_engine(sorted(seen))


def _bytes(spec: Spec, texts: Iterable[str]) -> hf.Tokenizer:
    return byte_engine()


def _words(spec: Spec, texts: Iterable[str]) -> hf.Tokenizer:
    """Ids go from the frequent to the rare, as adaptive softmax wants them; equal counts are in alphabetical order."""
    kept, _ = _count_words(spec, texts)
    return word_engine(kept, size=spec.size)


def _spelled(spec: Spec, texts: Iterable[str]) -> hf.Tokenizer:
    """The same order; the words that are too rare to be predicted follow after the mark."""
    kept, others = _count_words(spec, texts)
    return spelled_engine(kept, others, size=spec.size)


def _count_words(spec: Spec, texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """The words that were seen often enough and those that were not, both by falling frequency."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word in text.split() if len(word) <= LONGEST_WORD)
        if len(counts) > MOST_COUNTED:
            counts = Counter({word: count for word, count in counts.items() if count > 1})
    if not counts:
        raise ValueError(
            f"a {spec.kind} tokenizer needs words of at most {LONGEST_WORD} characters between white space"
        )
    words = [
        (word, count)
        for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if word not in (UNKNOWN, END_OF_LINE, LETTERS)
    ]
    kept = [word for word, count in words if count >= spec.minimum]
    return kept, [word for word, _ in words[len(kept) :]]


def different_words(texts: Iterable[str]) -> list[str]:
    """The words of texts in order of appearance; above `MOST_COUNTED`, with a warning, they stay unknown."""
    seen: dict[str, None] = {}
    for text in texts:
        seen.update(dict.fromkeys(word for word in text.split() if len(word) <= LONGEST_WORD))
        if len(seen) > MOST_COUNTED:
            warnings.warn(
                f"the text has more than {MOST_COUNTED:,} different words: those that come later are read as unknown",
                TokenizerWarning,
                stacklevel=2,
            )
            break
    return list(seen)


def _byte_pairs(spec: Spec, texts: Iterable[str]) -> hf.Tokenizer:
    assert spec.size is not None
    engine = byte_level_engine(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=spec.size,
        min_frequency=2,
        special_tokens=[BOUNDARY],
        initial_alphabet=CHARACTER_OF,
        show_progress=False,
    )
    engine.train_from_iterator(_parts(spec, texts), trainer)
    return engine


def _unigram(spec: Spec, texts: Iterable[str]) -> hf.Tokenizer:
    """The library's trainer goes through its words in an order of chance, so a second training may differ a little.

    Scores are kept to 1/1024 nat, which a file holds exactly, so that what is read back is what was saved.
    """
    assert spec.size is not None
    engine = byte_level_engine(models.Unigram())
    trainer = trainers.UnigramTrainer(
        vocab_size=spec.size,
        special_tokens=[BOUNDARY],
        initial_alphabet=CHARACTER_OF,
        show_progress=False,
    )
    engine.train_from_iterator(_parts(spec, texts), trainer)
    pieces = json.loads(engine.to_str())["model"]["vocab"]
    rounded = [(piece, round(score * 1024) / 1024) for piece, score in pieces]
    engine = byte_level_engine(models.Unigram(rounded))
    engine.add_special_tokens([BOUNDARY])
    return engine


def _wordpiece(spec: Spec, texts: Iterable[str]) -> hf.Tokenizer:
    """Trained in two steps, so that the outcome does not hang on chance.

    The library numbers the letters inside words (`##e`) in the order in which it meets them, which is random, and
    breaks ties by number. The first step finds those letters; the second is given them in alphabetical order.
    """
    assert spec.size is not None
    kept = list(_parts(spec, texts))
    first = _train_wordpiece(spec, kept, size=0, given=[])
    letters = sorted(piece for piece in first if piece.startswith("##"))
    vocabulary = _train_wordpiece(spec, kept, size=spec.size, given=letters)
    engine = wordpiece_engine(models.WordPiece(vocabulary, unk_token="[UNK]"), cased=spec.cased)
    engine.add_special_tokens(BERT_SPECIALS)
    return engine


def _train_wordpiece(spec: Spec, texts: list[str], *, size: int, given: list[str]) -> dict[str, int]:
    assert spec.size is not None
    engine = wordpiece_engine(models.WordPiece(unk_token="[UNK]"), cased=spec.cased)
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=BERT_SPECIALS + given,
        limit_alphabet=min(1000, (spec.size - len(BERT_SPECIALS)) // 2),
        show_progress=False,
    )
    engine.train_from_iterator(texts, trainer)
    vocabulary: dict[str, int] = engine.get_vocab()
    return vocabulary


_TRAINERS: dict[str, Callable[[Spec, Iterable[str]], hf.Tokenizer]] = {
    "characters": _characters,
    "bytes": _bytes,
    "words": _words,
    "spelled": _spelled,
    "bpe": _byte_pairs,
    "wordpiece": _wordpiece,
    "unigram": _unigram,
}

_LONG_RUN = re.compile(rf"(?<!\S)\S{{{LONGEST_WORD + 1},}}")


def _parts(spec: Spec, texts: Iterable[str]) -> Iterator[str]:
    """The texts, as far as memory allows, with runs without white space cut.

    The cost of learning grows with the square of a word's length, its memory with the length of all different words.
    After a text with few new words the next ones are not searched for them; it is counted for them, too.
    """
    seen: set[str] = set()
    different = unsearched = 0
    for text in texts:
        yield from _cut(text)
        if unsearched > 0:
            unsearched -= 1
            continue
        new = set(text.split()) - seen
        seen.update(word for word in new if len(word) <= LONGEST_WORD)
        more = sum(map(len, new))
        unsearched = UNSEARCHED if more < FEW_NEW * len(text) else 0
        different += (1 + unsearched) * more
        if different > MOST_DIFFERENT[spec.kind]:
            return


def _cut(text: str) -> Iterator[str]:
    """A text, cut where a run without white space has had LONGEST_WORD characters."""
    start = 0
    for run in _LONG_RUN.finditer(text) if _may_have_long_runs(text) else ():
        for end in range(run.start() + LONGEST_WORD, run.end(), LONGEST_WORD):
            yield text[start:end]
            start = end
    yield text[start:]


def _may_have_long_runs(text: str) -> bool:
    """Whether some stretch longer than LONGEST_WORD has no space: found by leaps, far quicker than the runs."""
    space = -1
    while len(text) - space > LONGEST_WORD + 1:
        space = text.rfind(" ", space + 1, space + LONGEST_WORD + 2)
        if space < 0:
            return True
    return False
