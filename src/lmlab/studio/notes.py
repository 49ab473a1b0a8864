"""Notes about runs: the file `notes.md` in the folder of a run, which the studio shows and changes.

It is the user's file: overwriting a run leaves it there, and moving the folder of the run moves it.
"""

from __future__ import annotations

from pathlib import Path

from lmlab.runs.run_files import NOTES
from lmlab.studio.run_files import open_inside

LONGEST = 4000
"""Characters of a note."""


def read_note(path: Path) -> str:
    """The note of a run, at most `LONGEST` characters; empty if there is none that may be read."""
    try:
        with open_inside(path / NOTES) as file:
            return file.read(4 * LONGEST).decode("utf-8", "replace")[:LONGEST].rstrip("\n")
    except OSError:
        return ""


def write_note(path: Path, note: str, *, before: str) -> None:
    """Save the note of a run, complete or not at all; an empty one removes the file."""
    from lmlab.files import write_bytes

    file = path / NOTES
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise ValueError(f"{NOTES} of {path.name} is a link or not a regular file; remove it to write a note")
    if file.exists() and file.stat().st_size > 4 * LONGEST:
        raise ValueError(f"{NOTES} of {path.name} is longer than the studio shows; change it in an editor")
    if read_note(path) != before:
        raise ValueError(f"the note of {path.name} was changed meanwhile; copy your text and reload the page")
    try:
        if note.strip():
            write_bytes(file, (note.rstrip("\n") + "\n").encode())
        else:
            file.unlink(missing_ok=True)
    except PermissionError:
        raise ValueError(f"the note of {path.name} cannot be saved: its folder may not be written to") from None
