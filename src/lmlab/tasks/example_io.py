"""The forms in which examples come in and predictions go out: texts of a user to an example, a prediction to JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from lmlab.data.readers.examples import Answer, Example
from lmlab.data.readers.strict_text import shorten
from lmlab.tasks.task import Prediction, Task

SEVERAL = "put several texts into a file, one per line, and give the file"


def is_pair(task: Task) -> bool | None:
    """Whether the examples of a task are two texts; None where they may be one or two."""
    if task.name in ("classification", "regression"):
        pair: bool | None = getattr(task.config, "pair", None)
        return pair
    return task.name == "spans"


def split_words(text: str) -> tuple[str, ...]:
    """The words of a sentence with punctuation apart, as tagged corpora have them; abbreviations stay whole (U.S.)."""
    found: list[str] = []
    for word in text.split():
        before, core, after = re.fullmatch(r"([(\[{\"“‘]*)(.*?)([.,;:!?)\]}\"”’…]*)", word, re.S).groups()  # type: ignore[union-attr]
        if not core or "." in core:
            before, core, after = "", word, ""
        found += [*before, core, *after]
    return tuple(found)


def as_task_reads(task: Task, text: str | Sequence[str]) -> str | tuple[str, ...]:
    """A text as a task reads it: where words are tagged, those of a sentence; a list is of words already."""
    if isinstance(text, str):
        return split_words(text) if task.name == "tagging" else text
    return tuple(text)


def make_example(task: Task, texts: Sequence[str]) -> Example:
    """The texts that a user gave for one example, in their order; a ValueError says what is needed instead."""
    texts, count = list(texts), len(texts)
    if not count:
        raise ValueError("there is nothing to predict: give a text")
    if task.name == "tagging":
        return Example(split_words(" ".join(texts)))
    if task.name == "choice":
        if count < 3:
            raise ValueError(f"a question with {count - 1} choice(s): give it with two choices or more")
        return Example(texts[0], choices=tuple(texts[1:]))
    if task.name == "spans":
        if count != 2:
            raise ValueError(f"{_number(count)} given: a question and the text in which its answer stands are needed")
        return Example(texts[0], texts[1])
    pair = is_pair(task)
    if pair is False and count > 1:
        raise ValueError(f"this run reads one text, and {_number(count)} given: {SEVERAL}")
    if pair and count != 2:
        raise ValueError(f"this run reads the two texts of a pair, and {_number(count)} given: give two")
    if count > 2:
        raise ValueError(f"{_number(count)} given: give one, or the two of a pair; {SEVERAL}")
    return Example(texts[0], texts[1] if count > 1 else None)


def check_examples(task: Task, examples: Iterable[Example]) -> None:
    """A ValueError where an example has not the form that a task reads."""
    for example in examples:
        if needed := _find_fault(task.name, example):
            raise ValueError(f"{example.where or shorten(_shown(example.a))}: {needed}")


def describe(example: Example, prediction: Prediction) -> dict[str, Any]:
    """An example and what was said of it, by name, as JSON has it."""
    found: dict[str, Any] = {"text": example.a}
    if example.b is not None:
        found["second"] = example.b
    if example.choices:
        found["choices"] = example.choices
    found |= {"predicted": prediction.value, "probability": prediction.probability}
    if prediction.scores:
        found["scores"] = dict(prediction.scores)
    if prediction.span is not None:
        found["span"] = prediction.span
    if prediction.left_out is not None:
        found["left_out"] = prediction.left_out
    return found


def to_json(example: Example, prediction: Prediction) -> str:
    """A prediction as a line of JSON."""
    return json.dumps(describe(example, prediction), ensure_ascii=False)


def to_json_with_truth(example: Example, prediction: Prediction) -> str:
    """A prediction as a line of JSON, with what is true beside it: null where that is not known."""
    return json.dumps({**describe(example, prediction), "true": truth_of(example)}, ensure_ascii=False)


def truth_of(example: Example) -> Any:
    """What is true of an example, as metrics compare it: of answers their texts; None where it has no label."""
    label = example.label
    if isinstance(label, tuple) and all(isinstance(each, Answer) for each in label):
        return [each.text for each in label]
    return label


def _find_fault(task: str, example: Example) -> str | None:
    """What an example of a task needs and has not."""
    words = not isinstance(example.a, str)
    if task == "tagging":
        if not words or not all(isinstance(word, str) for word in example.a):
            return "tagging reads the words of a sentence: give a list of words, each a str"
        return None
    if words:
        return f"{task} reads a text: give it as a str"
    if example.b is not None and not isinstance(example.b, str):
        return "the second text must be a str"
    if task == "choice":
        if len(example.choices) < 2 or not all(isinstance(each, str) for each in example.choices):
            return "a question needs two choices or more, each a str: give choices=(…, …)"
    elif example.choices:
        return f"{task} reads no choices: leave them out"
    if task == "spans" and example.b is None:
        return "a question needs the text in which its answer stands: give it as the second text"
    return None


def _shown(text: Any) -> str:
    return text if isinstance(text, str) else " ".join(map(str, text)) if isinstance(text, (tuple, list)) else str(text)


def _number(count: int) -> str:
    return "1 text is" if count == 1 else f"{count} are"
