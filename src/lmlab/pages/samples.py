"""What a model makes of a text: a prompt that it continues, or a sentence whose masked tokens it predicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from lmlab.pages.page import render_macro

MASK = "[MASK]"


class Guess(NamedTuple):
    """A token that may be there, and its probability."""

    word: str
    probability: float


class Mask(NamedTuple):
    """A masked token of a sentence: the guesses, best first, the original, and the text up to the next mask."""

    guesses: list[Guess]
    original: str | None
    after: str

    @property
    def kind(self) -> str:
        """Whether the best guess is right; nothing where the original is not known."""
        if self.original is None:
            return ""
        return "right" if self.guesses[0].word == self.original else "wrong"


def continued(prompt: str, text: str) -> Markup:
    """A prompt and its continuation."""
    return render_macro("continued", prompt, re.sub(r"\n{3,}", "\n\n", text).rstrip() or " (it ends the text here)")


def filled(cloze: Mapping[str, Any], guesses: Sequence[Sequence[tuple[str, float]]], otherwise: str) -> Markup:
    """A sentence with the most probable token in each mask, and below it the other guesses.

    The cloze has its `text` and its `answers`; `otherwise` is shown where there are no guesses.
    """
    if not guesses:
        return render_macro("continued", "", otherwise)
    originals = cloze["answers"] or [None] * len(guesses)
    start, *rest = cloze["text"].split(MASK)
    masks = [
        Mask([Guess(_visible(token), probability) for token, probability in best], original, after)
        for best, original, after in zip(guesses, originals, rest, strict=True)
    ]
    return render_macro("filled", start, masks)


def _visible(token: str) -> str:
    """A token as a word of a sentence; white space as a sign."""
    return token.strip().replace("\\n", "⏎") or "␣"
