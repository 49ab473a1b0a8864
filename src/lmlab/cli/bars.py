"""A progress bar on standard error for work that is counted, gone when the work is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to be told how much is done, and of how much; it draws only where there is a screen."""
    from rich.progress import Progress

    from lmlab.cli.console import Console

    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
