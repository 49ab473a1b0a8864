"""What a column holds, told from its values: names of classes, numbers, texts, or the numbers of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

MOST_CLASSES = 20
"""Different whole numbers up to which a column of them holds classes, and not scores."""
MOST_LABELS = 500
LONGEST_LABEL = 60
WORDS_OF_LABEL = 3


def clean(value: Any) -> str:
    """A cell as text; nothing where there is nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip()


def as_number(value: Any) -> float | None:
    """The number that a cell holds; None where it holds none."""
    text = clean(value)
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def are_numbers(values: Iterable[Any]) -> bool:
    """Whether every cell that is not empty holds a number, and some do."""
    filled = {text for value in values if (text := clean(value))}
    return bool(filled) and all(as_number(text) is not None for text in filled)


def are_classes(values: Iterable[Any]) -> bool:
    """Whether numbers are classes: whole, and few different ones."""
    numbers = {number for value in values if (number := as_number(value)) is not None}
    return len(numbers) <= MOST_CLASSES and all(number.is_integer() for number in numbers)


def are_scores(values: Sequence[Any]) -> bool:
    """Whether cells are numbers with decimals: whole ones may number something else."""
    return are_numbers(values) and any(not number.is_integer() for value in values if (number := as_number(value)))


def are_row_numbers(values: Sequence[Any]) -> bool:
    """Whether cells only number the rows: whole numbers, each once."""
    texts = [clean(value) for value in values]
    return len(texts) > 2 and len(set(texts)) == len(texts) and all(text.isdigit() for text in texts)


def look_like_labels(values: Sequence[Any]) -> bool:
    """Whether cells are names of classes: short, and each comes again."""
    filled = [text for value in values if (text := clean(value))]
    different = set(filled)
    return (
        bool(different)
        and len(different) <= min(MOST_LABELS, max(2, len(filled) // 2))
        and all(len(text) <= LONGEST_LABEL for text in different)
        and sum(len(text.split()) for text in different) <= WORDS_OF_LABEL * len(different)
    )


def look_like_text(values: Sequence[Any]) -> bool:
    """Whether cells are texts: several words, on the whole."""
    filled = [text for value in values if (text := clean(value))]
    return bool(filled) and not are_numbers(filled) and sum(" " in text for text in filled) * 3 >= len(filled)


def name_class(value: Any) -> str:
    """The name of a class; a whole number that a spreadsheet wrote as `5.0` is 5."""
    text = clean(value)
    number = as_number(text) if text.endswith("0") and "." in text else None
    return str(int(number)) if number is not None and number.is_integer() else text
