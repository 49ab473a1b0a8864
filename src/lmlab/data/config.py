"""What the settings of all kinds of data have in common."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, SerializeAsAny

from lmlab.config import Config
from lmlab.data import make_config
from lmlab.data.readers.media import BUILTINS
from lmlab.data.readers.text import BUILTIN, STANDARD_INPUT


def _one_or_many(value: Any) -> Any:
    """A single path need not be a list; $NAME and ${NAME} are expanded from the environment."""
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, list):
        return paths
    filled = [os.path.expandvars(path) if isinstance(path, str) else path for path in paths]
    for path in filled:
        if isinstance(path, str) and (unset := re.search(r"\$\{(\w+)\}", path)):
            raise ValueError(f"the environment variable {unset[1]} is not set; set it to the folder that is meant")
    return filled


Paths = Annotated[list[str], BeforeValidator(_one_or_many)]
"""Files, folders, globs, `.gz`, `-` for standard input, or `builtin`."""


class DataConfig(Config):
    """Which texts, and what of them is held out; each kind of data adds its own settings."""

    PATHS: ClassVar[tuple[str, ...]] = ()
    """The settings that name texts; those that are learnt from come first."""
    LEARNT: ClassVar[int] = 1
    """How many of these are learnt from."""
    ALIASES: ClassVar[tuple[str, ...]] = ()
    """Other settings that may be written in their place."""
    what: ClassVar[str] = ""
    """What this learns from, in words."""
    parallel: ClassVar[bool] = False
    """Whether these are pairs of a source and a target text."""

    kind: str
    split: list[float] = Field([0.9, 0.05, 0.05], description="fractions for training, validation and test")
    given: list[str] | None = Field(
        None, description="the texts as they were named, where a run has made them absolute"
    )

    @classmethod
    def allowed(cls) -> list[str]:
        """All settings that may be written."""
        return [*cls.model_fields, *cls.ALIASES]

    def usual_tokenizer(self, of_system: str | None) -> str | None:
        """Return the tokenizer for these data, unless the user names one: that of the system."""
        return of_system

    @property
    def named(self) -> list[str]:
        """The texts that are learnt from, as they were given."""
        if self.given is not None:
            return self.given
        return [path for name in self.PATHS[: self.LEARNT] for path in _each(getattr(self, name))]

    def absolute(self) -> Self:
        """The same with absolute paths, so that they lead to the texts from any working directory."""
        paths = {name: _map(getattr(self, name), _absolute) for name in self.PATHS}
        return self.model_copy(update={**paths, "given": self.named})

    def moved(self, texts: Mapping[str, Any]) -> DataConfig:
        """Return the settings of the same data at other paths; what is given as text are files of this kind."""
        if "text" in texts and "text" not in self.PATHS and self.LEARNT == 1:
            texts = {self.PATHS[0]: texts["text"], **{name: value for name, value in texts.items() if name != "text"}}
        return make_config({**dict(self), "given": None, **texts})

    def paths(self) -> list[str]:
        """All texts that are read."""
        return [path for name in self.PATHS for path in _each(getattr(self, name))]

    def on_disk(self) -> list[str]:
        """All texts that are read from files."""
        return [path for path in self.paths() if not _has_no_file(path)]

    def missing(self) -> list[str]:
        """The texts that are not where they were."""
        return [path for path in self.on_disk() if not _is_there(path)]

    def irregular(self) -> list[str]:
        """The texts that are pipes or devices, which can be read once, or never end."""
        return [path for path in self.on_disk() if not all(map(_is_regular, expand(path)))]


def _read(value: Any) -> Any:
    return make_config(value) if isinstance(value, Mapping) else value


AnyData = Annotated[SerializeAsAny[DataConfig], BeforeValidator(_read)]
"""The settings of any kind of data, as a field of other settings."""


def _each(value: Any) -> Iterator[str]:
    """All paths in the value of a setting: a list, a table of lists, or a group of such settings."""
    if isinstance(value, list):
        yield from value
    elif isinstance(value, Config):
        yield from _each(dict(value))
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _each(inner)


def _map(value: Any, change: Callable[[str], str]) -> Any:
    """The value of a setting with all its paths changed."""
    if isinstance(value, list):
        return [change(path) for path in value]
    if isinstance(value, Config):
        return value.model_copy(update=_map(dict(value), change))
    if isinstance(value, dict):
        return {name: _map(inner, change) for name, inner in value.items()}
    return value


def _has_no_file(path: str) -> bool:
    """Whether data come from no file: built-in data, or standard input."""
    return path in (BUILTIN, STANDARD_INPUT) or path in BUILTINS or path.startswith(f"{BUILTIN}:")


def _absolute(path: str) -> str:
    return path if _has_no_file(path) else os.path.abspath(os.path.expanduser(path))


def expand(path: str) -> list[str]:
    """The files and folders that a path or a glob names."""
    full = os.path.expanduser(path)
    return glob.glob(full, recursive=True) if glob.has_magic(full) and not os.path.exists(full) else [full]


def _is_regular(path: str) -> bool:
    return os.path.isfile(path) or os.path.isdir(path) or not os.path.exists(path)


def _is_there(path: str) -> bool:
    full = os.path.expanduser(path)
    return os.path.exists(full) or (glob.has_magic(full) and bool(glob.glob(full, recursive=True)))


LABEL = re.compile(r"([a-z]{2,3}(?:-[A-Za-z0-9]{2,8})?)=(.+)", re.DOTALL)


def by_language(texts: Sequence[str] | None) -> dict[str, list[str]] | None:
    """Texts named `en=wiki.txt` by language; None where no text has a label. A file of that very name is a file."""
    found: dict[str, list[str]] = {}
    plain = []
    for text in texts or []:
        label = LABEL.fullmatch(text) if isinstance(text, str) else None
        if label is None or Path(text).exists():
            plain.append(text)
        else:
            found.setdefault(label[1], []).append(label[2])
    if found and plain:
        raise ValueError(
            f"{plain[0]} has no language, but {', '.join(found)} are named; label all texts, as in en={plain[0]}"
        )
    return found or None
