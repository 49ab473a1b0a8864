"""A cache of the last passes over texts, so that another look at the same pass computes nothing again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import ref

if TYPE_CHECKING:
    from lmlab.language_model import LanguageModel
    from lmlab.studio.run_store import RunStore

KEPT = 4
"""Passes that are cached: with a masked token and without, for the last two texts."""
ROOM = 2**28
"""Bytes of what is cached; the last pass is kept in any case."""
T = TypeVar("T")


class PassCache(Generic[T]):
    """What the last passes gave, by the run and what was asked of it; `size` are the bytes of one."""

    def __init__(self, run_store: RunStore, size: Callable[[T], int]) -> None:
        self.run_store, self.size, self._lock = run_store, size, Lock()
        self._kept: OrderedDict[str, tuple[ref[LanguageModel], T]] = OrderedDict()

    def read(self, run: str, key: str, make: Callable[[LanguageModel], T]) -> T:
        """What `make` gives for the model of a run, from the cache where the same key was asked for before."""
        with self.run_store.using(run) as model:
            key = f"{run}\n{key}"
            with self._lock:
                if key in self._kept and self._kept[key][0]() is model:  # not one that was trained further since
                    self._kept.move_to_end(key)
                    return self._kept[key][1]
            found = make(model)
            with self._lock:
                self._kept[key] = ref(model), found
                self._kept.move_to_end(key)
                while len(self._kept) > 1 and (len(self._kept) > KEPT or self._bytes() > ROOM):
                    self._kept.popitem(last=False)
            return found

    def _bytes(self) -> int:
        return sum(self.size(found) for _, found in self._kept.values())
