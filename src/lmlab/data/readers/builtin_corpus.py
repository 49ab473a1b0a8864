"""The built-in corpus: the documentation inside the user's own Python, so that nothing has to be downloaded.

It is the docstrings of the standard library, read from its source files without importing them, those of the modules
compiled into the interpreter, and the topics of the language reference that `help()` shows. One module or topic is one
document. A paragraph that was in an earlier document is left out, so that no test document repeats a training document.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from lmlab.data.readers.files import cache_folder
from lmlab.files import FullDiskError, write_text

VERSION = 2
SKIPPED = {
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "site-packages",
    "dist-packages",
    "encodings",
    "turtledemo",
    "pydoc_data",
}
SHORTEST = 200
"""Documents of fewer characters are left out."""
REPEATED = 40
"""Paragraphs of at least this many characters are kept once; shorter ones (`See also:`) may repeat."""


def builtin_identity() -> str:
    """Return what the built-in corpus depends on: this Python, and the version of this reader."""
    return f"builtin {VERSION} {sys.version} {sysconfig.get_path('stdlib')}"


def builtin_documents() -> list[tuple[str, str]]:
    """Return the documents (name, text) of the built-in corpus, always in the same order; kept in the cache."""
    cached = cache_folder() / f"builtin-{sha256(builtin_identity().encode()).hexdigest()[:16]}.json"
    try:
        return [(str(name), str(text)) for name, text in json.loads(cached.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        pass
    documents = list(_without_repetition([*_sources(Path(sysconfig.get_path("stdlib"))), *_compiled(), *_topics()]))
    _keep(documents, cached)
    return documents


def _without_repetition(documents: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for name, text in documents:
        kept = []
        for paragraph in re.split(r"\n\n+", _clean(text)):
            words = " ".join(paragraph.split())
            if len(words) < REPEATED or words not in seen:
                kept.append(paragraph)
                seen.add(words)
        if sum(map(len, kept)) >= SHORTEST:
            yield name, "\n\n".join(kept) + "\n"


def _keep(documents: list[tuple[str, str]], path: Path) -> None:
    """Write the cache atomically; errors are ignored."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(documents, ensure_ascii=False), shared=True)
    except (OSError, FullDiskError):
        pass


def _sources(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if not SKIPPED.intersection(parts) and not any("test" in part.lower() for part in parts[1:]):
            yield ".".join(parts).removesuffix(".__init__"), "\n\n".join(_docstrings(path))


def _docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and functions, in the order of the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    definitions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    for node in sorted(definitions, key=lambda node: getattr(node, "lineno", 0)):
        text = ast.get_docstring(node, clean=True)
        if text and text.strip():
            yield text


def _compiled() -> Iterator[tuple[str, str]]:
    """Yield the docstrings of compiled modules, except `sys`, whose functions other programs replace."""
    for name in sorted({*sys.builtin_module_names} - {"sys"}):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        objects: list[object] = []
        for _, value in sorted(vars(module).items()):
            if getattr(value, "__module__", None) == name and (inspect.isbuiltin(value) or inspect.isclass(value)):
                objects.append(value)
                members = sorted(vars(value).items()) if inspect.isclass(value) else []
                objects += [member for _, member in members if inspect.isroutine(member)]
        texts = [text for text in (getattr(value, "__doc__", None) for value in objects) if isinstance(text, str)]
        yield name, "\n\n".join(inspect.cleandoc(text) for text in texts)


def _topics() -> Iterator[tuple[str, str]]:
    """Yield the topics of the language reference, the longest first; sections that repeat a chapter are left out."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name, text in sorted(topics.items(), key=lambda item: (-len(item[1]), item[0])):
        yield f"topic {name}", inspect.cleandoc(text)


def _clean(text: str) -> str:
    """Return a text without white space at line ends, double blank lines, and characters that UTF-8 cannot encode."""
    lines = [line.rstrip() for line in text.encode(errors="ignore").decode().replace("\0", "").splitlines()]
    kept = [line for position, line in enumerate(lines) if line or (position and lines[position - 1])]
    return "\n".join(kept).strip("\n")
