"""Errors as the OpenAI client expects them: an object with a message, a type, the parameter and a code."""

from __future__ import annotations

from typing import Any


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
