"""The reference page is that of the code, and an option means the same in every command."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from lmlab.cli.commands import RENAMED_COMMANDS, RENAMED_OPTIONS, load_command
from lmlab.cli.reference import list_commands, list_parameters, make_reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
COMMANDS = {row.path: (row, command) for row, command in list_commands()}
LONGEST_HELP = 10
"""Words of an option's help, without its default."""


def test_the_page_is_up_to_date() -> None:
    made = make_reference()
    assert PAGE.read_text(encoding="utf-8") == made, "python -m lmlab.cli.reference > docs/reference/cli.md"


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_of_an_option_is_short(path: str) -> None:
    for each in list_parameters(*COMMANDS[path]):
        if each.is_option:
            assert len(each.meaning.split()) <= LONGEST_HELP, f"{each.name}: {each.help}"


def test_an_option_takes_a_value_in_every_command_or_in_none() -> None:
    flags: dict[str, set[bool]] = defaultdict(set)
    for _, command in COMMANDS.values():
        for param in command.params:
            if param.param_type_name == "option" and not param.hidden:
                flags[param.opts[-1]].add(param.is_flag)
    assert {name for name, kinds in flags.items() if len(kinds) > 1} == set()


@pytest.mark.parametrize("path", RENAMED_OPTIONS)
def test_an_old_spelling_means_the_new_option(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = {option for param in COMMANDS[path][1].params for option in param.opts}
    for old, new in RENAMED_OPTIONS[path].items():
        assert old not in options
        assert new.split()[0] in options
        command = load_command(COMMANDS[path][0])
        words = command._rename([old, "3", f"{old}=3", "--other"])
        assert words in ([new, "3", f"{new}=3", "--other"], [*[new.split()[0], f"{new.split()[-1]}=3"] * 2, "--other"])
        assert capsys.readouterr().err == f"note: {old} is now {new}\n" * 2


def test_an_old_command_is_the_new_one(run_command) -> None:
    for old, new in RENAMED_COMMANDS.items():
        said = run_command(*old.split(), "--help")
        assert said.code == 0
        assert f"note: lmlab {old} is now lmlab inspect {new}" in said.err
        assert f"lmlab inspect {new}" in said.out
