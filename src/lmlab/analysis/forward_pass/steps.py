"""The steps of a forward pass: a sentence, an equation and the arrays to look at, each for one position and head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from lmlab.analysis.forward_pass.numbers import Index, Trace
from lmlab.layers.watching import INPUT, watching

MOST_ROWS = 20
"""Tokens whose vectors are shown one below the other."""
Kind = Literal["signed", "share", "plain"]


class Look(NamedTuple):
    """What is looked at: a position of the text, a head, a token as candidate."""

    position: int
    head: int
    candidate: int


class Row(NamedTuple):
    """One row of a grid, and the first part of the index of its numbers."""

    label: str
    prefix: Index


class Grid(NamedTuple):
    """A part of an array as rows of numbers; `columns` names them, or counts them from 0 where it is empty."""

    name: str
    label: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...] = ()
    kind: Kind = "signed"
    indices: tuple[int, ...] = ()
    """The last part of the index, for each column, where it is not the number of the column."""


class Facts(NamedTuple):
    """A table: numbers with an address can be opened."""

    label: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class Address(NamedTuple):
    """A cell of `Facts` that is a number of the trace."""

    at: str


class Step(NamedTuple):
    """One step: `grids` makes what it shows."""

    key: str
    group: str
    """Steps of one group are next to each other on the line from token to prediction."""
    title: str
    says: str
    equation: str
    grids: Callable[[Look], Sequence[Grid | Facts]]
    heads: int = 0
    """How many heads can be chosen in this step."""


class Watched:
    """What the modules of a network give and are given in one pass, without the dimension of the batch."""

    def __init__(self, network: nn.Module, run: Callable[[], Any]) -> None:
        self.network: Any = network
        names = [name for name, module in network.named_modules() if name and not isinstance(module, nn.ModuleList)]
        inputs = [f"{name}{INPUT}" for name in names if _takes_vectors(network.get_submodule(name))]
        with watching(network, *names, *inputs) as seen:
            self.result = run()
        self._seen = seen
        self.position = 0

    def calls(self, path: str) -> int:
        """How often a module was called."""
        return len(self._seen.get(path, ()))

    def out(self, path: str, call: int = 0) -> Tensor:
        """What a module gave."""
        found = self._seen[path][call]
        return found[0] if found.ndim > 2 else found

    def into(self, path: str, call: int = 0) -> Tensor:
        """What a module was given."""
        return self.out(path + INPUT, call)


def _takes_vectors(module: nn.Module) -> bool:
    """Whether the first input of a module is a tensor: positions are asked for by number."""
    return hasattr(module, "forward") and not type(module).__name__.endswith("Positions")


def strip(trace: Trace, name: str, label: str, position: int, *head: int) -> Grid:
    """The vector of one token."""
    return Grid(name, label, (Row(trace.tokens[position], (*head, position)),))


def rows_of(
    trace: Trace, name: str, label: str, look: Look, *head: int, causal: bool = True, key: bool = False
) -> Grid:
    """The vectors of all tokens up to the position, or of all; of many those that are nearest."""
    tokens = trace.keys if key and trace.keys else trace.tokens
    end = look.position + 1 if causal else len(tokens)
    first = max(0, min(end, max(look.position + 1 + MOST_ROWS // 2, MOST_ROWS) if not causal else end) - MOST_ROWS)
    shown = range(first, min(end, first + MOST_ROWS))
    return Grid(name, label, tuple(Row(tokens[t], (*head, t)) for t in shown))
