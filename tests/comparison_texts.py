"""A small text with something to learn in it, and conditions under which tiny systems take a second."""

from __future__ import annotations

from pathlib import Path

from lmlab.comparison.plan import Conditions, make_conditions

VERBS = ["goes", "looks", "turns", "<b>shines</b>", "waits"]
SETTINGS = {"batch": 4, "window": 16, "evaluations": 3, "evaluation_tokens": 256}


def lines(count: int, *, seed: int = 0) -> str:
    planets = "ABCDEFGH"
    return "".join(
        f"On day {i + seed} the planet {planets[(i * 7 + seed) % 8]} {VERBS[i % 5]} at {(i * i + seed) % 29} & more.\n"
        for i in range(count)
    )


def small(text: Path, **changes: object) -> Conditions:
    """Conditions under which three tiny systems take a second or two."""
    options: dict[str, object] = {
        "models": "ngram,nplm,gpt2",
        "budget": "1280tokens",
        "tokenizers": ["bpe:300"],
        "size": "tiny",
        "data": {"split": [0.8, 0.1, 0.1]},
        "train": SETTINGS,
    }
    return make_conditions([str(text)], **(options | changes))  # type: ignore[arg-type]
