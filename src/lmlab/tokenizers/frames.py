"""The special tokens around a text: the boundary, [CLS] … [SEP], a source and a target.

A frame is a template for each input of a model. In "cls:0 a:0 sep:0 b:1 sep:1" the letters are the parts of an item,
the words are special tokens, and the numbers are segments. A special token belongs to the part before it, those before
the first part belong to the row; [brackets] say otherwise, as in "boundary a [delimiter b] extract". A part that is
missing is left out with the tokens that belong to it: of one text BERT reads "cls a sep", and a target that is yet to
be written is "start". Each position of a row records its part and the number of its piece, from which all else follows:
vectors of words, tags at first pieces, spans of the text. Pieces are ids, or vectors (spellings).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.files import write_text
from lmlab.parsing import load_json
from lmlab.tokenizers.tokenizer import SPECIAL_TOKENS, Tokenizer

NEXT_TOKEN: Mapping[str, str] = {"tokens": "boundary a"}
"""The frame of what reads from left to right, and of whatever says nothing else."""
NO_BOUNDARY: Mapping[str, str] = {"tokens": "a"}
"""The frame of an imported model whose tokenizer puts nothing before a text; its boundary begins an empty one."""
FILE = "frame.json"
"""What a run directory keeps its frame in."""

Pieces = Sequence[Any] | NDArray[Any]
"""The ids of a text, or vectors."""
Item = Mapping[str, Pieces]
"""The parts of an item, by their letters."""


class TemplateToken(NamedTuple):
    """One word of a template."""

    name: str  # the letter of a part, or the name of a special token
    segment: int | None
    owner: str  # the part with which it comes and goes; "" always comes

    @property
    def is_part(self) -> bool:
        return len(self.name) == 1


@lru_cache
def parse_template(template: str) -> tuple[TemplateToken, ...]:
    """Return the slots of a template; a ValueError says what is wrong with it."""
    if not re.fullmatch(r"[^\[\]]*(\[[^\[\]]*\][^\[\]]*)*", template):
        raise ValueError(f"the template {template!r} has a bracket that is not closed, or one inside another")
    slots: list[TemplateToken] = []
    owner = ""  # the last part outside of brackets
    for chunk in re.findall(r"\[[^\]]*\]|[^\[\]]+", template):
        group = chunk.startswith("[")
        words = [_parse_word(word, template) for word in chunk.strip("[]").split()]
        parts = [name for name, _ in words if len(name) == 1]
        if group and len(parts) != 1:
            raise ValueError(f"the template {template!r} has {len(parts)} parts in {chunk}: brackets hold one part")
        for name, segment in words:
            if not group and len(name) == 1:
                owner = name
            slots.append(TemplateToken(name, segment, parts[0] if group else owner))
    letters = [slot.name for slot in slots if slot.is_part]
    if not letters or len(set(letters)) < len(letters):
        raise ValueError(f"the template {template!r} needs parts, single letters such as a and b, each of them once")
    return tuple(slots)


def _parse_word(word: str, template: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"([a-z]+)(?::(\d+))?", word)
    if found is None:
        raise ValueError(
            f"{word!r} in the template {template!r} is not understood: write the letter of a part or the name of a "
            f"special token, such as a, cls, sep or boundary, with the number of its segment if there are several: a:0"
        )
    name, segment = found.groups()
    return name, None if segment is None else int(segment)


class Framed(NamedTuple):
    """One input of one row: the piece at each position, and where it comes from."""

    pieces: list[Any]
    parts: list[str]  # of the item; "" at a special token
    numbers: list[int]  # of the piece in its part, as the item has it; -1 at a special token
    segments: list[int] | None  # where the template has them

    def positions(self, part: str) -> dict[int, int]:
        """Return the position of each piece of a part, by its number; pieces that were cut off are missing."""
        return {
            number: position
            for position, (name, number) in enumerate(zip(self.parts, self.numbers, strict=True))
            if name == part
        }


class Row(NamedTuple):
    """One row of an item, as a model reads it."""

    item: int
    order: str  # of the parts of the item
    inputs: dict[str, Framed]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Templates, with the ids of their special tokens, and what to do with items that are too long."""

    templates: Mapping[str, str]
    specials: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For each input its special tokens as pieces: ids, or vectors; a source may have a vocabulary of its own."""
    window: int | None = None
    """The most positions of an input; what does not fit is cut off the longest parts, or strided."""
    anchor: Literal["first", "last"] = "first"
    """Which end of a part is kept when it is cut."""
    stride: int | None = None
    """The last part is read in windows, which begin this many pieces apart: several rows."""
    orders: tuple[str, ...] = ()
    """The orders in which the parts of an item are read, a row for each: ("ab", "ba"); () is as they are."""
    backwards: tuple[str, ...] = ()
    """Inputs whose parts are read from the last piece to the first (Sutskever et al. 2014)."""

    def __post_init__(self) -> None:
        letters = self._letters()
        if self.anchor not in ("first", "last"):
            raise ValueError(f"anchor = {self.anchor!r}: the end of a part that is kept is first or last")
        if self.stride is not None and (self.stride < 1 or self.window is None):
            raise ValueError(f"stride = {self.stride}: give 1 or more, and a window")
        for order in self.orders:
            if len(set(order)) != len(order) or not set(order) <= letters:
                raise ValueError(f"order {order!r}: give each of the parts {', '.join(sorted(letters))} once")
        if unknown := set(self.backwards) - set(self.templates):
            raise ValueError(f"backwards = {sorted(unknown)}: the inputs are {', '.join(self.templates)}")

    @property
    def reads(self) -> str:
        """The input by which a text enters: the source of an encoder-decoder, the tokens of the others."""
        return next(iter(self.templates))

    def has(self, special: str, name: str | None = None) -> bool:
        """Return whether a special token is in an input, by default in the main one."""
        return any(slot.name == special for slot in self._slots()[name or self.reads])

    def overhead(self, name: str, parts: str) -> int:
        """Return the number of special tokens of an input around these parts."""
        return sum(not slot.is_part and slot.owner in ("", *parts) for slot in self._slots()[name])

    def layout(self, name: str, parts: str) -> list[tuple[TemplateToken, Any]]:
        """The slots of an input around these parts, each with its special token as a piece; None at a part."""
        slots = [slot for slot in self._slots()[name] if slot.owner in ("", *parts)]
        return [(slot, None if slot.is_part else self._special(name, slot.name)) for slot in slots]

    def position_of(self, special: str, name: str, lengths: Mapping[str, int]) -> int:
        """Return the first position of a special token in an input whose parts have these lengths."""
        position = 0
        for slot, _ in self.layout(name, "".join(lengths)):
            if slot.name == special:
                return position
            position += lengths[slot.name] if slot.is_part else 1
        raise ValueError(f"there is no {special} in {self.templates[name]!r}")

    def rows(self, items: Sequence[Item]) -> list[Row]:
        """The rows of items, each with the number of its item: one for each order and each window of its last part."""
        return [row for number, item in enumerate(items) for row in self._rows_of(number, item)]

    def row(self, **parts: Pieces) -> dict[str, list[Any]]:
        """The pieces of one item, cut by nothing."""
        return {name: self._fill(name, slots, parts, {}).pieces for name, slots in self._slots().items()}

    def save(self, path: str | Path) -> None:
        """Write `frame.json`, to a file or into a folder."""
        path = Path(path)
        target = path / FILE if path.is_dir() else path
        write_text(target, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Frame:
        """The frame of a `frame.json`, or of a folder that holds one."""
        path = Path(path)
        source = path / FILE if path.is_dir() else path
        try:
            return cls.from_content(load_json(source.read_text(encoding="utf-8")))
        except (TypeError, AttributeError, ValueError, OSError) as error:
            raise ValueError(f"{source} is damaged: {error}") from None

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> Frame:
        """The frame with the content of a `frame.json`."""
        return cls(**{**content, **{key: tuple(content.get(key, ())) for key in ("orders", "backwards")}})

    def _slots(self) -> dict[str, tuple[TemplateToken, ...]]:
        return {name: parse_template(template) for name, template in self.templates.items()}

    def _letters(self) -> set[str]:
        return {slot.name for slots in self._slots().values() for slot in slots if slot.is_part}

    def _rows_of(self, number: int, item: Item) -> Iterator[Row]:
        own = "".join(sorted(item))
        if unknown := set(own) - self._letters():
            raise ValueError(f"item {number + 1} has the parts {sorted(unknown)}, and no template has them")
        for order in [order for order in self.orders if set(order) == set(own)] or [own]:
            parts = {letter: item[source] for letter, source in zip(own, order, strict=True)}
            names = dict(zip(own, order, strict=True))
            kept = {name: self._spans(name, slots, parts) for name, slots in self._slots().items()}
            for window in range(max(map(len, kept.values()))):
                inputs = {
                    name: self._fill(name, slots, parts, kept[name][min(window, len(kept[name]) - 1)], names)
                    for name, slots in self._slots().items()
                }
                yield Row(number, order, inputs)

    def _spans(self, name: str, slots: tuple[TemplateToken, ...], parts: Item) -> list[dict[str, tuple[int, int]]]:
        """For each row the pieces of each part, from and to, that fit into the window."""
        here = [slot.name for slot in slots if slot.is_part and slot.name in parts]
        whole = {part: (0, len(parts[part])) for part in here}
        if self.window is None or not here:
            return [whole]
        room = self.window - self.overhead(name, "".join(here))
        if sum(len(parts[part]) for part in here) <= room:
            return [whole]
        if room < len(here):
            raise ValueError(
                f"a window of {self.window} positions has no room for {len(here)} part(s) and the special tokens of "
                f"{self.templates[name]!r}"
            )
        if self.stride is not None:
            return self._windows(parts, here, room)
        sizes = _fit_parts({part: len(parts[part]) for part in here}, room)
        first = self.anchor == "first"
        return [{part: (0, size) if first else (end - size, end) for part, size, end in _ends(sizes, parts)}]

    def _windows(self, parts: Item, here: list[str], room: int) -> list[dict[str, tuple[int, int]]]:
        assert self.stride is not None
        *others, last = here
        content = room - sum(len(parts[part]) for part in others)
        if content < 1:
            raise ValueError(
                f"the parts {', '.join(others)} fill the window of {self.window} positions, and no piece of {last} "
                f"fits: shorten them, or use a model with a larger window"
            )
        fixed = {part: (0, len(parts[part])) for part in others}
        length, step = len(parts[last]), min(self.stride, content)
        starts = range(0, max(1, length - content + step), step)
        return [{**fixed, last: (start, min(start + content, length))} for start in starts]

    def _fill(
        self,
        name: str,
        slots: tuple[TemplateToken, ...],
        parts: Item,
        spans: Mapping[str, tuple[int, int]],
        names: Mapping[str, str] | None = None,
    ) -> Framed:
        """The positions of an input; `names` are those that the parts have in the item."""
        row = Framed([], [], [], [] if any(slot.segment is not None for slot in slots) else None)
        for slot in slots:
            if slot.owner and slot.owner not in parts:
                continue
            if slot.is_part:
                first, end = spans.get(slot.name, (0, len(parts[slot.name])))
                step = -1 if name in self.backwards else 1
                numbers = range(first, end)[::step]
                row.pieces.extend(_as_list(parts[slot.name][first:end])[::step])
                row.parts.extend([(names or {}).get(slot.name, slot.name)] * len(numbers))
                row.numbers.extend(numbers)
            else:
                row.pieces.append(self._special(name, slot.name))
                row.parts.append("")
                row.numbers.append(-1)
            if row.segments is not None:
                row.segments.extend([slot.segment or 0] * (len(row.pieces) - len(row.segments)))
        return row

    def _special(self, name: str, special: str) -> Any:
        try:
            return self.specials[name][special]
        except KeyError:
            raise ValueError(
                f"the tokenizer has no token for {special}, which is part of the model's input "
                f"({self.templates[name]}); a model that was trained with it has one"
            ) from None


def make_frame(
    templates: Mapping[str, str],
    tokenizer: Tokenizer,
    source_tokenizer: Tokenizer | None = None,
    *,
    start: int | None = None,
    backwards: bool = False,
) -> Frame:
    """Templates with the tokens of the tokenizers that they go with.

    `start` is the token with which targets begin, if it is not that of the tokenizer; `backwards` is whether a text, or
    the source of one, is read from its last token to the first. A missing special token is an error only when it is
    needed.
    """
    specials: dict[str, dict[str, int]] = {}
    for name, template in templates.items():
        own = source_tokenizer or tokenizer if name == "source" else tokenizer
        known = {"boundary": own.boundary, "start": own.start if start is None else start}
        known |= {name: own.special(name) for name in SPECIAL_TOKENS if own.has_special(name)}
        specials[name] = {special: known[special] for special in _names(template) if special in known}
    reversed_inputs = tuple(templates)[:1] if backwards else ()
    return Frame(templates=dict(templates), specials=specials, backwards=reversed_inputs)


def _names(template: str) -> list[str]:
    return sorted({slot.name for slot in parse_template(template) if not slot.is_part})


def _ends(sizes: Mapping[str, int], parts: Item) -> Iterator[tuple[str, int, int]]:
    return ((part, size, len(parts[part])) for part, size in sizes.items())


def _fit_parts(lengths: Mapping[str, int], room: int) -> dict[str, int]:
    """How many pieces of each part are kept: what is too much is taken off the longest, piece by piece."""
    left, kept = room, {}
    for position, part in enumerate(sorted(lengths, key=lambda part: (lengths[part], part))):
        kept[part] = min(lengths[part], left // (len(lengths) - position))
        left -= kept[part]
    return {part: kept[part] for part in lengths}


def _as_list(pieces: Pieces) -> list[Any]:
    """Ids as Python numbers, whatever holds them; vectors as they are."""
    return pieces.tolist() if isinstance(pieces, np.ndarray) and pieces.ndim == 1 else list(pieces)


def pad_rows(rows: Sequence[Any], *, pad: float = 0, device: torch.device | str | None = None) -> tuple[Tensor, Tensor]:
    """Rows of ids, or of vectors, as one tensor [B, T, …] filled up with `pad` at their ends; and their lengths [B]."""
    tensors = [row if isinstance(row, Tensor) else torch.from_numpy(_as_numbers(row)) for row in rows]
    padded = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=pad)
    return padded.to(device), torch.tensor([len(each) for each in tensors], device=device)


def _as_numbers(row: Pieces) -> NDArray[Any]:
    numbers = np.asarray(row)
    return numbers if numbers.dtype.kind == "f" and len(row) else numbers.astype(np.int64)


def collate(rows: Sequence[Row], *, pad: float = 0, device: torch.device | str | None = None) -> dict[str, Tensor]:
    """Rows as the inputs of a model: `tokens`, `segments` and `lengths`; with a source, `target_lengths` as well.

    `lengths` are those of the input by which a text enters: of the source where there is one.
    """
    found: dict[str, Tensor] = {}
    for number, name in enumerate(rows[0].inputs):
        framed = [row.inputs[name] for row in rows]
        found[name], lengths = pad_rows([each.pieces for each in framed], pad=pad, device=device)
        found["lengths" if number == 0 else "target_lengths"] = lengths
        segments = [each.segments for each in framed if each.segments is not None]
        if segments:
            found["segments"], _ = pad_rows(segments, device=device)
    return found
