"""Strict settings: pydantic models that reject unknown keys and name the nearest valid one."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from lmlab.messages import suggest as suggest
from lmlab.messages import suggest_near as suggest_near
from lmlab.messages import with_article as with_article
from lmlab.parsing import load_toml


class Config(BaseModel):
    """A frozen group of settings; every field has bounds and a description."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)


C = TypeVar("C", bound=Config)


def build(cls: type[C], values: Mapping[str, Any], *, where: str) -> C:
    """Return `values` as a validated `cls`; a ValueError says which setting of `where` is wrong and what is allowed."""
    given = {
        name: "none" if value is None and "none" in get_args(_annotation(cls, name)) else value
        for name, value in values.items()
    }  # `none` on the command line means None, unless "none" is one of the values of the setting
    try:
        return cls.model_validate(given)
    except ValidationError as error:
        lines = [_explain(cls, dict(item), where) for item in error.errors()]
        raise ValueError("\n".join(lines)) from None


def _annotation(cls: type[Config], name: str) -> Any:
    field = cls.model_fields.get(name)
    return None if field is None else field.annotation


def _explain(cls: type[Config], item: dict[str, Any], where: str) -> str:
    path = ".".join(str(part) for part in (where, *item["loc"]) if part != "")
    if item["type"] == "extra_forbidden":
        return f"unknown setting {path}{suggest(str(item['loc'][-1]), cls.model_fields)}"
    if item["type"] == "missing":
        return f"{path} is needed"
    message = item["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if isinstance(item["input"], Mapping) and item["type"] == "value_error":  # several settings conflict
        names_one = not item["loc"] and message.split(" ", 1)[0] in cls.model_fields
        return f"{path}.{message}" if names_one else f"{path}: {message}"
    return f"{path} = {item['input']!r}: {message}"


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; a ValueError names the line that does not parse."""
    try:
        return load_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{path} is not readable as TOML: {error}") from None


def apply_settings(values: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Return `values` with each `group.key=value` of the command line set."""
    return change_settings(values, parse_settings(settings))


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Return the values of `group.key=value` by `group.key`."""
    found: dict[str, Any] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set {setting}: write it as GROUP.KEY=VALUE, for instance --set model.layers=3")
        found[path.strip()] = _literal(text.strip())
    return found


def change_settings(values: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with settings changed, which are named `group.key`."""
    result: dict[str, Any] = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()
    }
    for path, value in settings.items():
        group, dot, key = path.partition(".")
        if not dot or not key or "." in key:
            raise ValueError(f"setting {path}: write it as GROUP.KEY=VALUE, for instance model.layers=3")
        table = result.setdefault(group, {})
        if not isinstance(table, dict):
            raise ValueError(f"setting {path}: {group} is a single value, not a group of settings")
        table[key] = value
    return result


def _literal(text: str) -> Any:
    """Return the value of a TOML literal, or None for `none`; anything else is a string, so quotes are not needed."""
    if text.lower() == "none":
        return None
    try:
        return load_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
