"""The list of runs, everything known about one, and learning curves: at once, or as server-sent events while they grow.

Events are `points` ({run, points, again}: with `again`, earlier points are void), and `runs` when the list of runs, or
the status of one, has changed.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from lmlab.analysis.view import plain
from lmlab.config import Config
from lmlab.runs.upgrade import upgrade_task
from lmlab.studio.notes import LONGEST, read_note, write_note
from lmlab.studio.responses import RunName, respond
from lmlab.studio.run_files import is_number, open_inside, parse_lines, read
from lmlab.studio.run_store import RunStore
from lmlab.units import read_speed, training_seconds

EVERY = 1.0
"""Seconds between two events of a stream."""
MOST = 1500
"""Points of one curve; longer ones are thinned out."""
MOST_READ = 2**26
"""Bytes of a metrics file that are read at once."""
LONGEST_CARD = 60_000
"""Characters of a model card that are sent."""
Names = Annotated[list[str], Query(max_length=24)]


class NoteRequest(Config):
    """The new note of a run, and the one that the page has shown, so that no other change is overwritten."""

    run: RunName
    note: Annotated[str, Field(max_length=LONGEST)]
    before: Annotated[str, Field(max_length=LONGEST)] = ""


class Tail:
    """A metrics file that is read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path, self.position, self.inode = path / "metrics.jsonl", 0, 0

    def more(self) -> tuple[list[dict[str, Any]], bool]:
        """The points of the new lines, and whether earlier points are void: at the first call, or for a new file."""
        try:
            with open_inside(self.path) as file:
                stat = os.fstat(file.fileno())
                again = stat.st_size < self.position or self.inode != stat.st_ino
                if again:
                    self.position = 0
                self.inode = stat.st_ino
                file.seek(self.position)
                raw = file.read(MOST_READ)
        except OSError:
            return [], False
        whole = raw[: raw.rfind(b"\n") + 1]
        self.position += len(whole)
        return thin([point for line in parse_lines(whole.split(b"\n")) if (point := to_point(line))]), again


def to_point(line: dict[str, Any]) -> dict[str, Any] | None:
    """A point of the curve: bits per byte if the line has them, else the loss; None without either."""

    def number(value: Any) -> Any:
        return value if is_number(value) else None

    train, valid = number(line.get("bits_per_byte")), number(line.get("valid_bits_per_byte"))
    unit = "bits per byte"
    if train is None and valid is None:
        train, valid, unit = number(line.get("loss")), number(line.get("valid_loss")), "nats per prediction"
    if train is None and valid is None:
        return None
    given = line.get("cost")
    cost = {name: value for name, value in given.items() if is_number(value)} if isinstance(given, dict) else {}
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
    """At most about `MOST` points; all points with a validation loss are kept."""
    if len(points) <= MOST:
        return points
    step = -(-len(points) // MOST)
    return [
        point for i, point in enumerate(points) if i % step == 0 or point["valid"] is not None or i >= len(points) - 2
    ]


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter()

    @router.get("/runs")
    def list_runs() -> Response:
        return respond({"folder": run_store.folder.name, "runs": run_store.summaries()})

    @router.get("/run")
    def one_run(run: Annotated[str, Query(max_length=500)]) -> Response:
        path = run_store.find(run)
        return respond({**run_store.describe(run, path), "card": _card(path), "settings": _settings(path)})

    @router.post("/note")
    def note(request: NoteRequest) -> Response:
        """Save the note of a run."""
        path = run_store.find(request.run)
        write_note(path, request.note, before=request.before)
        return respond({"note": read_note(path)})

    @router.get("/task")
    def task(run: Annotated[str, Query(max_length=500)]) -> Response:
        settings = upgrade_task(read(run_store.find(run) / "task.json"))
        names = ("kind", "labels", "layers", "pair")
        return respond({**{name: settings.get(name) for name in names}, "how": settings.get("method")})

    @router.get("/curves")
    def curves(run: Names) -> Response:
        found = []
        for name in run:
            points, _ = Tail(run_store.find(name)).more()
            found.append({"run": name, "points": points})
        return respond({"curves": found})

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
                now = await asyncio.to_thread(run_store.recent)
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


def _card(path: Path) -> str:
    try:
        with open_inside(path / "README.md") as file:
            return file.read(4 * LONGEST_CARD).decode("utf-8", "replace")[:LONGEST_CARD]
    except OSError:
        return ""


def _settings(path: Path) -> dict[str, dict[str, Any]]:
    """The groups of a recipe, or the model settings of an imported run, without the folders of its texts."""
    recipe = read(path / "recipe.json") or {"model": read(path / "config.json").get("model", {})}
    groups = {name: group for name, group in recipe.items() if isinstance(group, dict)}
    return {name: {key: _without_folder(value) for key, value in group.items()} for name, group in groups.items()}


def _without_folder(value: Any) -> Any:
    """A setting; of a path only its last part."""
    if isinstance(value, str) and value.startswith("/"):
        return Path(value).name
    return [_without_folder(each) for each in value] if isinstance(value, list) else value
