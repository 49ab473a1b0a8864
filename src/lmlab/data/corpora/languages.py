"""Texts in several languages: one vocabulary for all, and small languages read more often than their size warrants.

The share of a language with n tokens is n^α / Σ n^α (Devlin's mBERT with α = 0.7, Conneau & Lample 2019 with 0.5, XLM-R
with 0.3): α = 1 leaves sizes as they are, 0 treats all languages alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmlab.data.batches.loaders import Loader
from lmlab.data.corpora.cache import cache_folder
from lmlab.data.corpora.corpus import SAMPLE, Corpus, Split, prepare
from lmlab.data.corpora.preparing import Progress, digest
from lmlab.tokenizers import Tokenizer, resolve
from lmlab.tokenizers.training import is_path

LABEL = re.compile(r"([a-z]{2,3}(?:-[A-Za-z0-9]{2,8})?)=(.+)", re.DOTALL)
PIECE = 1 << 16
"""Bytes of a language that are taken together, or left out together, when the tokenizer is trained."""
ROUND = 256
"""Batches after which every language has had its share, to within one batch."""


def by_language(texts: Sequence[str] | None) -> dict[str, list[str]] | None:
    """Texts named `en=wiki.txt` by language; None where no text has a label. A file of that very name is a file."""
    found: dict[str, list[str]] = {}
    plain = []
    for text in texts or []:
        label = LABEL.fullmatch(text)
        if label is None or Path(text).exists():
            plain.append(text)
        else:
            found.setdefault(label[1], []).append(label[2])
    if found and plain:
        raise ValueError(
            f"{plain[0]} has no language, but {', '.join(found)} are named; label all texts, as in en={plain[0]}"
        )
    return found or None


def shares_of(sizes: Mapping[str, float], *, alpha: float) -> dict[str, float]:
    """n^α / Σ n^α for each language of size n."""
    smoothed = {name: size**alpha for name, size in sizes.items()}
    return {name: value / sum(smoothed.values()) for name, value in smoothed.items()}


@dataclass(frozen=True)
class LanguageSplit:
    """One part of a corpus in several languages; read as a whole, they follow each other."""

    parts_: dict[str, Split]
    alpha: float

    @cached_property
    def tokens(self) -> NDArray[Any]:
        """All tokens, language by language."""
        first, *others = (part.tokens for part in self.parts_.values())
        return np.concatenate([first, *(tokens[1:] for tokens in others)])  # one boundary between two languages

    @cached_property
    def documents(self) -> NDArray[np.int64]:
        """The place in `tokens` of each document's first token."""
        places, before = [], 0
        for part in self.parts_.values():
            places.append(part.documents + before)
            before += len(part.tokens) - 1
        return np.concatenate(places)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts_.values())

    @property
    def words(self) -> int:
        return sum(part.words for part in self.parts_.values())

    @property
    def shares(self) -> dict[str, float]:
        """How often each language is read."""
        return shares_of({name: len(part.tokens) for name, part in self.parts_.items()}, alpha=self.alpha)

    @property
    def size(self) -> int:
        return len(self.tokens) - 1

    @property
    def scored(self) -> int:
        return sum(part.scored for part in self.parts_.values())

    def parts(self) -> dict[str, Any]:
        return self.parts_

    def loader(self, make: Any, *, seed: int) -> Any:
        return Mixed({name: make(part) for name, part in self.parts_.items()}, self.shares, seed=seed)

    def texts(self) -> Iterator[str]:
        """The text of each document, for valid and test."""
        for part in self.parts_.values():
            yield from part.texts()


class Mixed:
    """Batches of several languages by turns, each batch in one language, as often as its share says.

    A round of 256 batches has each language its number of times, in an order drawn from the seed; so batch k and its
    number within its own language are known from k alone.
    """

    def __init__(self, loaders: Mapping[str, Loader], shares: Mapping[str, float], *, seed: int) -> None:
        self.names, self.loaders, self.seed = list(loaders), list(loaders.values()), seed
        self.counts = _apportion([shares[name] for name in self.names], ROUND)
        first = self.loaders[0]
        self.batch_size, self.window = first.batch_size, first.window
        weights = self.counts / ROUND
        self.units_per_step = {
            "tokens": float(
                sum(w * loader.units_per_step["tokens"] for w, loader in zip(weights, self.loaders, strict=True))
            )
        }
        self.steps_per_epoch = float(sum(loader.steps_per_epoch for loader in self.loaders))
        self._round = -1
        self._order = np.zeros(0, dtype=np.int64)

    def batch(self, step: int) -> Any:
        language, number = self._place(step)
        return self.loaders[language].batch(number)

    def plan(self, total_steps: int | None) -> None: ...

    def restarts(self, step: int) -> bool:
        """True also where the language changes: a state that was carried is of another language."""
        language, number = self._place(step)
        return step == 0 or self._place(step - 1)[0] != language or self.loaders[language].restarts(number)

    def language(self, step: int) -> str:
        """The language of batch `step`."""
        return self.names[self._place(step)[0]]

    def _place(self, step: int) -> tuple[int, int]:
        turn, place = divmod(step, ROUND)
        if turn != self._round:
            slots = np.repeat(np.arange(len(self.counts)), self.counts)
            self._order = np.random.default_rng([self.seed, turn]).permutation(slots)
            self._round = turn
        language = int(self._order[place])
        before = int(np.count_nonzero(self._order[:place] == language))
        return language, turn * int(self.counts[language]) + before


