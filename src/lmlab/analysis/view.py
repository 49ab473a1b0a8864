"""What every analysis gives: a plain record that tells itself in words, numbers and pictures.

The command line prints its table or writes it as JSON, CSV, HTML or PNG, a notebook shows it (`_repr_html_`), the
studio draws it: all from the same record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from lmlab.pages.figures import Figure
from lmlab.pages.views import Table, to_fragment


class Viewed:
    """A record that can be looked at; a subclass is a frozen dataclass and says what there is to see."""

    title: str

    def lead(self) -> str:
        """The finding, in a sentence."""
        raise NotImplementedError

    def table(self) -> Table:
        """The numbers."""
        raise NotImplementedError

    def figures(self) -> Sequence[Figure]:
        """The pictures."""
        return []

    def notes(self) -> Sequence[str]:
        """What one has to know to read it rightly."""
        return []

    def as_json(self) -> dict[str, Any]:
        """All of it, as plain numbers, strings and lists; None where a number is not finite."""
        found: dict[str, Any] = plain(self)
        return found

    def _repr_html_(self) -> str:
        return to_fragment(self)


def plain(value: Any) -> Any:
    """Records, arrays and tuples as what JSON knows."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
