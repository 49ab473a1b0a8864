"""What is learnt from: kinds of data, each with its own settings and its own way to become a corpus.

A new kind is a file with a Config and a `prepare`, and a row in `DATA`. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lmlab.config import build, suggest

if TYPE_CHECKING:
    from lmlab.data.config import DataConfig
    from lmlab.data.corpora.corpus import Corpus
    from lmlab.data.corpora.preparing import ReportProgress
    from lmlab.tokenizers import Tokenizer


class Kind(NamedTuple):
    """A kind of data."""

    config: str  # where its Config is, `module:Class`
    prepare: str  # and the function that makes a corpus of one, `module:function`
    keys: tuple[str, ...] = ()  # settings that name the data of this kind; they tell it from the others


DATA = {
    "text": Kind("lmlab.data.corpora.text:TextConfig", "lmlab.data.corpora.text:prepare", keys=("text",)),
    "languages": Kind("lmlab.data.corpora.languages:LanguagesConfig", "lmlab.data.corpora.languages:prepare"),
    "pairs": Kind(
        "lmlab.data.corpora.pairs:PairsConfig",
        "lmlab.data.corpora.pairs:prepare",
        keys=("source", "target", "pairs"),
    ),
    "examples": Kind(
        "lmlab.data.corpora.examples:ExamplesConfig", "lmlab.data.corpora.examples:prepare", keys=("examples",)
    ),
}


def load_config(kind: str) -> type[DataConfig]:
    """The Config class of a kind of data, imported now; a ValueError names the nearest kind."""
    if kind not in DATA:
        raise ValueError(f"unknown kind of data {kind!r}{suggest(kind, DATA)}")
    config: type[DataConfig] = _load(DATA[kind].config)
    return config


def find_kind(values: Mapping[str, Any]) -> str:
    """The kind of data that settings are about: as they say, or as the names of the texts tell."""
    if values.get("kind") is not None:
        return str(values["kind"])
    given = {kind: [name for name in row.keys if values.get(name) is not None] for kind, row in DATA.items()}
    told = [kind for kind, names in given.items() if names]
    if not told:
        raise ValueError("no text is named: give data.text, or data.source and data.target, or data.pairs")
    if len(told) > 1:
        names = [given[kind][0] for kind in told]
        raise ValueError(f"{' and '.join(names)} do not go together: give either plain text or pairs, not both")
    return "languages" if told == ["text"] and _has_languages(values["text"]) else told[0]


def _has_languages(text: Any) -> bool:
    """Whether texts are named by language: `en=wiki.txt`, or a table."""
    from lmlab.data.config import by_language

    texts = [text] if isinstance(text, str) else text
    return isinstance(text, Mapping) or (isinstance(texts, list) and by_language(texts) is not None)


def make_config(values: Mapping[str, Any], *, where: str = "data") -> DataConfig:
    """Settings of data, checked as the kind that they name or tell; a ValueError says which of them is wrong."""
    kind = find_kind(values)
    cls = load_config(kind)
    known = {name: value for name, value in values.items() if value is not None or name in cls.model_fields}
    for name in known:
        if name in cls.allowed():
            continue
        owners = [other for other in DATA if name in load_config(other).allowed()]
        if owners:
            raise ValueError(
                f"{where}.{name}: {name} belongs to {' and '.join(owners)}, and this learns from {cls.what}"
            )
        raise ValueError(f"unknown setting {where}.{name}{suggest(name, cls.allowed())}")
    return build(cls, {**known, "kind": kind}, where=where)


def prepare(
    config: DataConfig,
    *,
    tokenizer: str | Tokenizer | None,
    source: str | Tokenizer | None = None,
    roles: Sequence[str] = (),
    progress: ReportProgress | None = None,
) -> Corpus:
    """The data of a recipe or a comparison: read, split, texts encoded as tokens, and kept in the cache.

    `tokenizer` is None where nothing is text; `source` is that of a translator's source, where it has one of its own.
    `roles` are the special tokens that the corpus' tokenizer is to have. They come after all others, so that the
    encoded text is the same without them.
    """
    corpus: Corpus = _load(DATA[config.kind].prepare)(config, tokenizer=tokenizer, source=source, progress=progress)
    return corpus.with_roles(roles)


def _load(where: str) -> Any:
    module, _, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)
