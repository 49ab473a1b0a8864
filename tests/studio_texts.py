"""What a page must not take for HTML, and what a terminal must not take for colours."""

from __future__ import annotations

HARM = "<img src=x onerror=alert(1)>"
SCRIPT = "<script>alert(1)</script>"
ANSI = "\x1b[31mred\x1b[0m"
TOKEN = "secret-token"
KNOWS = {"authorization": f"Bearer {TOKEN}"}
"""What a client of the studio sends."""
WEIRD = f"weird/{HARM}"
"""The name of a run."""


def book() -> str:
    lines = [
        f"The {SCRIPT} cat number {n} sat on the mat. Once upon a time {HARM} {ANSI} there was a dog."
        for n in range(80)
    ]
    return "\n".join(lines) + "\n"
