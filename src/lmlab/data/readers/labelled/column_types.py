"""The type of a column, by its values: names of classes, numbers, texts, or row numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

MOST_CLASSES = 20
"""The largest number of different whole numbers that count as classes, not as scores."""
MOST_LABELS = 500
LONGEST_LABEL = 60
WORDS_OF_LABEL = 3
MOST_ODD = 0.1
"""The largest fraction of cells of a column of numbers that are neither numbers nor missing."""
MISSING = frozenset({"nan", "na", "n/a", "#n/a", "null", "none", "-", "?", "inf", "+inf", "-inf"})
"""The lowercase values that tables have for a missing number."""
LARGEST_SCORE = 1e30
"""The largest score that can be trained on: squares of differences must be finite in 32 bits."""
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")


def clean(value: Any) -> str:
    """Return a cell as text; "" for an empty cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip()


def as_number(value: Any, *, comma: bool = False) -> float | None:
    """Return the number in a cell, or None; with `comma` the decimals may follow a comma."""
    text = clean(value)
    if comma and DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def has_decimal_commas(values: Iterable[Any]) -> bool:
    """Whether the numbers of a column have their decimals after a comma: some have, and none after a point.

    If all of them could be thousands (1,250), they are not read as decimals.
    """
    filled = {text for value in values if (text := clean(value))}
    with_comma = {text for text in filled if DECIMAL_COMMA.fullmatch(text)}
    if not with_comma or all(THOUSANDS.fullmatch(text) for text in with_comma):
        return False
    return not any("." in text and as_number(text) is not None for text in filled)


def are_numbers(values: Iterable[Any]) -> bool:
    """Whether every cell that is not empty holds a number, and some do."""
    filled = {text for value in values if (text := clean(value))}
    comma = has_decimal_commas(filled)
    return bool(filled) and all(as_number(text, comma=comma) is not None for text in filled)


def are_mostly_numbers(values: Iterable[Any]) -> bool:
    """Whether almost all cells that are not empty hold numbers; a few may be missing (`nan`) or typing errors."""
    filled = [text for value in values if (text := clean(value))]
    numbers = sum(as_number(text, comma=True) is not None for text in filled)
    missing = sum(text.lower() in MISSING for text in filled)
    return numbers * 2 > len(filled) and len(filled) - numbers - missing <= MOST_ODD * len(filled)


def are_classes(values: Iterable[Any]) -> bool:
    """Whether numbers are classes: whole, and few different ones."""
    numbers = {number for value in values if (number := as_number(value, comma=True)) is not None}
    return len(numbers) <= MOST_CLASSES and all(number.is_integer() for number in numbers)


def are_scores(values: Sequence[Any]) -> bool:
    """Whether almost all cells are numbers and some have decimals; whole numbers may count something else."""
    numbers = (as_number(value, comma=True) for value in values)
    return are_mostly_numbers(values) and any(number is not None and not number.is_integer() for number in numbers)


def are_row_numbers(values: Sequence[Any]) -> bool:
    """Whether cells only number the rows: whole numbers, each once."""
    texts = [clean(value) for value in values]
    return len(texts) > 2 and len(set(texts)) == len(texts) and all(text.isdigit() for text in texts)


def look_like_labels(values: Sequence[Any]) -> bool:
    """Whether cells are names of classes: short and repeated."""
    filled = [text for value in values if (text := clean(value))]
    different = set(filled)
    return (
        bool(different)
        and len(different) <= min(MOST_LABELS, max(2, len(filled) // 2))
        and all(len(text) <= LONGEST_LABEL for text in different)
        and sum(len(text.split()) for text in different) <= WORDS_OF_LABEL * len(different)
    )


def look_like_text(values: Sequence[Any]) -> bool:
    """Whether most cells are texts of several words."""
    filled = [text for value in values if (text := clean(value))]
    return bool(filled) and not are_numbers(filled) and sum(" " in text for text in filled) * 3 >= len(filled)


def name_class(value: Any) -> str:
    """Return the name of a class; a whole number that a spreadsheet wrote as `5.0` is 5."""
    text = clean(value)
    number = as_number(text) if text.endswith("0") and "." in text else None
    return str(int(number)) if number is not None and number.is_integer() else text
