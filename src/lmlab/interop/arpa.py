r"""ARPA files: n-gram models as text, as SRILM, KenLM and most speech recognisers read and write them.

In a file the boundary is `<s>` as context and `</s>` as prediction. A word may not hold white space there, so white
space, control characters and lone surrogates are written as `\uXXXX` (four hexadecimal digits), the empty word as
`\u{}`, and a word that already contains such a sequence, or is called `<s>` or `</s>` without being the boundary, with
its first character escaped. All other words, backslashes included, are written unchanged; reading reverses it exactly.
"""

from __future__ import annotations

import gzip
import re
import warnings
import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np

from lmlab.data.readers.files import Readable, open_unpacked, read_lines
from lmlab.files import writing
from lmlab.models.ngram import NGram
from lmlab.ngrams.counting import Integers, look_up, sort_with_positions
from lmlab.ngrams.levels import Level
from lmlab.ngrams.smoothing import Floats

LN10 = float(np.log(10.0))
INFINITY = float("inf")
ZERO = -99.0  # log10(0) in this format
_ESCAPED = re.compile(r"\\u(?:([0-9a-f]{4})|\{\})")


def write_arpa(model: NGram, path: str | Path, *, words: Sequence[str], digits: int = 7) -> None:
    """Write a model whose token i is called words[i]; the file (gzipped for .gz) is replaced atomically."""
    path = Path(path)
    names = _names(model, words)
    with writing(path) as new, open(new, "wb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=3, mtime=0) as packed:
                _write(model, cast(BinaryIO, packed), names, digits)
        else:
            _write(model, raw, names, digits)


def read_arpa(path: str | Path) -> tuple[NGram, list[str]]:
    """Read a model and its words from an ARPA file, gzipped or not; a ValueError names the wrong line.

    Tokens are numbered in the order of the unigrams, without `<s>`; the boundary is the number of `</s>`. The format
    does not contain the smoothing method, so that setting of the result has no meaning.
    """
    path = Path(path)
    with open_unpacked(path) as file:
        lines = _Lines(path, file)
        declared = _read_header(lines)
        words, tables = _read_unigrams(lines, count=declared[0])
        ids = {word: token for token, word in enumerate(words)}
        for n, count in enumerate(declared[1:], start=2):
            lines.expect(b"\\%d-grams:" % n)
            tables.append(_read_order(lines, n=n, count=count, ids=ids))
        lines.expect(b"\\end\\")
    config = NGram.Config(vocabulary=len(words), order=len(tables), boundary=ids[b"</s>"])
    return NGram(config, levels=_index(tables, config, path)), [unescape(word.decode()) for word in words]


def is_arpa(path: str | Path) -> bool:
    """Whether a file looks like an ARPA file by its first lines; an empty file does too."""
    try:
        with open_unpacked(Path(path)) as file:
            begin = file.read(2**16)
    except (ValueError, OSError, EOFError):
        return False
    return not begin or b"\\data\\" in [line.strip() for line in begin.removeprefix(b"\xef\xbb\xbf").splitlines()]


def escape(word: str) -> str:
    """Escape a word for an ARPA file."""
    if not word:
        return r"\u{}"
    if _ESCAPED.search(word):
        word = word.replace("\\", r"\u005c")
    elif word in ("<s>", "</s>"):
        word = r"\u003c" + word[1:]
    return "".join(f"\\u{ord(letter):04x}" if _unprintable(letter) else letter for letter in word)


def unescape(word: str) -> str:
    """Reverse `escape`."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else "", word)


def _unprintable(letter: str) -> bool:
    return letter.isspace() or ord(letter) < 32 or letter in "\x7f\ufeff" or "\ud800" <= letter <= "\udfff"


def _names(model: NGram, words: Sequence[str]) -> list[bytes]:
    if len(words) != model.vocabulary:
        raise ValueError(
            f"{len(words)} words were given for a vocabulary of {model.vocabulary}; give one for each token"
        )
    names = [escape(word).encode() for word in words]
    names[model.config.boundary] = b"</s>"
    if len(set(names)) < len(names):
        seen: dict[bytes, int] = {}
        for token, name in enumerate(names):
            if name in seen:
                raise ValueError(f"tokens {seen[name]} and {token} are both called {words[token]!r}; names must differ")
            seen[name] = token
    return names


def _write(model: NGram, file: BinaryIO, names: Sequence[bytes], digits: int) -> None:
    V, boundary, order = model.vocabulary, model.config.boundary, model.config.order
    file.write(b"\\data\\\n")
    for n, stored in enumerate(model.levels, start=1):
        file.write(b"ngram %d=%d\n" % (n, stored.size + (n == 1)))
    contexts: list[bytes] = []
    for n, stored in enumerate(model.levels, start=1):
        level = stored.unpack()
        logs, backoffs = np.maximum(level.log_probabilities / LN10, ZERO), level.log_backoffs / LN10
        if n == 1:  # the boundary is two words: <s> has its back-off weight, </s> its probability
            texts = [b"<s>", *names]
            logs = np.append(ZERO, logs)
            backoffs = np.append(backoffs[boundary], np.where(level.keys == boundary, 0.0, backoffs))
        else:
            prefixes, last = (level.keys // V).tolist(), (level.keys % V).tolist()
            texts = [contexts[prefix] + b" " + names[word] for prefix, word in zip(prefixes, last, strict=True)]
        file.write(b"\n\\%d-grams:\n" % n)
        if n < order:
            row = f"%.{digits}g\t%b\t%.{digits}g\n".encode()
            file.writelines(row % values for values in zip(logs.tolist(), texts, backoffs.tolist(), strict=True))
        else:
            row = f"%.{digits}g\t%b\n".encode()
            file.writelines(row % values for values in zip(logs.tolist(), texts, strict=True))
        contexts = texts if n > 1 else [*names[:boundary], b"<s>", *names[boundary + 1 :]]
    file.write(b"\n\\end\\\n")


class _Table(NamedTuple):
    """One order of the file: the tokens [E, n] of each n-gram, with natural logarithms."""

    tokens: Integers
    log_probabilities: Floats
    log_backoffs: Floats
    lines: Integers  # line number of each n-gram


class _Lines:
    """The non-empty lines of a file, with their numbers."""

    def __init__(self, path: Path, file: Readable) -> None:
        self.path, self.number = path, 0
        self._lines = read_lines(file)

    def __iter__(self) -> Iterator[bytes]:
        try:
            for line in self._lines:
                self.number += 1
                if stripped := line.strip():
                    yield stripped
        except (EOFError, zlib.error, OSError) as error:
            raise self.error(f"cannot be read further: {error}") from None

    def expect(self, heading: bytes) -> None:
        for line in self:
            if line != heading:
                raise self.error(f"expected {heading.decode()}, found {line[:60]!r}")
            return
        raise self.error(f"the file ends before {heading.decode()}; it is truncated")

    def error(self, message: str, *, number: int | None = None) -> ValueError:
        return ValueError(f"{self.path}, line {self.number if number is None else number}: {message}")


def _read_header(lines: _Lines) -> list[int]:
    r"""The declared number of n-grams of each order; stops after the heading \1-grams:."""
    for line in lines:
        if line.removeprefix(b"\xef\xbb\xbf") == b"\\data\\":
            break
    else:
        if not lines.number:
            raise ValueError(f"{lines.path} is empty; give an ARPA file, word vectors or the folder of a model")
        raise lines.error("no line says \\data\\, so this is not an ARPA file")
    declared: list[int] = []
    for line in lines:
        if match := re.fullmatch(rb"ngram\s+(\d+)\s*=\s*(\d+)", line):
            if int(match[1]) != len(declared) + 1:
                raise lines.error(f"expected the count of order {len(declared) + 1}, found {line.decode()!r}")
            declared.append(int(match[2]))
        elif line == b"\\1-grams:" and declared:
            return declared
        else:
            raise lines.error(f"expected 'ngram {len(declared) + 1}=COUNT' or \\1-grams:, found {line[:60]!r}")
    raise lines.error("the file ends in its header; it is truncated")


def _read_rows(lines: _Lines, *, n: int, count: int) -> Iterator[tuple[float, list[bytes], float]]:
    """The logarithm, words and back-off weight (0 if not given) of each n-gram of one section."""
    number = lines.number
    rows = -1
    for rows, line in enumerate(islice(lines, count)):  # noqa: B007
        fields = line.split()
        try:
            log = float(fields[0])
            backoff = float(fields[n + 1]) if len(fields) == n + 2 else 0.0
        except ValueError:
            if fields[0][:1] == b"\\":
                break
            raise lines.error(f"{line[:60]!r} does not begin or end with a number") from None
        if not n + 1 <= len(fields) <= n + 2:
            raise lines.error(f"expected a number, {n} words and perhaps a number, found {line[:60]!r}")
        if not (log < 0.001 and abs(backoff) < INFINITY):
            raise lines.error(f"{line[:60]!r} holds a number that is not the logarithm of a probability or weight")
        yield log, fields[1 : n + 1], backoff
    else:
        if rows + 1 == count:
            return
        raise lines.error(f"the file ends after {rows + 1} of {count} n-grams of order {n}; it is truncated")
    raise lines.error(f"the header says {count} n-grams of order {n}, but here, after line {number}, are only {rows}")


def _read_unigrams(lines: _Lines, *, count: int) -> tuple[list[bytes], list[_Table]]:
    """The words without <s>, and their table; the weight of <s> becomes that of the boundary, </s>."""
    weights: dict[bytes, tuple[float, float]] = {}
    for log, (word,), backoff in _read_rows(lines, n=1, count=count):
        if word in weights:
            raise lines.error(f"the word {word!r} appears twice")
        try:
            word.decode()
        except UnicodeDecodeError:
            raise lines.error(f"the word {word!r} is not UTF-8; convert the file first") from None
        weights[word] = log, backoff
    _, opening = weights.pop(b"<s>", (ZERO, 0.0))
    if b"</s>" not in weights:
        warnings.warn(f"{lines.path} has no </s>; it is added as a word that is never predicted", stacklevel=3)
    weights[b"</s>"] = weights.get(b"</s>", (ZERO, 0.0))[0], opening
    if len(weights) < 2:
        raise lines.error(f"a vocabulary of {len(weights)} words is too small; at least 2 are needed besides <s>")
    logs, backoffs = np.array(list(weights.values())).T
    logs = np.clip(logs, ZERO, 0.0)
    tokens = np.arange(len(weights))
    return list(weights), [_Table(tokens[:, None], logs * LN10, backoffs * LN10, tokens)]


def _read_order(lines: _Lines, *, n: int, count: int, ids: dict[bytes, int]) -> _Table:
    """The n-grams of one order, without those that cannot occur: <s> inside, or something after </s>."""
    boundary, opening = ids[b"</s>"], len(ids)
    known = {**ids, b"<s>": opening}
    tokens, logs, backoffs, numbers = array("q"), array("d"), array("d"), array("q")
    for log, words, backoff in _read_rows(lines, n=n, count=count):
        try:
            tokens.extend([known[word] for word in words])
        except KeyError as error:
            raise lines.error(f"the word {error.args[0]!r} is not among the unigrams") from None
        logs.append(log)
        backoffs.append(backoff)
        numbers.append(lines.number)
    rows = np.array(tokens, np.int64).reshape(-1, n)
    usable = ~((rows[:, 1:] == opening).any(axis=1) | (rows[:, :-1] == boundary).any(axis=1))
    if not usable.all():
        warnings.warn(
            f"{lines.path}: {(~usable).sum()} n-grams of order {n} have <s> after, or </s> before, another word; "
            "they are left out, since no sentence contains them",
            stacklevel=3,
        )
    rows[rows == opening] = boundary
    weights = np.where(rows[:, -1] == boundary, 0.0, np.array(backoffs))  # nothing follows </s>
    return _Table(
        *(column[usable] for column in (rows, np.clip(logs, ZERO, 0.0) * LN10, weights * LN10, np.array(numbers)))
    )


def _index(tables: Sequence[_Table], config: NGram.Config, path: Path) -> list[Level]:
    """The tables as sorted keys.

    An n-gram whose first n-1 words are not in the file (SRILM may leave them out) gets them, with the probability that
    backing off gives and the weight 1, which changes no distribution.
    """
    V = config.vocabulary
    levels = [Level(np.arange(V), tables[0].log_probabilities, tables[0].log_backoffs, V)]
    ranks = [table.tokens[:, 0] for table in tables]
    for n in range(2, len(tables) + 1):
        wanted = [
            rank * V + table.tokens[:, n - 1] for rank, table in zip(ranks[n - 1 :], tables[n - 1 :], strict=True)
        ]
        keys, positions = sort_with_positions(wanted[0], bound=len(levels[-1].keys) * V)
        table = tables[n - 1]
        if (twice := np.flatnonzero(keys[1:] == keys[:-1])).size:
            raise ValueError(f"{path}, line {table.lines[positions[twice[0] + 1]]}: the n-gram appears twice")
        level = Level(keys, table.log_probabilities[positions], table.log_backoffs[positions], V)
        for key, longer in zip(wanted[1:], tables[n:], strict=True):
            unknown = np.flatnonzero(look_up(level.keys, key) < 0)
            if unknown.size:
                absent, example = np.unique(key[unknown], return_index=True)
                rows = longer.tokens[unknown[example], :n]
                shorter = NGram(config.model_copy(update={"order": n}), levels=[*levels, level])
                merged, positions = sort_with_positions(np.append(level.keys, absent), bound=len(levels[-1].keys) * V)
                logs = np.append(level.log_probabilities, -shorter.surprisal(rows)[:, -1])
                backoffs = np.append(level.log_backoffs, np.zeros(len(absent)))[positions]
                level = Level(merged, logs[positions], backoffs, V)
        ranks[n - 1 :] = [look_up(level.keys, key) for key in wanted]
        levels.append(level)
    return levels
