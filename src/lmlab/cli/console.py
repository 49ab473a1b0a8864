"""The console of all commands: whatever is printed, names of runs and labels included, cannot control the terminal."""

from __future__ import annotations

from collections.abc import Iterable

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from lmlab.messages import printable


class Console(rich.console.Console):
    """A rich console that escapes control characters in text; the colours and moves of rich itself are kept."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)
