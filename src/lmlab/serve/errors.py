"""Errors as the OpenAI client expects them: an object with a message, a type, the parameter and a code.

An error of the client is an `APIError`, raised when its request is checked. Every other exception is an internal error:
status 500, and a traceback in the log.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from lmlab.messages import printable

LOGGER = logging.getLogger("lmlab.serve")


class DisconnectedError(Exception):
    """The client has hung up."""


class OverloadedError(Exception):
    """The queue is full."""


class ClosedError(Exception):
    """The engine takes nothing more."""


class NotANumberError(ArithmeticError):
    """A model gives NaN or infinity, as one does whose weights are broken: an error of ours."""

    def __init__(self, name: str, what: str = "scores") -> None:
        super().__init__(
            f"the {what} of {name} are not numbers (NaN or infinite): its weights are broken; serve an earlier "
            "checkpoint, or train it again"
        )


class APIError(Exception):
    """An answer that says what was wrong; `param` is the field that it is about."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.param, self.code = message, status, param, code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        return error_body(self.message, status=self.status, param=self.param, code=self.code)


TYPES = {401: "authentication_error", 403: "permission_error", 404: "invalid_request_error", 429: "rate_limit_error"}


def error_body(message: str, *, status: int, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The error object for an HTTP status."""
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def say(location: tuple[Any, ...], message: str, kind: str) -> tuple[str, str | None]:
    """A message about a field that did not pass, and the field's name."""
    names = [str(part) for part in location if part != "body"]
    field = names[0] if names else None
    if kind == "extra_forbidden":
        return f"{field} is not a known field; see /openapi.json for those that are", field
    if kind.startswith("json"):
        return "the body is not valid JSON", None
    where = ".".join(names[:3])
    return (f"{where}: {message}" if where else message), field


@contextmanager
def checking(param: str | None = None) -> Iterator[None]:
    """Around a check of what a client gave: a `ValueError` in it is an error of the client, about the field `param`.

    Nothing is computed with a model inside it, for an error of that is ours.
    """
    try:
        yield
    except ValueError as error:
        raise APIError(f"{param}: {error}" if param else str(error), param=param) from None


def json_response(content: dict[str, Any], served: str) -> JSONResponse:
    """A response of what a model computed; a `NotANumberError` about the run `served` where JSON cannot hold it."""
    try:
        return JSONResponse(content)
    except ValueError as error:
        raise NotANumberError(served) from error


def log_error(error: BaseException, where: str) -> None:
    """Write an error of ours to the log, with its traceback; control characters in it are escaped."""
    lines = traceback.format_exception(error)
    if error.__traceback__ is None:  # it was not raised
        lines = ["Traceback (most recent call last):\n", *traceback.format_stack()[:-1], *lines]
    LOGGER.error("%s", printable(f"{where}: {''.join(lines)}".rstrip()))


def internal_error(error: BaseException) -> APIError:
    """The response for an internal error: its name only, because its message may contain details of the machine."""
    message = str(error) if isinstance(error, NotANumberError) else f"unexpected {type(error).__name__} in the server"
    return APIError(f"{message}; the server's log has the traceback", status=500)


def add_errors(app: FastAPI) -> None:
    """Let an application answer every error by the object that clients expect."""

    @app.exception_handler(APIError)
    async def ours(request: Request, error: APIError) -> Response:
        return JSONResponse(error.body(), error.status, headers=error.headers)

    @app.exception_handler(DisconnectedError)
    async def gone(request: Request, error: DisconnectedError) -> Response:
        return Response(status_code=499)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first: dict[str, Any] = error.errors()[0]
        message, param = say(tuple(first["loc"]), str(first["msg"]), str(first["type"]))
        return JSONResponse(error_body(message, status=400, param=param), 400)

    @app.exception_handler(HTTPException)
    async def known(request: Request, error: HTTPException) -> Response:
        message = str(error.detail)
        if error.status_code == 404:
            message = f"there is no {request.method} {request.url.path[:200]}; see /openapi.json"
        headers = dict(error.headers or {})
        return JSONResponse(error_body(message, status=error.status_code), error.status_code, headers=headers)

    @app.exception_handler(Exception)
    async def unknown(request: Request, error: Exception) -> Response:
        return JSONResponse(internal_error(error).body(), 500)  # the guard logs it


def add_library_errors(app: FastAPI) -> None:
    """Let an application answer a `ValueError` of the library's own checks by 400, for routes that check nothing first.

    lmlab raises it about what a user gave. One that PyTorch, json or another package raises is an error of ours.
    """

    @app.exception_handler(ValueError)
    async def refused(request: Request, error: ValueError) -> Response:
        if not raised_by_lmlab(error):
            log_error(error, f"{request.method} {request.url.path[:200]}")
            return JSONResponse(internal_error(error).body(), 500)
        return JSONResponse(error_body(str(error), status=400), 400)


def raised_by_lmlab(error: BaseException) -> bool:
    """Whether the statement that raised an error is in this package."""
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    name = entry.tb_frame.f_globals.get("__name__", "") if entry is not None else ""
    return str(name).split(".")[0] == "lmlab"
