"""Every script in benchmarks/ imports names that exist; what they measure is not run here."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_benchmark_imports_what_exists(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if node.module.split(".")[0] == "lmlab":
            module = importlib.import_module(node.module)
            missing = [
                each.name
                for each in node.names
                if not hasattr(module, each.name) and not _is_module(node.module, each.name)
            ]
            assert missing == [], f"{node.module} has no {', '.join(missing)}"
        elif (neighbour := path.with_name(f"{node.module}.py")).is_file():
            defined = _defined_in(neighbour)
            assert {each.name for each in node.names} <= defined, f"{neighbour.name} lacks a name of line {node.lineno}"


def _is_module(package: str, name: str) -> bool:
    try:
        importlib.import_module(f"{package}.{name}")
    except ImportError:
        return False
    return True


def _defined_in(path: Path) -> set[str]:
    """The names that a script defines or imports at its top level."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {each.asname or each.name for each in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return names