def _apportion(shares: Sequence[float], slots: int) -> NDArray[np.int64]:
    """Whole numbers that sum to `slots` and are as close to the shares as can be, none of them zero."""
    exact = np.array(shares) * slots
    counts: NDArray[np.int64] = np.maximum(1, np.floor(exact)).astype(np.int64)
    while counts.sum() < slots:
        counts[np.argmax(exact - counts)] += 1
    while counts.sum() > slots:
        counts[np.argmax(np.where(counts > 1, counts - exact, -math.inf))] -= 1
    return counts


def prepare_languages(
    texts: Mapping[str, Sequence[str]],
    *,
    tokenizer: str | Tokenizer,
    alpha: float,
    valid: Mapping[str, Sequence[str]] | None = None,
    test: Mapping[str, Sequence[str]] | None = None,
    split: Sequence[float] = (0.9, 0.05, 0.05),
    documents: str = "file",
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Texts by language as one corpus, whose parts are `LanguageSplit`s; each language is split by itself."""
    for what, given in (("valid", valid), ("test", test)):
        if given is not None and given.keys() != texts.keys():
            raise ValueError(
                f"--{what} has {', '.join(given)}, the text has {', '.join(texts)}; give the same languages for both"
            )

    def report(name: str) -> Progress | None:
        return None if progress is None else lambda stage, done, total: progress(f"{name}: {stage}", done, total)

    def corpora(how: str | Tokenizer) -> dict[str, Corpus]:
        return {
            name: prepare(
                list(sources),
                tokenizer=how,
                valid=None if valid is None else list(valid[name]),
                test=None if test is None else list(test[name]),
                split=split,
                documents=documents,
                cache=cache,
                progress=report(name),
            )
            for name, sources in texts.items()
        }

    shared = tokenizer if isinstance(tokenizer, Tokenizer) else _shared_tokenizer(tokenizer, corpora, alpha, cache)
    parts = corpora(shared)

    def joined(which: str) -> Any:
        found = {name: getattr(corpus, which) for name, corpus in parts.items()}
        return LanguageSplit(found, alpha) if all(part is not None for part in found.values()) else None

    fingerprint = digest("\n".join(_text_fingerprints(parts)))
    return Corpus(
        tokenizer=shared,
        train=joined("train"),
        valid=joined("valid"),
        test=joined("test"),
        fingerprint=digest(f"{shared.fingerprint}\n{fingerprint}"),
        text_fingerprint=fingerprint,
        folder=next(iter(parts.values())).folder,
    )


def _shared_tokenizer(spec: str, corpora: Any, alpha: float, cache: Path | None) -> Tokenizer:
    """One tokenizer for all languages, trained on a sample that is smoothed as training will be; kept in the cache."""
    if is_path(spec):
        return resolve(spec, lambda: ())
    raw: dict[str, Corpus] = corpora("bytes")
    key = digest("\n".join([spec, str(alpha), *_text_fingerprints(raw)]))
    kept = (cache or cache_folder()) / "corpora" / f"tokenizer-{key[:32]}.json"
    if kept.is_file():
        return Tokenizer.load(kept)
    sizes = {name: corpus.train.bytes for name, corpus in raw.items()}
    size = min(SAMPLE, sum(sizes.values()))
    shares = shares_of(sizes, alpha=alpha)
    sample = (text for name, corpus in raw.items() for text in _sample(corpus, size=round(shares[name] * size)))
    trained = resolve(spec, lambda: sample)
    new = kept.with_suffix(".new")
    trained.save(new)
    new.replace(kept)
    return trained


def _sample(corpus: Corpus, *, size: int) -> Iterator[str]:
    """About `size` bytes of the training text of a language, from all of it; more than once where it is shorter."""
    tokens = corpus.train.tokens
    pieces = [tokens[start : start + PIECE] for start in range(0, len(tokens), PIECE)]
    times, rest = divmod(size, len(tokens))
    for _ in range(times):
        yield from (corpus.tokenizer.decode(piece.tolist()) for piece in pieces)
    wanted = math.ceil(len(pieces) * rest / len(tokens))
    for place in np.linspace(0, len(pieces) - 1, wanted).round().astype(int).tolist():
        yield corpus.tokenizer.decode(pieces[place][: max(1, rest)].tolist())


def _text_fingerprints(corpora: Mapping[str, Corpus]) -> list[str]:
    return [f"{name}:{corpus.text_fingerprint}" for name, corpus in corpora.items()]
