"""Kinds of data, each with its own settings and its own way to become a corpus.

A new kind is a file with a Config and a `prepare`, and a row in `DATA`. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lmlab.config import build, suggest
from lmlab.data.readers.media import ENDINGS, find_media_kind, missing_reader

if TYPE_CHECKING:
    from lmlab.data.config import DataConfig
    from lmlab.data.corpora.corpus import Corpus, Processor
    from lmlab.data.corpora.preparing import ReportStage
    from lmlab.tokenizers import Tokenizer


class Kind(NamedTuple):
    """A kind of data."""

    config: str  # its Config, as `module:Class`
    prepare: str  # the function that makes a corpus from a Config, as `module:function`
    keys: tuple[str, ...] = ()  # the settings that name its files, by which the kind is recognized


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
    "speech": Kind(
        "lmlab.data.corpora.recordings:SpeechConfig", "lmlab.data.corpora.recordings:prepare", keys=("speech",)
    ),
    "images": Kind(
        "lmlab.data.corpora.pictures.images:ImagesConfig",
        "lmlab.data.corpora.pictures.images:prepare",
        keys=("images",),
    ),
    "captions": Kind(
        "lmlab.data.corpora.pictures.captions:CaptionsConfig",
        "lmlab.data.corpora.pictures.captions:prepare",
        keys=("captions",),
    ),
    "episodes": Kind(
        "lmlab.data.corpora.episodes:EpisodesConfig", "lmlab.data.corpora.episodes:prepare", keys=("episodes",)
    ),
    "notes": Kind("lmlab.data.corpora.notes:NotesConfig", "lmlab.data.corpora.notes:prepare", keys=("notes",)),
    "mixture": Kind("lmlab.data.corpora.mixture:MixtureConfig", "lmlab.data.corpora.mixture:prepare", keys=("parts",)),
}

MIXED = ("text", "captions", "images", "notes", "episodes")
"""The kinds that a mixture may have; on the command line each is named before its files, as in notes=FOLDER."""
EVERYTHING = "builtin:everything"
BUILTIN_PARTS = {
    "text": "builtin",
    "captions": "builtin:scenes",
    "notes": "builtin:tunes",
    "episodes": "builtin:cart-pole",
}
"""The parts of `builtin:everything`."""


def load_config(kind: str) -> type[DataConfig]:
    """Import and return the Config class of a kind of data; a ValueError names the nearest kind."""
    if kind not in DATA and kind in ENDINGS:
        raise ValueError(f"lmlab has no reader for {kind}; it reads {', '.join(DATA)}")
    if kind not in DATA:
        raise ValueError(f"unknown kind of data {kind!r}{suggest(kind, DATA)}")
    config: type[DataConfig] = _load(DATA[kind].config)
    return config


def find_kind(values: Mapping[str, Any]) -> str:
    """Return the kind of data that settings are about: the one they name, or the one that their keys belong to."""
    if values.get("kind") is not None:
        return str(values["kind"])
    given = {kind: [name for name in row.keys if values.get(name) is not None] for kind, row in DATA.items()}
    found = [kind for kind, names in given.items() if names]
    if not found:
        raise ValueError("no text is named: give data.text, or data.source and data.target, or data.pairs")
    if len(found) > 1:
        names = [given[kind][0] for kind in found]
        raise ValueError(f"{' and '.join(names)} do not go together: give either plain text or pairs, not both")
    return "languages" if found == ["text"] and _has_languages(values["text"]) else found[0]


def _has_languages(text: Any) -> bool:
    """Whether texts are given by language: `en=wiki.txt`, or a table."""
    from lmlab.data.config import by_language

    texts = [text] if isinstance(text, str) else text
    return isinstance(text, Mapping) or (isinstance(texts, list) and by_language(texts) is not None)


def make_config(values: Mapping[str, Any], *, where: str = "data", reads: Sequence[str] = ("text",)) -> DataConfig:
    """Return the checked settings of data, of the kind that they name; a ValueError says which of them is wrong.

    `reads` are the kinds that a system learns from: files that are given as text are of the first of them.
    """
    values = _recognize_media(_as_kind(_recognize_mixture(values), reads))
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


def _recognize_mixture(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with texts that are named by kind (`notes=FOLDER`), or `builtin:everything`, as a mixture."""
    given = values.get("text")
    names = [given] if isinstance(given, str) else given
    if values.get("kind") is not None or not isinstance(names, list):
        return values
    parts: dict[str, Any] = dict(BUILTIN_PARTS) if names == [EVERYTHING] else by_kind(names)
    if (
        names != [EVERYTHING]
        and parts
        and (plain := [name for name in names if str(name).partition("=")[0] not in parts])
    ):
        kind, sign, _ = plain[0].partition("=")
        if sign:
            raise ValueError(f"unknown kind of data {kind!r} in {plain[0]}{suggest(kind, MIXED)}")
        raise ValueError(
            f"{plain[0]} has no kind, and other data do ({', '.join(parts)}); name the kind of each, as in "
            f"text={plain[0]} (allowed: {', '.join(MIXED)})"
        )
    if not parts:
        return values
    return {**{name: value for name, value in values.items() if name != "text"}, "kind": "mixture", "parts": parts}


def by_kind(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the files that are named by kind (`notes=FOLDER`), by kind. A file of that very name is a file."""
    parts: dict[str, list[str]] = {}
    for name in names:
        kind, equals, path = str(name).partition("=")
        if equals and kind in MIXED and not os.path.exists(name):
            parts.setdefault(kind, []).append(path)
    return parts


def _as_kind(values: Mapping[str, Any], reads: Sequence[str]) -> Mapping[str, Any]:
    """Return the settings with the files that are given as text as files of what a system reads, if that is no text."""
    if values.get("kind") is not None or values.get("text") is None or "text" in reads:
        return values
    rest = {name: value for name, value in values.items() if name != "text"}
    return {**rest, "kind": reads[0], DATA[reads[0]].keys[0]: values["text"]}


def _recognize_media(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with files that are not text, by their endings, as files of their own kind."""
    if values.get("kind") is not None:
        return values
    for key in ("text", "examples"):
        given = values.get(key)
        paths = [given] if isinstance(given, str) else given
        names = [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []
        if (kind := find_media_kind(names)) is None:
            continue
        if kind not in DATA:
            raise missing_reader(kind, names)
        rest = {name: value for name, value in values.items() if name != key}
        return {**rest, "kind": kind, DATA[kind].keys[0]: given}
    return values


def prepare(
    config: DataConfig,
    *,
    processor: str | Processor | None,
    source: str | Tokenizer | None = None,
    specials: Sequence[str] = (),
    media: Processor | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Read, split and process the data of a recipe or a comparison; what is slow to make is kept in the cache.

    `processor` is a tokenizer (or its spec) for text, and what the kind of data asks for otherwise; None leaves it to
    the kind. `source` is the tokenizer of a translator's sources, if it has its own. `specials` are special tokens that
    the corpus' tokenizer needs. They come after all others, so the encoded text is the same without them. `media` is
    the processor of the pictures or sounds of a run that is resumed or continued; None lets the kind choose one.
    """
    further = {} if media is None else {"media": media}
    corpus: Corpus = _load(DATA[config.kind].prepare)(
        config, processor=processor, source=source, progress=progress, **further
    )
    return corpus.with_specials(specials)


def _load(where: str) -> Any:
    module, _, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)
