"""Running the application: one process, a thread for the web and one for each engine."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Any

import uvicorn

from lmlab.serve.app import abort_runs, close_runs
from lmlab.serve.guard import Guard
from lmlab.serve.http_protocol import QuietServer, make_config
from lmlab.serve.served import Runs

DRAIN = 8.0
"""Seconds that running sequences have to finish when the server stops."""
END_WITHIN = 9.0
"""Seconds after which all streams are closed, unless the drain is longer: the rest of it is for their last events."""
SWITCH = 0.0005
"""Seconds after which the engine's thread gives way to the web's, ten times sooner than is usual: small models keep the
interpreter busy, and every message would wait for its turn."""


class Server(QuietServer):
    """A server that lets running sequences finish, for a while, when it stops."""

    def __init__(self, config: uvicorn.Config, runs: Runs, *, drain: float) -> None:
        super().__init__(config)
        self.runs, self.drain = runs, drain
        self.started_at: Callable[[str], None] = lambda address: None
        """Called with the address as soon as requests are accepted."""

    async def startup(self, sockets: Any = None) -> None:
        sys.setswitchinterval(SWITCH)
        for served in self.runs.served.values():
            await asyncio.to_thread(served.get_ready)
        _freeze_garbage()
        await super().startup(sockets)
        if self.started and self.servers and self.servers[0].sockets:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self.started_at(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    async def shutdown(self, sockets: Any = None) -> None:
        for server in self.servers:
            server.close()
        closing = asyncio.ensure_future(asyncio.to_thread(close_runs, self.runs, within=self.drain))
        while not closing.done():
            await asyncio.wait((closing,), timeout=0.1)
            if self.hurried:  # a second Ctrl-C: nothing is waited for
                abort_runs(self.runs)
        await super().shutdown(sockets)
        gc.unfreeze()


def share_threads(runs: int) -> int:
    """The number of threads for the engine of each run; the calling thread uses one from now on.

    OpenMP keeps a team of threads for each thread that ever computed with several; as soon as those are more than the
    cores, each waits asleep for the others, and a step takes twice as long.
    """
    import torch

    threads = max(1, torch.get_num_threads() // runs)
    torch.set_num_threads(1)
    return threads


def _freeze_garbage() -> None:
    """Exclude all present objects from garbage collection: PyTorch has a million of them, and scanning them would block
    the server for 150 ms."""
    gc.collect()
    gc.freeze()


def make_server(app: Guard, runs: Runs, *, host: str, port: int, drain: float = DRAIN) -> Server:
    """A server that is ready to run; running sequences have `drain` seconds to finish when it stops."""
    last_words = max(1, int(END_WITHIN - drain))
    config = make_config(app, host=host, port=port, timeout_graceful_shutdown=last_words)
    return Server(config, runs, drain=drain)
