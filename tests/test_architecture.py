"""Imports point one way, and inside models/ back in time: the import graph is the family tree."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import lmlab
from lmlab.models import LINEAGE, load_class
from lmlab.models.model import EncoderDecoder, EncoderModel, Model, NextTokenModel

ROOT = Path(lmlab.__file__).parent
ORDER = (
    # a folder, or a module that has an entry of its own, may import those of the lines above its own
    {"messages", "parsing", "units", "progress"},
    {"metrics", "ngrams", "runs.storage", "runs.run_files"},
    {"config", "pages"},
    {"layers", "tokenizers"},
    {"models", "data"},
    {"objectives", "decoding", "baselines", "runs.model_files", "runs.upgrade"},
    {"costs", "analysis", "interop", "runs.first_commands"},
    {"training"},
    {"tasks", "costs.benchmark", "runs.recipe", "runs.card", "runs.averaging"},
    {"roles", "runs.recipe_record"},
    {"media_methods"},
    {"language_model", "runs.jobs"},
    {"prompting", "serve", "runs.finetuning", "runs.counting", "runs.held_out"},
    {"runs.run"},
    {"runs.train"},
    {"comparison", "transfer", "studio"},
    {"runs.report"},
    {"cli", "__init__"},
    {"__main__"},
)
SOURCES = sorted(path for path in ROOT.rglob("*.py"))


def place(parts: Sequence[str]) -> str:
    """The entry of ORDER that a module belongs to: its own, as all modules of runs/ have one, or that of its folder."""
    own = ".".join(parts[:2])
    return own if parts[0] == "runs" or own in set().union(*ORDER) else parts[0]


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
    here = place(path.relative_to(ROOT).with_suffix("").parts)
    if here == "runs.__init__":
        return
    line = next((number for number, names in enumerate(ORDER) if here in names), None)
    assert line is not None, f"{here} has no place in ORDER: give it one in this test"
    below = set().union(*ORDER[:line])
    known = set().union(*ORDER)
    used = {place(module.split(".")[1:]) for module in imports(path) if module.count(".")} & known
    assert used <= below | {here}, f"{path.name} imports {sorted(used - below - {here})}"


def test_models_import_only_older_models() -> None:
    year = {system.where.split(":")[0]: system.year for system in LINEAGE.values()}
    for module, own in year.items():
        for imported in imports(ROOT.parent / (module.replace(".", "/") + ".py")) & year.keys() - {module}:
            assert year[imported] <= own, f"{module} ({own}) imports {imported} ({year[imported]})"


def depth(kind: type, *, of: Sequence[type]) -> int:
    """The number of classes from one of `of`, which do not count, to `kind`, on the longest path."""
    above = (depth(base, of=of) for base in kind.__bases__ if issubclass(base, tuple(of)))
    return 0 if kind in of else 1 + max(above, default=0)


@pytest.mark.parametrize("name", LINEAGE)
def test_inheritance_is_at_most_three_deep(name: str) -> None:
    """A system is at most three classes below the contract that it meets, and a contract two below `Model`."""
    contracts = (NextTokenModel, EncoderModel, EncoderDecoder, Model)
    kind = load_class(name)
    if issubclass(kind, Model):
        assert 1 <= depth(kind, of=contracts) <= 3, [each.__name__ for each in kind.__mro__]
    assert all(depth(contract, of=(Model,)) <= 1 for contract in contracts)


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
