"""The list of runs, and all that is known of one: its card, its settings, its cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from lmlab.studio.responses import answer
from lmlab.studio.run_files import open_inside, read
from lmlab.studio.run_store import RunStore

LONGEST_CARD = 60_000
"""Characters of a model card that are shown."""


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter()

    @router.get("/runs")
    def list_runs() -> Response:
        return answer({"folder": run_store.folder.name, "runs": run_store.about()})

    @router.get("/run")
    def one_run(run: Annotated[str, Query(max_length=500)]) -> Response:
        path = run_store.find(run)
        return answer({**run_store.describe(run, path), "card": _card(path), "settings": _settings(path)})

    return router


def _card(path: Path) -> str:
    try:
        with open_inside(path / "README.md") as file:
            return file.read(4 * LONGEST_CARD).decode("utf-8", "replace")[:LONGEST_CARD]
    except OSError:
        return ""


def _settings(path: Path) -> dict[str, dict[str, Any]]:
    """The groups of a recipe, or of an imported run the settings of its model; where texts lie is left out."""
    recipe = read(path / "recipe.json") or {"model": read(path / "config.json").get("model", {})}
    groups = {name: group for name, group in recipe.items() if isinstance(group, dict)}
    return {name: {key: _told(value) for key, value in group.items()} for name, group in groups.items()}


def _told(value: Any) -> Any:
    """A setting as it is shown: of a path only its last part."""
    if isinstance(value, str) and value.startswith("/"):
        return Path(value).name
    return [_told(each) for each in value] if isinstance(value, list) else value
