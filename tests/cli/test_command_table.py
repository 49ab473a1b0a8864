"""The table of verbs: what `lmlab --help` shows, and that a verb's file is imported only when it is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from rich.text import Text

from lmlab.cli.commands import COMMANDS, load_command

PANELS = ["Start here", "Train", "Use", "Compare", "Look inside", "Exchange"]
IMPORTED = """
import json, sys
from lmlab.cli import main
sys.argv = ["lmlab", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)))
"""


def imported_by(*arguments: str) -> set[str]:
    """The modules that are there after a command has run in a new process."""
    command = [sys.executable, "-c", IMPORTED, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("verb", [None, "list"])
def test_help_and_list_import_nothing_that_they_do_not_need(verb: str | None) -> None:
    modules = imported_by(verb or "--help")
    heavy = {"pydantic", "torch", "numpy", "tokenizers", "safetensors", "lmlab.config"}
    assert modules & heavy == set()
    assert modules & {f"lmlab.cli.{name}" for name in COMMANDS} == {f"lmlab.cli.{verb}" for verb in [verb] if verb}


def test_the_help_of_a_verb_imports_no_other() -> None:
    modules = imported_by("train", "--help")
    assert modules & {f"lmlab.cli.{name}" for name in COMMANDS} == {"lmlab.cli.train"}
    assert modules & {"torch", "numpy"} == set()


def test_help_shows_every_verb_on_one_line_of_its_panel() -> None:
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "lmlab", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    rows: dict[str, list[str]] = {}
    for line in shown.splitlines():
        assert len(line.rstrip()) <= 80
        if line.startswith("╭─ "):
            rows[line.strip("╭─╮ ")] = []
        elif line.startswith("│ "):
            rows[next(reversed(rows))].append(" ".join(line.strip("│ ").split()))
    options = rows.pop("Options")
    assert [option.split()[0] for option in options] == ["--version", "--debug", "--help"]
    assert list(rows) == PANELS
    assert {
        panel: [f"{verb.name} {verb.help}" for verb in COMMANDS.values() if verb.panel == panel] for panel in PANELS
    } == rows


@pytest.mark.parametrize("name", COMMANDS)
def test_a_row_says_what_the_verb_says(name: str) -> None:
    command = load_command(COMMANDS[name])
    assert command.name == name
    assert command.help.splitlines()[0] == COMMANDS[name].help, (
        "the first line of the docstring, and the row of the table"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_no_brackets_are_lost_as_markup(name: str) -> None:
    command = load_command(COMMANDS[name])
    for text in (command.help, *(param.help or "" for param in command.params)):
        assert Text.from_markup(text).plain == text.replace("\\[", "["), "write \\\\[ for a bracket before a letter"


def test_without_a_verb_there_is_help(run_command) -> None:
    said = run_command()
    assert "Start here" in said.out + said.err
    assert "lmlab demo" in said.out + said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "No such command 'trian'. Did you mean 'train'?"),
        (["lists"], "No such command 'lists'. Did you mean 'list'?"),
        (["--verison"], "No such option"),
        (["list", "--all"], "No such option"),
        (["list", "gpt3"], "unknown model 'gpt3'; did you mean 'gpt'?"),
        (["list", "gpt2", "bert"], "unexpected extra argument"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(run_command, arguments: list[str], message: str) -> None:
    said = run_command(*arguments)
    assert said.code == 2
    assert message in said.err
