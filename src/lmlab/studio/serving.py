"""The runs of the folder behind the API of `lmlab serve`: the engine of a run starts at its first request.

The views and the engine share one model in memory: its forward pass keeps no state, so they may run at the same time.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Request

from lmlab.serve.disconnect import wait_for_disconnect
from lmlab.serve.errors import APIError, checking
from lmlab.serve.served import Runs, Served, serve_run
from lmlab.studio.entries import WEIGHTS
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import Workers

if TYPE_CHECKING:
    from lmlab.language_model import LanguageModel

LEFT = "this model has just left the memory, for others or for newer weights; ask again"


@dataclass(frozen=True, kw_only=True)
class StoredRuns(Runs):
    """All runs of a run store that have weights, by their path; `served` are those whose engine has started."""

    run_store: RunStore
    workers: Workers = field(default_factory=Workers)
    served: dict[str, Served] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.run_store.let_go = self.end

    def find(self, name: str | None) -> Served:
        """The run of that name, or the first if none is given; loads its model and starts its engine if necessary."""
        known = self._known()
        if name is None and known:
            name = next(iter(known))
        if name is None or name not in known:
            problem = "there is no run with weights yet" if name is None else f"the model {name[:80]!r} does not exist"
            raise APIError(
                f"{problem}; there is: {', '.join(known) or 'none'}", status=404, param="model", code="model_not_found"
            )
        with checking("model"):
            model = self.run_store.open(name)
        with self.lock:
            held = self.served.get(name)
            if held is None or held.lm is not model or held.engine.failed is not None:
                if held is not None:
                    held.engine.stop(LEFT)
                held = serve_run(name, model, limits=self.limits)
                held.get_ready()
                self.served[name] = held
            return held

    async def open(self, name: str | None, request: Request) -> Served:
        """The same without blocking the event loop; loading waits for its turn among all heavy requests."""
        ready = await asyncio.to_thread(self._find_ready, name)
        if ready is not None:
            return ready
        await request.body()  # so that what is received from now on can only be that the client is gone
        return await self.workers.run(lambda: asyncio.to_thread(self.find, name), gone=wait_for_disconnect(request))

    def _find_ready(self, name: str | None) -> Served | None:
        """The run of that name, if its model is loaded and its engine has started."""
        known = self._known()
        name = next(iter(known), None) if name is None else name
        held = self.served.get(name or "")
        if held is None or held.name not in known or held.engine.failed is not None:
            return None
        return held if held.lm is self.run_store.held(held.name, known[held.name]) else None

    def end(self, name: str, model: LanguageModel) -> None:
        """Accept nothing more for a model that has left the memory; running sequences are finished."""
        with self.lock:
            held = self.served.get(name)
            if held is not None and held.lm is model:
                del self.served[name]
                held.engine.stop(LEFT)

    def cards(self) -> list[dict[str, Any]]:
        cards = (self._card(name, path) for name, path in self._known().items())
        return [card for card in cards if card["kind"] is not None]  # the others are damaged

    def card(self, name: str) -> dict[str, Any]:
        """The entry of a run, without loading it."""
        known = self._known()
        if name not in known:
            return self.find(name).card()  # an error that says which there are
        return self._card(name, known[name])

    def _known(self) -> dict[str, Path]:
        return {name: path for name, path in self.run_store.paths().items() if self.run_store.has_weights(path)}

    def _card(self, name: str, path: Path) -> dict[str, Any]:
        summary = self.run_store.describe(name, path)
        return {
            "id": name,
            "object": "model",
            "created": int((path / WEIGHTS).stat().st_mtime),
            "owned_by": "lmlab",
            "kind": summary["kind"],
            "abilities": [*summary["does"], *["task"] * (summary["task"] is not None)],
            "max_model_len": summary["window"],
        }
