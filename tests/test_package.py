"""The package as others get it: what the wheel and the sdist contain, versions, extras, and the files of a release."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import lmlab
from lmlab.cli.diagnosis import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEVELOPERS = {"dev", "docs", "peers"}
"""Extras that no user needs."""


def source_files() -> set[str]:
    """The files of the package: those that git knows, or all in an unpacked sdist."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "src/lmlab"]
        return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")) - {
            ""
        }
    found = (path for path in (ROOT / "src" / "lmlab").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found}


def packed_by(builder: Any) -> set[str]:
    return {each.distribution_path for each in builder.recurse_included_files()}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else() -> None:
    expected = {name.removeprefix("src/") for name in source_files()}
    assert {"lmlab/py.typed", "lmlab/pages/templates/run.html", "lmlab/studio/static/index.html"} <= expected
    packed = packed_by(WheelBuilder(str(ROOT)))
    assert expected - packed == set()
    assert {name.split("/")[0] for name in packed} == {"lmlab"}
    assert [name for name in packed if "__pycache__" in name or name.endswith((".pyc", ".new"))] == []


def test_the_sdist_has_what_builds_and_tests_the_package() -> None:
    packed = packed_by(SdistBuilder(str(ROOT)))
    assert source_files() <= packed
    assert {
        "constraints.txt",
        "tests/test_package.py",
        ".ci/run",
        "SECURITY.md",
        "CITATION.cff",
    } <= packed
    top = {name.split("/")[0] for name in packed}
    stray = {"runs", "site", "dist", "node_modules", ".venv", ".git", "reliability"}
    assert top & stray == set()


def test_all_files_of_the_release_name_one_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest is not None
    assert {PROJECT["project"]["version"], cited["version"], newest[1]} == {lmlab.__version__}
    assert ".".join(lmlab.__version__.split(".")[:2]) in (ROOT / "SECURITY.md").read_text()
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()


def test_every_extra_is_explained_and_named_by_an_error() -> None:
    extras = set(PROJECT["project"]["optional-dependencies"])
    assert extras - DEVELOPERS == set(EXTRAS)
    files = (path for path in (ROOT / "src" / "lmlab").rglob("*.py") if path.name != "diagnosis.py")
    source = "\n".join(map(Path.read_text, files))
    assert [extra for extra in EXTRAS if f"lmlab[{extra}]" not in source] == []


def test_what_is_installed_for_the_tests_is_in_the_constraints() -> None:
    """So that a new environment gets the same versions: each package that the metadata needs has a pin."""
    pinned = {
        _same(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    extras = PROJECT["project"]["optional-dependencies"]
    needed = [*PROJECT["project"]["dependencies"], *extras["dev"], *extras["serve"]]
    assert _names(needed) - pinned == set()


def _names(requirements: Iterable[str]) -> set[str]:
    return {_same(re.split(r"[\[>=<]", each)[0]) for each in requirements}


def _same(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_workflow_runs_the_checks_on_three_versions_of_python() -> None:
    found = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text())
    job = found["jobs"]["checks"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert ".ci/run" in [step.get("run") for step in job["steps"]]
    named = {each.rpartition(" ")[2] for each in PROJECT["project"]["classifiers"] if ":: 3." in each}
    assert named == set(job["strategy"]["matrix"]["python"])
    assert found[True].keys() == {"push", "pull_request"}, "YAML reads the key `on` as true"
    commands = {
        step["run"].removeprefix("make ") for each in found["jobs"].values() for step in each["steps"] if "run" in step
    }
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert commands - {".ci/run"} <= targets


def test_the_dockerfile_copies_what_exists_and_installs_extras_that_exist() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, flags=re.MULTILINE) for word in line.split()
    ]
    assert copied == ["pyproject.toml", "README.md", "LICENSE", "src", "constraints.txt"]
    assert all((ROOT / name).exists() for name in copied)
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == allowed
    installed = re.search(r"\[([\w,-]+)\]\"", text)
    assert installed is not None
    assert set(installed[1].split(",")) <= set(EXTRAS)
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_requirements_are_those_of_the_metadata() -> None:
    """An installed copy of another version would hide a missing requirement from `lmlab doctor`."""
    if metadata.version("lmlab") != lmlab.__version__:
        pytest.fail(f"lmlab {metadata.version('lmlab')} is installed, and the source is {lmlab.__version__}")
    needed = {line for line in metadata.requires("lmlab") or () if ";" not in line}
    assert _names(needed) == _names(PROJECT["project"]["dependencies"])
