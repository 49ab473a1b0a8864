"""The processors of data that are not text, by name; a run keeps the settings of its own as `processor.json`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmlab.config import Config, build
from lmlab.messages import suggest
from lmlab.parsing import load_json
from lmlab.tokenizers.processors.sequences import SequenceTokenizer

FILE = "processor.json"
"""The file of a run with the kind and the settings of its processor."""
LARGEST = 64 << 20
"""Bytes of that file, at most."""
PROCESSORS = {
    "events": "lmlab.tokenizers.processors.notes:Events",
    "grid": "lmlab.tokenizers.processors.notes:Grid",
    "pixels": "lmlab.tokenizers.processors.pixels:Pixels",
    "steps": "lmlab.tokenizers.processors.steps:EpisodeTokens",
    "joined": "lmlab.tokenizers.processors.joined:JoinedTokenizer",
    "sounds": "lmlab.tokenizers.processors.sounds:SoundProcessor",
    "pictures": "lmlab.tokenizers.processors.pictures:PictureProcessor",
    "episodes": "lmlab.tokenizers.processors.episode_scaling:EpisodeProcessor",
}
"""Where each kind of processor is, as `module:Class`; the class is created with the settings in `processor.json`."""


def is_processor(spec: object) -> bool:
    """Whether a tokenizer's spec names a processor of data that are not text: `events`, `pixels:16`."""
    return isinstance(spec, str) and spec.partition(":")[0] in PROCESSORS


def has_fixed_length(spec: object) -> bool:
    """Whether a tokenizer's spec names one whose items all have the same length: pixels."""
    return is_processor(spec) and str(spec).partition(":")[0] == "pixels"


def make_processor(spec: str) -> SequenceTokenizer:
    """Return the tokenizer of a spec such as `events` or `grid:4`; a ValueError says what is allowed."""
    kind, _, options = spec.partition(":")
    cls = _load_class(kind)
    if not issubclass(cls, SequenceTokenizer):
        raise ValueError(f"{kind} gives no tokens; tokens of data that are not text: {', '.join(PROCESSORS)}")
    made: SequenceTokenizer = cls.from_spec(options)
    return made


def load_processor(run: Path) -> Any:
    """Return the processor of a run directory; None if it has none. A ValueError if its file is damaged."""
    path = run / FILE
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("the file is too large")
        return make_from_settings(load_json(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reasons = "; ".join(str(error).splitlines())
        raise ValueError(f"{path} is damaged: {reasons}; copy the run again, or train it again") from None


def make_from_settings(settings: Mapping[str, Any]) -> Any:
    """Return the processor of the settings in a `processor.json`."""
    kind = str(settings["kind"])
    cls, own = _load_class(kind), {name: value for name, value in settings.items() if name != "kind"}
    return build(cls, own, where=kind) if issubclass(cls, Config) else cls(**own)


def _load_class(kind: str) -> Any:
    if kind not in PROCESSORS:
        raise ValueError(f"unknown processor {kind!r}{suggest(kind, PROCESSORS)}")
    module, _, name = PROCESSORS[kind].partition(":")
    return getattr(importlib.import_module(module), name)
