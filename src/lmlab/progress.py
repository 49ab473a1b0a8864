"""How work that takes a while says how far it is."""

from __future__ import annotations

from collections.abc import Callable

ReportProgress = Callable[[int, int], None]
"""Is told how much is done, and of how much: tokens read or scored, texts translated."""
