"""Units of data (tokens, examples, images …): amounts and speeds, and bits per byte."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

PER_SECOND = "_per_second"


def main_unit(units: Mapping[str, float]) -> str:
    """Return the unit of budgets and displays: tokens if they are counted, else the first."""
    return "tokens" if "tokens" in units else next(iter(units), "tokens")


def describe_units(units: Mapping[str, float]) -> str:
    """Return amounts in words: `1,200 examples, 9,600 tokens`."""
    return ", ".join(f"{count:,} {name}" for name, count in (units or {"tokens": 0}).items())


def read_speed(line: Mapping[str, Any]) -> tuple[str, float] | None:
    """Return the unit of a line of metrics.jsonl and the units read per second; None if the line has no speed."""
    for name, rate in line.get("cost", {}).items():
        if name.endswith(PER_SECOND) and rate:
            return name.removesuffix(PER_SECOND), rate
    return None


def training_seconds(line: Mapping[str, Any]) -> float:
    """Return the seconds of training alone at a line of metrics.jsonl; of everything, if it has no speed."""
    unit, rate = read_speed(line) or ("", 0.0)
    return float(line[unit] / rate if rate else line["cost"]["seconds"])


def parse_bytes(text: str) -> int:
    """Return the bytes of an amount of memory: `512M`, `2G`, `1.5GB`; a ValueError where it is not one."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT])B?\s*", text, re.IGNORECASE)
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r} is no amount of memory; give a number with K, M or G, such as 512M or 2G")
    return int(float(match[1]) * 1000.0 ** (1 + "kmgt".index(match[2].lower())))


def format_bytes(size: float) -> str:
    """Return an amount of memory in words: `1.5 GB`."""
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1000
        if size < 999.5:
            return f"{size:.3g} {unit}"
    return f"{size / 1000:,.3g} PB"


def bits_per_byte(nats: float, bytes_: float) -> float:
    """Return nats / (ln 2 · bytes of UTF-8), for a whole text, or for one token with its mean number of bytes."""
    return nats / math.log(2) / bytes_
