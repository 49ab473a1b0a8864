"""Imports point one way, and inside models/ back in time: the import graph is the family tree."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lmlab
from lmlab.models import LINEAGE

ROOT = Path(lmlab.__file__).parent
LAYERS = {
    # each folder or top-level module may import those named, and itself
    "names": set(),
    "config": {"names"},
    "bits": set(),
    "progress": set(),
    "units": set(),
    "metrics": {"config"},
    "pages": set(),
    "own_files": set(),
    "layers": {"config"},
    "estimation": {"config"},
    "tokenizers": {"config"},
    "models": {"names", "config", "layers", "estimation"},
    "data": {"config", "tokenizers"},
    "objectives": {"config", "units", "metrics", "layers", "models", "data", "tokenizers"},
    "storage": set(),
    "checkpoint": {"config", "layers", "models", "tokenizers", "storage"},
    "decoding": {"config", "bits", "progress", "pages", "layers", "models", "tokenizers"},
    "analysis": {"config", "progress", "pages", "metrics", "layers", "models", "tokenizers", "data", "decoding"},
    "interop": {"config", "layers", "estimation", "models", "tokenizers", "storage", "checkpoint"},
    "costs": {"config", "layers", "models", "objectives", "tokenizers"},
    "training": {
        "config",
        "units",
        "bits",
        "metrics",
        "layers",
        "models",
        "objectives",
        "data",
        "checkpoint",
        "storage",
        "costs",
        "tokenizers",
    },
    "tasks": {
        "config",
        "progress",
        "layers",
        "models",
        "tokenizers",
        "metrics",
        "data",
        "objectives",
        "checkpoint",
        "storage",
        "training",
    },
    "upgrade": {"config", "data"},
    "recipe": {"config", "models", "tokenizers", "objectives", "training", "storage", "checkpoint", "data", "upgrade"},
    "jobs": {
        "config",
        "units",
        "bits",
        "metrics",
        "models",
        "objectives",
        "data",
        "tokenizers",
        "checkpoint",
        "storage",
        "costs",
        "decoding",
        "training",
        "recipe",
    },
    "finetuning": {
        "config",
        "models",
        "tokenizers",
        "data",
        "checkpoint",
        "storage",
        "tasks",
        "costs",
        "training",
        "recipe",
        "jobs",
    },
    "run": {
        "config",
        "models",
        "objectives",
        "data",
        "tokenizers",
        "checkpoint",
        "storage",
        "costs",
        "training",
        "recipe",
        "jobs",
        "finetuning",
        "own_files",
    },
    "language_model": {
        "config",
        "progress",
        "pages",
        "models",
        "objectives",
        "tasks",
        "tokenizers",
        "checkpoint",
        "storage",
        "decoding",
        "analysis",
        "data",
    },
    "transfer": {
        "config",
        "pages",
        "metrics",
        "models",
        "objectives",
        "tokenizers",
        "data",
        "tasks",
        "checkpoint",
        "storage",
        "costs",
        "training",
        "recipe",
        "jobs",
        "run",
        "own_files",
        "language_model",
    },
    "compare": {
        "config",
        "units",
        "bits",
        "metrics",
        "progress",
        "pages",
        "models",
        "tokenizers",
        "data",
        "checkpoint",
        "storage",
        "costs",
        "decoding",
        "training",
        "objectives",
        "upgrade",
        "recipe",
        "jobs",
        "run",
        "own_files",
        "language_model",
    },
    "prompting": {"config", "progress", "metrics", "models", "data", "decoding", "tasks", "language_model"},
    "studio": {
        "names",
        "bits",
        "progress",
        "config",
        "units",
        "pages",
        "metrics",
        "layers",
        "models",
        "tokenizers",
        "data",
        "tasks",
        "checkpoint",
        "storage",
        "decoding",
        "analysis",
        "language_model",
        "own_files",
        "recipe",
        "jobs",
        "run",
        "serve",
    },
    "serve": {
        "names",
        "config",
        "pages",
        "progress",
        "layers",
        "models",
        "tokenizers",
        "decoding",
        "analysis",
        "data",
        "tasks",
        "language_model",
    },
    "report": {
        "units",
        "progress",
        "models",
        "tokenizers",
        "storage",
        "costs",
        "recipe",
        "run",
        "language_model",
        "compare",
    },
}
SOURCES = sorted(path for path in ROOT.rglob("*.py"))


def place(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    """Modules of lmlab that a file imports, those for type checking alone too: a type is a dependency as well."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lmlab":
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name.split(".")[0] == "lmlab")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    here = place(path)
    if here not in LAYERS:
        assert here in {"cli", "__init__", "__main__"}, f"{here} has no place in the layers: give it one in this test"
        return
    known = set(LAYERS) | {"cli"}
    used = {module.split(".")[1] for module in imports(path) if module.count(".")} & known
    assert used <= LAYERS[here] | {here}, f"{path.name} imports {sorted(used - LAYERS[here] - {here})}"


def test_models_import_only_older_models() -> None:
    year = {system.where.split(":")[0]: system.year for system in LINEAGE.values()}
    for module, own in year.items():
        for imported in imports(ROOT.parent / (module.replace(".", "/") + ".py")) & year.keys() - {module}:
            assert year[imported] <= own, f"{module} ({own}) imports {imported} ({year[imported]})"


def test_help_and_list_import_no_torch() -> None:
    for arguments in (["--help"], ["list"]):
        code = (
            "import sys\nfrom lmlab.cli import main\n"
            f"sys.argv = ['lmlab', *{arguments}]\n"
            "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
            "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "gpt2" in done.stdout or arguments == ["--help"]


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "lmlab", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == lmlab.__version__
