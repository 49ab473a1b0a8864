"""GET /: one page to try the runs in a browser, from files of the package alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import Response

from lmlab.pages.page import house_style
from lmlab.serve.served import Runs

FOLDER = Path(__file__).parents[1] / "static"
FILES = {
    "/": ("playground.html", "text/html; charset=utf-8"),
    "/static/playground.css": ("playground.css", "text/css; charset=utf-8"),
    "/static/playground.js": ("playground.js", "text/javascript; charset=utf-8"),
}
"""What can be asked for; a path is never made from a request."""


def playground(runs: Runs) -> APIRouter:
    """The page, which asks for the runs itself."""
    router = APIRouter()
    contents = {path: ((FOLDER / name).read_bytes(), kind) for path, (name, kind) in FILES.items()}
    contents["/static/house.css"] = house_style().encode(), "text/css; charset=utf-8"
    contents["/favicon.ico"] = b"", "image/x-icon"
    for path, (content, kind) in contents.items():
        router.add_api_route(path, _sender(content, kind), methods=["GET"], include_in_schema=False)
    return router


def _sender(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return Response(content, media_type=kind)

    return send
