"""Texts that are longer than a model can read, or than a user wants to wait for."""

from __future__ import annotations


class TooLongError(ValueError):
    """Which text is too long, and by how much."""

    def __init__(self, what: str, number: int, *, tokens: int, most: int, remedy: str) -> None:
        self.number, self.tokens, self.most = number, tokens, most
        super().__init__(f"{what} {number} has {tokens:,} tokens, and the model reads at most {most:,}: {remedy}")
