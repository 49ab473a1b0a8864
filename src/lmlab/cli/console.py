"""Output on the terminal: a console that no printed text can control, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

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


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, updated by calling the returned function with (done, total).

    Nothing is shown where standard error is not a terminal, and the bar disappears at the end.
    """
    from rich.progress import Progress

    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
