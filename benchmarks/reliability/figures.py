"""A figure of reliability: what was tried, how often, and what went wrong."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Figure(NamedTuple):
    """One line of the table in benchmarks/RELIABILITY.md."""

    name: str
    tried: int
    result: str
    """What was counted, in words."""
    wrong: tuple[str, ...] = ()
    """The cases that broke a promise."""


class Scale(NamedTuple):
    """How much is tried, and where its files go."""

    folder: Path
    """For scratch files, and what a long figure needs to be continued."""
    quick: bool = False
    seed: int = 0

    def count(self, quick: int, long: int) -> int:
        """A number of cases: `quick` in the tests, `long` for the table."""
        return quick if self.quick else long

    def random(self, *salt: object) -> random.Random:
        """Random numbers that depend on the seed and on nothing else."""
        return random.Random(f"{self.seed} {salt}")

    def fresh(self, name: str) -> Path:
        """An empty folder."""
        import shutil

        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path


def shorten(wrong: Iterable[str]) -> tuple[str, ...]:
    """Messages of one line each."""
    return tuple(" ".join(each.split())[:400] for each in wrong)
