"""What a system made of a text, as HTML: a prompt that it went on from, or a sentence whose blanks it filled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

MASK = "[MASK]"


def continued(prompt: str, text: str) -> str:
    """The prompt, and how a system went on from it."""
    shown = escape(re.sub(r"\n{3,}", "\n\n", text).rstrip() or " (it ends the text here)")
    return f"<p><mark>{escape(prompt)}</mark>{shown}</p>"


def filled(cloze: Mapping[str, Any], blanks: Sequence[Sequence[tuple[str, float]]], otherwise: str) -> str:
    """The sentence with the likeliest token in each blank, and under it what else was likely there.

    The cloze has its `text` and its `answers`; `otherwise` is shown where nothing was filled.
    """
    if not blanks:
        return f"<p>{escape(otherwise)}</p>"
    answers = cloze["answers"] or [None] * len(blanks)
    first, *rest = cloze["text"].split(MASK)
    sentence, lines = escape(first), []
    for candidates, answer, after in zip(blanks, answers, rest, strict=True):
        words = [(_visible(token), probability) for token, probability in candidates]
        kind = "" if answer is None else " class=right" if words[0][0] == answer else " class=wrong"
        sentence += f"<mark{kind}>{escape(words[0][0])}</mark>{escape(after)}"
        likely = " · ".join(f"{escape(word)} {100 * probability:.2g}%" for word, probability in words)
        lines.append(f"<li>{f'<b>{escape(answer)}</b>: ' if answer else ''}{likely}</li>")
    return f"<p>{sentence}</p><ul class=guesses>{''.join(lines)}</ul>"


def _visible(token: str) -> str:
    """A token as it stands in a sentence; white space as a sign."""
    return token.strip().replace("\\n", "⏎") or "␣"
