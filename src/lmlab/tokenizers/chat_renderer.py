"""A program that renders one chat template: requests on standard input, answers on standard output, JSON lines.

A chat template is a Jinja program that came with somebody's model. It runs here, in a process of its own with little
memory, in Jinja's sandbox and without access to files, so that it can be ended when it takes too long. The variables,
filters and functions are those that `transformers` gives a template, so that the text is the same.
"""

from __future__ import annotations

import json
import math
import sys
import time
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MEMORY = 2**29
"""Bytes of memory that the process may have."""


class GenerationBlock(Extension):
    """`{% generation %}` marks what the assistant says, for training; here its content is simply rendered."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own type)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class SafeNamespace(Namespace):
    """Jinja's `namespace`, without names that begin with an underscore: they lead to Python's internals."""

    def __init__(*args: Any, **values: Any) -> None:
        self, *rest = args
        given = dict(*rest, **values)
        for name in given:
            _check_name(name)
        Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        Namespace.__setitem__(self, name, value)


def _check_name(name: object) -> None:
    if str(name).startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace has no name that begins with an underscore: {name!r}")


class MakeDict:
    """Jinja's `dict`, without the attributes of Python's class."""

    def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
        return dict(*args, **values)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def make_environment() -> ImmutableSandboxedEnvironment:
    """The sandbox, with what templates may use."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = to_json
    functions = {"raise_exception": raise_exception, "strftime_now": strftime_now}
    environment.globals |= {**functions, "dict": MakeDict(), "namespace": SafeNamespace}
    return environment


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is; Jinja's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class RefusedError(jinja2.TemplateError):
    """The template's author has written that these messages are not accepted."""


def raise_exception(message: str) -> None:
    """End with an error that the template's author has written."""
    raise RefusedError(message)


def strftime_now(form: str) -> str:
    """The local time."""
    return datetime.now().strftime(form)


def render(template: jinja2.Template, variables: dict[str, Any], *, most: int) -> str:
    """The text of a template; a ValueError where it has more than `most` characters."""
    pieces, length = [], 0
    for piece in template.generate(**variables):
        pieces.append(piece)
        length += len(piece)
        if length > most:
            raise ValueError(f"it writes more than {most:,} characters")
    return "".join(pieces)


def limit(name: str, most: int) -> None:
    """Let the system hold the process to a limit, where it can: `RLIMIT_AS` bytes, or `RLIMIT_CPU` seconds."""
    try:
        import resource
    except ImportError:  # Windows
        return
    kind = getattr(resource, name)
    resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def main() -> None:
    """Answer requests until there are no more; the first line is the template."""
    limit("RLIMIT_AS", MEMORY)
    source, template = json.loads(sys.stdin.readline()), None
    for line in sys.stdin:
        request = json.loads(line)
        limit("RLIMIT_CPU", math.ceil(time.process_time() + request["seconds"]))
        try:
            template = template or make_environment().from_string(source)
            answer: dict[str, Any] = {"text": render(template, request["variables"], most=request["most"])}
        except jinja2.TemplateSyntaxError as error:
            answer = {"error": f"line {error.lineno}: {error.message}"}
        except Exception as error:  # a template may raise anything
            refused = isinstance(error, (RefusedError, jinja2.UndefinedError))  # or the messages lack what it needs
            answer = {"error": str(error) or type(error).__name__, "refused": refused}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
