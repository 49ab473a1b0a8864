"""Learning curves as they grow: the new lines of `metrics.jsonl` of several runs, as server-sent events.

Events are `points` ({run, points, again}: `again` means that what was sent before is void), and `runs` when the list of
runs, or what one of them is doing, has changed.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from lmlab.analysis.view import plain
from lmlab.studio.responses import answer
from lmlab.studio.run_files import is_number, open_inside, parse_lines
from lmlab.studio.run_store import RunStore
from lmlab.units import read_speed, training_seconds

EVERY = 1.0
"""Seconds between two looks."""
MOST = 1500
"""Points of one curve; of a longer one every other, every third … is sent."""
MOST_READ = 2**26
"""Bytes of a file of metrics that one look reads."""
Names = Annotated[list[str], Query(max_length=24)]


class Tail:
    """A file of metrics that is read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path, self.place, self.inode = path / "metrics.jsonl", 0, 0

    def more(self) -> tuple[list[dict[str, Any]], bool]:
        """The points of the lines that are new, and whether all before them is void: the first time, or a new file."""
        try:
            with open_inside(self.path) as file:
                stat = os.fstat(file.fileno())
                again = stat.st_size < self.place or self.inode != stat.st_ino
                if again:
                    self.place = 0
                self.inode = stat.st_ino
                file.seek(self.place)
                raw = file.read(MOST_READ)
        except OSError:
            return [], False
        whole = raw[: raw.rfind(b"\n") + 1]
        self.place += len(whole)
        return thin([point for line in parse_lines(whole.split(b"\n")) if (point := to_point(line))]), again


def to_point(line: dict[str, Any]) -> dict[str, Any] | None:
    """What a line of metrics says of the curve: bits per byte where they are known, else the loss; None if nothing."""

    def number(value: Any) -> Any:
        return value if is_number(value) else None

    train, valid = number(line.get("bits_per_byte")), number(line.get("valid_bits_per_byte"))
    unit = "bits per byte"
    if train is None and valid is None:
        train, valid, unit = number(line.get("loss")), number(line.get("valid_loss")), "nats per prediction"
    if train is None and valid is None:
        return None
    told = line.get("cost")
    cost = {name: value for name, value in told.items() if is_number(value)} if isinstance(told, dict) else {}
    counted = (read_speed({"cost": cost}) or ("tokens", 0.0))[0]
    try:
        seconds: float | None = training_seconds({**line, "cost": cost})
    except (KeyError, TypeError, ArithmeticError):
        seconds = None
    return {
        "step": number(line.get("step")),
        "train": train,
        "valid": valid,
        "unit": unit,
        "tokens": number(line.get(counted)),
        "counted": counted,
        "seconds": seconds,
        "flops": number(line.get("flops")),
        "joules": cost.get("training_joules", cost.get("joules")),
    }


def thin(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most about `MOST` points; those of validation all stay."""
    if len(points) <= MOST:
        return points
    step = -(-len(points) // MOST)
    return [
        point for i, point in enumerate(points) if i % step == 0 or point["valid"] is not None or i >= len(points) - 2
    ]


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter()

    @router.get("/curves")
    def curves(run: Names) -> Response:
        found = []
        for name in run:
            points, _ = Tail(run_store.find(name)).more()
            found.append({"run": name, "points": points})
        return answer({"curves": found})

    @router.get("/live")
    async def live(request: Request, run: Names = []) -> Response:  # noqa: B006
        tails = {name: Tail(await asyncio.to_thread(run_store.find, name)) for name in run}

        async def events() -> AsyncIterator[bytes]:
            before = None
            while not await request.is_disconnected():
                for name, tail in tails.items():
                    points, again = await asyncio.to_thread(tail.more)
                    if points or again:
                        yield _event("points", {"run": name, "points": points, "again": again})
                now = await asyncio.to_thread(run_store.about)
                if now != before:
                    yield _event("runs", {"runs": now})
                    before = now
                else:
                    yield b": still here\n\n"
                await asyncio.sleep(EVERY)

        return StreamingResponse(
            events(), media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )

    return router


def _event(name: str, value: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(plain(value))}\n\n".encode()
