"""Commands that end by kill -9 at a known moment, however fast or slow the machine is: half-way through saving."""

from __future__ import annotations

import signal
import subprocess
import sys

CODE = """
import os, signal, sys
from lmlab.cli import main
from lmlab.training import checkpointer

run, saves, write_folder = sys.argv.pop(1), int(sys.argv.pop(1)), checkpointer.write_folder

def write(path, fill):
    def half(folder):
        fill(folder)
        if path.parent.name == run:
            global saves
            saves -= 1
            if not saves:
                os.kill(os.getpid(), signal.SIGKILL)
    write_folder(path, half)

checkpointer.write_folder = write
main()
"""


def kill_while_saving(*arguments: str, run: str, saves: int) -> None:
    """Carry out a command of lmlab until the run of that name has written all files of its n-th checkpoint, which is
    not in its place yet."""
    command = [sys.executable, "-c", CODE, run, str(saves), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
