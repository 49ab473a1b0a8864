"""Examples in docstrings (lines that begin with `>>>`) as blocks of code in the reference of Python.

An extension of griffe, which mkdocstrings reads docstrings with: without it such a line is a quotation in Markdown.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


def fence_examples(docstring: str) -> str:
    """The docstring with a fence around each stretch of lines of examples, without their prompts."""

    def fence(match: re.Match[str]) -> str:
        lines = [line[4:] for line in match[0].splitlines()]
        return "\n".join(["```python", *lines, "```\n"])

    return re.sub(r"(?:^(?:>>>|\.\.\.) .*(?:\n|\Z))+", fence, docstring, flags=re.MULTILINE)


class DocstringExamples(griffe.Extension):
    """Change the docstring of every object as it is read."""

    def on_object(self, *, obj: Any, **others: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence_examples(obj.docstring.value)
