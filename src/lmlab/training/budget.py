"""Budgets of training: an amount of time, tokens, steps, epochs or FLOPs, and how much of it is spent."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from lmlab.training.progress import TrainingProgress

UNITS = {
    "s": ("seconds", 1.0),
    "sec": ("seconds", 1.0),
    "seconds": ("seconds", 1.0),
    "m": ("seconds", 60.0),
    "min": ("seconds", 60.0),
    "minutes": ("seconds", 60.0),
    "h": ("seconds", 3600.0),
    "hours": ("seconds", 3600.0),
    "token": ("tokens", 1.0),
    "tokens": ("tokens", 1.0),
    "example": ("examples", 1.0),
    "examples": ("examples", 1.0),
    "image": ("images", 1.0),
    "images": ("images", 1.0),
    "step": ("steps", 1.0),
    "steps": ("steps", 1.0),
    "epoch": ("epochs", 1.0),
    "epochs": ("epochs", 1.0),
    "flops": ("flops", 1.0),
}
PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf(?:inity)?|nan)"
PATTERN = re.compile(rf"\s*({NUMBER})\s*([A-Za-z]*)\s*", re.IGNORECASE)
LARGEST = {"seconds": 1e10, "epochs": 1e9, "flops": 1e30}
"""The largest budget of a unit; of all others, `MOST_COUNTED`."""
MOST_COUNTED = 2**53
"""Whole numbers up to which a float is exact."""
HOW = (
    "write a time (90s, 10min, 2h), tokens (5Mtokens), steps (300steps), epochs (3epochs) or FLOPs (2e13flops), "
    "with a number above zero"
)


class Budget(NamedTuple):
    """An amount of one unit: seconds, tokens, steps, epochs or flops."""

    amount: float
    unit: str

    def steps(
        self,
        *,
        units_per_step: Mapping[str, float],
        steps_per_epoch: float,
        flops_per_step: float,
        flops_before: float = 0.0,
    ) -> int | None:
        """The number of whole steps that it pays for; None for a budget in time."""
        if self.unit == "seconds":
            return None
        step = {**units_per_step, "steps": 1.0, "epochs": 1 / steps_per_epoch, "flops": flops_per_step}
        if self.unit not in step:
            raise ValueError(
                f"a budget of {self.amount:g} {self.unit}: what is learnt from here has no {self.unit}; "
                f"give {', '.join(step)} or a time"
            )
        before = flops_before if self.unit == "flops" else 0.0
        if self.amount <= before:
            raise ValueError(
                f"a budget of {self.amount:g} flops does not pay for reading the examples once, which costs "
                f"{before:g} flops; raise --budget"
            )
        paid = (self.amount - before) / step[self.unit]
        if paid > MOST_COUNTED:
            raise ValueError(
                f"a budget of {self.amount:g} {self.unit} pays for {paid:g} steps, more than can be counted; "
                "lower --budget"
            )
        count = math.floor(paid + 1e-9)
        if count < 1:
            raise ValueError(
                f"a budget of {self.amount:g} {self.unit} does not pay for one step, which costs "
                f"{step[self.unit]:g} {self.unit}; raise --budget, or lower train.batch or train.window"
            )
        return count


class BudgetTracker:
    """How much of a budget a run has spent: steps, or seconds of training if the budget is a time."""

    def __init__(self, budget: Budget, steps: int | None, progress: TrainingProgress) -> None:
        """`steps` is how many the budget pays for; None for a budget in time."""
        self.budget, self.steps, self.progress = budget, steps, progress

    def fraction(self) -> float:
        """The fraction that is spent; it may be slightly above 1 if the last step was slow."""
        if self.steps is None:
            return self.progress.seconds / self.budget.amount
        return self.progress.step / self.steps

    def is_spent(self) -> bool:
        """Whether it does not pay for another step (of a budget in time: a step of average length)."""
        if self.steps is None:
            return self.progress.seconds * (1 + 1 / max(1, self.progress.step)) > self.budget.amount
        return self.progress.step >= self.steps


def parse_budget(text: str) -> Budget:
    """Read `90s`, `10min`, `5Mtokens`, `300steps`, `3epochs` or `2e13flops`."""
    match = PATTERN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"budget {text!r} is not understood; {HOW}")
    number, unit = float(match[1]), match[2]
    if not math.isfinite(number):
        raise ValueError(f"budget {text!r} is not a finite number; {HOW}")
    prefix, name = _split_unit(unit)
    if name is None:
        raise ValueError(_explain_unit(text, match[1], unit))
    kind, factor = UNITS[name]
    amount = number * PREFIXES[prefix] * factor
    most = LARGEST.get(kind, MOST_COUNTED)
    if amount > most:
        raise ValueError(f"budget {text!r} is too large: give at most {most:g} {kind}; {HOW}")
    if amount <= 0:
        raise ValueError(f"a budget of {text!r} buys nothing; {HOW}")
    if kind == "steps" and amount != int(amount):
        raise ValueError(f"a budget of {text!r}: steps must be a whole number")
    return Budget(amount, kind)


def check_epochs(epochs: float | None) -> None:
    """Raise a ValueError if a number of epochs is given that is not above zero or not finite."""
    if epochs is None:
        return
    if isinstance(epochs, bool) or not isinstance(epochs, (int, float)) or not 0 < epochs <= LARGEST["epochs"]:
        raise ValueError(f"epochs = {epochs!r}: give a number above 0 and at most {LARGEST['epochs']:g}")


def _split_unit(unit: str) -> tuple[str, str | None]:
    """The prefix and the name of a unit, `("M", "tokens")`; the name is None if the unit is not known.

    A bare `M` is not accepted: it could be minutes or millions.
    """
    for prefix in ("", unit[:1]):
        name = unit.removeprefix(prefix).lower()
        if name in UNITS and prefix in PREFIXES and (prefix == "" or UNITS[name][0] != "seconds") and unit != "M":
            return prefix, name
    return "", None


def _explain_unit(text: str, number: str, unit: str) -> str:
    """The error message for an unknown unit of a budget."""
    if unit == "M":
        return (
            f"budget {text!r} may mean minutes or millions: write {number}min for minutes, and {number}Mtokens, "
            f"{number}Mexamples or {number}Mflops for millions"
        )
    if unit in PREFIXES:
        what = f"a number and {unit}" if unit else "a number alone"
        return (
            f"budget {text!r} is {what}: say of what, for instance {number}{unit}tokens or {number}{unit}steps; {HOW}"
        )
    return f"budget {text!r} is not understood; {HOW}"
