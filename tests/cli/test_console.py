"""Names of runs, labels and texts cannot control the terminal."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lmlab.cli.console import Console

ESC = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b1m\r\u202e"
SHOWN = r"\x1b]0;owned\x1b[2J"  # rich itself drops bells and carriage returns


@pytest.mark.parametrize("terminal", [True, False])
def test_control_characters_are_escaped_wherever_rich_prints(terminal: bool) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=200, highlight=False, color_system="truecolor")
    table = Table("run")
    table.add_row(Text(ESC))
    for each in (Text(ESC, style="bold"), escape(ESC), table):
        console.print(each)
    reported = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())  # rich's own colours
    assert reported.count(SHOWN) == 3
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", reported)


def test_plain_text_and_colours_stay() -> None:
    file = io.StringIO()
    Console(file=file, force_terminal=True, width=40, color_system="standard").print("[bold]naïve 日本\t[/bold]x")
    assert "\x1b[1m" in file.getvalue()
    assert "naïve 日本" in file.getvalue()


def test_errors_about_a_run_with_such_a_name_are_escaped(tmp_path: Path) -> None:
    run = tmp_path / "a\x1b[2Jb"
    run.mkdir()
    command = [sys.executable, "-m", "lmlab", "generate", str(run), "x"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 2
    assert "\x1b" not in done.stdout + done.stderr
    assert r"a\x1b[2Jb" in done.stderr


def test_paths_that_were_written_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("The cat sat on the mat and the dog sat on the rug. " * 40)
    name = "x\x1b[31m"
    commands = [["train", "ngram", "book.txt", "-o", name], ["report", name], ["convert", name, f"{name}.arpa"]]
    for arguments in commands:
        done = subprocess.run(
            [sys.executable, "-m", "lmlab", *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert "x\\x1b[31m" in done.stdout + done.stderr
        assert "\x1b" not in done.stdout + done.stderr
