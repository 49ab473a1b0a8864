"""Several kinds of data in one vocabulary: each kind has its own range of ids, one after another.

The boundary of each kind is one special token of its own. It stands before every item, so the model knows the kind of
what follows. Captions share the ids of the text, so what is learnt about words serves both.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray

from lmlab.tokenizers.processors import make_from_settings
from lmlab.tokenizers.processors.captioned_pixels import CaptionedPixels
from lmlab.tokenizers.processors.pixels import Pixels
from lmlab.tokenizers.processors.sequences import SequenceTokenizer
from lmlab.tokenizers.tokenizer import Tokenizer

Part = Tokenizer | SequenceTokenizer
Ids = NDArray[np.int64]


class JoinedTokenizer(SequenceTokenizer):
    """The tokenizers of several kinds of data, whose ids do not overlap."""

    kind: ClassVar[str] = "joined"
    reads: ClassVar[str] = "mixture"
    unit: ClassVar[str] = "token"
    item: ClassVar[str] = "item"
    forms: ClassVar[str] = "bpe:4096 (of the text), or text=bpe:4096,captions=pixels:16,notes=events,episodes=steps:64"
    commands: ClassVar[tuple[str, ...]] = ("lmlab evaluate {run}",)

    def __init__(self, parts: Mapping[str, Any], text: Mapping[str, Any] | None = None) -> None:
        """`parts` has tokenizers by kind, or their settings; `text` are the settings of the tokenizer that they share.

        Where captions have no text beside them, the tokenizer of the captions is theirs alone.
        """
        shared = None if text is None else load_text(text)
        made = {name: _make_part(part, shared) for name, part in parts.items()}
        if not made:
            raise ValueError("a joined tokenizer needs at least one part")
        self.parts: Mapping[str, Part] = made
        texts = {each.fingerprint for each in map(text_of, self.parts.values()) if each is not None}
        if len(texts) > 1:
            raise ValueError("text and captions must have the same tokenizer, because they share its ids")

    @classmethod
    def from_spec(cls, options: str) -> Self:
        raise ValueError(f"joined tokenizers are made from a mixture of data; allowed specs: {cls.forms}")

    @property
    def spec(self) -> str:
        return ",".join(f"{name}={part.spec}" for name, part in self.parts.items())

    def examples(self) -> tuple[str, ...]:
        """Return commands to try with a run: its scores, and one command for each kind."""
        own = [
            'lmlab generate {run} "…"' if isinstance(part, Tokenizer) else part.commands[0]
            for part in self.parts.values()
        ]
        return tuple(dict.fromkeys([*self.commands, *own]))

    def settings(self) -> Mapping[str, Any]:
        text = next((each for each in map(text_of, self.parts.values()) if each is not None), None)
        return {
            "parts": {name: _part_settings(part) for name, part in self.parts.items()},
            "text": None if text is None else save_text(text),
        }

    @cached_property
    def ids(self) -> Mapping[str, Ids]:
        """The joined id of each id of a part, by part."""
        found, next_id, words = {}, 0, None
        for name, part in self.parts.items():
            own, text = np.arange(part.vocabulary), text_of(part)
            shared = 0 if text is None or words is None else text.vocabulary
            own = own - shared + next_id
            next_id += part.vocabulary - shared
            if text is not None and words is None:
                words = own[: text.vocabulary]
            elif shared and words is not None:
                own[:shared] = words
            found[name] = own
        return found

    @property
    def vocabulary(self) -> int:
        return max(int(own.max()) for own in self.ids.values()) + 1

    @property
    def boundary(self) -> int:
        """The boundary of the first kind; each kind has its own (`boundaries`)."""
        name = next(iter(self.parts))
        return int(self.ids[name][self.parts[name].boundary])

    @property
    def boundaries(self) -> tuple[int, ...]:
        """The joined ids of the boundaries that are no part of an item."""
        own = {name: part for name, part in self.parts.items() if not part.newline_is_boundary}
        return tuple(int(self.ids[name][part.boundary]) for name, part in own.items())

    def show(self, token: int) -> str:
        for name, own in self.ids.items():
            if len(found := np.flatnonzero(own == token)):
                return f"{name} {self.parts[name].show(int(found[0]))}"
        return f"[{token}]"

    def scores(self, nats: float) -> dict[str, float]:
        return {"nats_per_token": nats}


def text_of(part: Part) -> Tokenizer | None:
    """Return the tokenizer of the texts of a part, if it has any."""
    return part if isinstance(part, Tokenizer) else part.text if isinstance(part, CaptionedPixels) else None


def text_totals(nats: NDArray[np.float64], size: int) -> dict[str, tuple[float, float]]:
    """Return bits and bytes of a text, as `SequenceTokenizer.totals` does for other items."""
    return {"bits_per_byte": (float(nats.sum()) / math.log(2), float(size))}


def parse_specs(spec: str, kinds: Sequence[str]) -> dict[str, str]:
    """Return the specs of a mixture by kind: `bpe:512` is that of the text, `notes=grid,text=bpe:512` names them."""
    found: dict[str, str] = {}
    for each in re.split(rf",(?=(?:{'|'.join(kinds)})=)", spec):
        kind, equals, own = each.partition("=")
        if not equals or kind not in kinds:
            kind, own = "text", each
        if kind in found or not own:
            raise ValueError(f"tokenizer {spec!r}: give one for each kind, as in {JoinedTokenizer.forms}")
        found[kind] = own
    return found


def save_text(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the settings of a tokenizer of text as JSON values."""
    return {"content": json.loads(tokenizer.engine.to_str()), **tokenizer.options}


def load_text(settings: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of text that `save_text` saved."""
    content = json.dumps(settings["content"])
    options = {name: value for name, value in settings.items() if name != "content"}
    try:
        return Tokenizer(hf.Tokenizer.from_str(content), **options)
    except Exception as error:  # the library raises no narrower class
        raise ValueError(f"the tokenizer of the text cannot be read: {error}") from None


def _make_part(part: Any, text: Tokenizer | None) -> Part:
    if isinstance(part, (Tokenizer, SequenceTokenizer)):
        return part
    settings = dict(part)
    kind = settings.pop("kind")
    if kind in ("text", CaptionedPixels.kind) and text is None:
        raise ValueError(f"a part of the kind {kind} needs a tokenizer of text")
    if kind == "text":
        assert text is not None
        return text
    if kind == CaptionedPixels.kind:
        assert text is not None
        return CaptionedPixels(text, Pixels(**settings["pixels"]))
    made: Part = make_from_settings({"kind": kind, **settings})
    return made


def _part_settings(part: Part) -> dict[str, Any]:
    if isinstance(part, Tokenizer):
        return {"kind": "text"}
    if isinstance(part, CaptionedPixels):
        return {"kind": part.kind, "pixels": dict(part.pixels.settings())}
    return {"kind": part.kind, **part.settings()}
