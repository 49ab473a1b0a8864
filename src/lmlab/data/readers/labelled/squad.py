"""Questions whose answers are spans of a context: SQuAD 1.1 and 2.0, and flat records of the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lmlab.data.readers.examples import Answer, Example, ExampleReader, NoLabelsError
from lmlab.data.readers.files import shorten
from lmlab.data.readers.labelled.tables import ParsedTable, parse_json
from lmlab.parsing import load_json

FLAT = ("question", "context")


class SquadQuestion(NamedTuple):
    """A question of a file."""

    name: str
    text: str
    context: str
    texts: Sequence[str]
    starts: Sequence[int]
    impossible: bool
    line: int = 0


class SquadReader(ExampleReader):
    """Reads SQuAD's nested JSON, and lists or lines of objects with question, context and answers."""

    task = "spans"

    def __init__(self, source: str, text: str) -> None:
        super().__init__()
        questions = list(read_questions(source, text))
        self.columns = {"a": "question", "b": "context", "label": "answers"}
        unanswered = any(question.impossible for question in questions)
        self.format = f"SQuAD {'2.0' if unanswered else '1.1'}"
        self._unanswered = unanswered

    def read(self, source: str, text: str) -> list[Example]:
        """Return the questions of a file; each answer is checked to be at its position."""
        examples: list[Example] = []
        for question in read_questions(source, text):
            if not question.text.strip() or not question.context.strip():
                self.skipped["no text"] += 1
                continue
            if not question.texts and not question.impossible:
                raise NoLabelsError(
                    f"{_where(question, source, text)} has no answer, and does not say is_impossible; "
                    f"give it an answer, or say that it has none"
                )
            if question.impossible and not self._unanswered:
                raise ValueError(
                    f"{_where(question, source, text)} has no answer, but every training question has one; "
                    f"train with such questions too"
                )
            if not question.impossible and (why := _find_fault(question)) is not None:
                raise ValueError(f"{_where(question, source, text)}: {why}; correct answer_start")
            answers = tuple(map(Answer, question.texts, question.starts)) if not question.impossible else ()
            examples.append(
                Example(question.text.strip(), question.context, (), answers, question.name, source, question.line)
            )
        return examples


def is_squad(text: str) -> bool:
    """Whether JSON holds questions about contexts."""
    try:
        whole = load_json(text)
    except json.JSONDecodeError:
        whole = None
    if isinstance(whole, dict) and isinstance(whole.get("data"), list):
        return any(isinstance(item, dict) and ("paragraphs" in item or _is_flat(item)) for item in whole["data"][:1])
    if isinstance(whole, list):
        return bool(whole) and isinstance(whole[0], dict) and ("paragraphs" in whole[0] or _is_flat(whole[0]))
    first = next((line for line in text.split("\n") if line.strip()), "")
    try:
        record = load_json(first)
    except json.JSONDecodeError:
        return False
    return isinstance(record, dict) and _is_flat(record)


def read_questions(source: str, text: str) -> Iterator[SquadQuestion]:
    """Yield the questions of a file, in order."""
    try:
        whole = load_json(text)
    except json.JSONDecodeError:
        whole = None  # lines
    items = whole.get("data") if isinstance(whole, dict) else whole
    found = False
    if isinstance(items, list) and items and isinstance(items[0], dict) and "paragraphs" in items[0]:
        versioned = '"is_impossible"' in text
        for article in items:
            for paragraph in _listed(article, "paragraphs", source):
                for entry in _listed(paragraph, "qas", source):
                    found = True
                    yield _read_entry(entry, paragraph, source, versioned=versioned)
    else:
        table = parse_json(source, text)
        for row, line in zip(table.rows, table.lines, strict=True):
            found = True
            yield _read_flat(table, row, line)
    if not found:
        raise ValueError(f"{source} contains no question; give SQuAD's JSON: data, paragraphs, qas")


def _read_entry(entry: Any, paragraph: Any, source: str, *, versioned: bool) -> SquadQuestion:
    for name, record in (("question", entry), ("context", paragraph)):
        if not isinstance(record.get(name), str):
            raise ValueError(f"{source}, question {entry.get('id', '?')}: there is no {name}; give SQuAD's JSON")
    answers = entry.get("answers") or []
    try:
        texts, starts = [str(one["text"]) for one in answers], [int(one["answer_start"]) for one in answers]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{source}, question {entry.get('id', '?')}: an answer has a text and an answer_start (a number); "
            f"found {shorten(answers)}"
        ) from None
    impossible = bool(entry.get("is_impossible")) if versioned else False
    return SquadQuestion(str(entry.get("id", "")), entry["question"], paragraph["context"], texts, starts, impossible)


def _read_flat(table: ParsedTable, row: Sequence[Any], line: int) -> SquadQuestion:
    cells = dict(zip(table.names or (), row, strict=True))
    where = f"{table.source}, line {line}"
    for name in FLAT:
        if not isinstance(cells.get(name), str):
            raise ValueError(f"{where}: there is no {name}; give question, context and answers")
    texts, starts = cells.get("answers.text"), cells.get("answers.answer_start")
    if isinstance(listed := cells.get("answers"), list):
        texts = [one.get("text") for one in listed if isinstance(one, dict)]
        starts = [one.get("answer_start") for one in listed if isinstance(one, dict)]
    if isinstance(cells.get("answer_start"), int):
        texts, starts = [cells.get("answer", cells.get("answer_text"))], [cells["answer_start"]]
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise ValueError(f'{where}: there are no answers; give "answers": {{"text": […], "answer_start": […]}}')
    name = str(cells.get("id") or "")
    return SquadQuestion(name, cells["question"], cells["context"], list(map(str, texts)), starts, not texts, line)


def _find_fault(question: SquadQuestion) -> str | None:
    """Return what is wrong with the position of an answer; None if all are right."""
    for text, start in zip(question.texts, question.starts, strict=True):
        if not isinstance(start, int):
            return f"answer_start is {shorten(start)}, and must be a number"
        found = question.context[start : start + len(text)] if start >= 0 else ""
        if found != text or not text:
            other = question.context.find(text) if text else -1
            hint = f"it is at {other}" if other >= 0 else "it is not in it"
            instead = f", where there is {shorten(found)}" if found else ""
            return f"the answer {shorten(text)} is not at character {start} of its context{instead}; {hint}"
    return None


def _where(question: SquadQuestion, source: str, text: str) -> str:
    """Return the line of a question, for messages; in nested JSON it is found by its id."""
    line = question.line
    if question.name and not line and (position := text.find(json.dumps(question.name))) >= 0:
        line = text.count("\n", 0, position) + 1
    return f"{source}, line {line}" + (f", question {question.name}" if question.name else "")


def _listed(record: Any, name: str, source: str) -> list[Any]:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError(f"{source}: {name} must be a list of objects, as in SQuAD's JSON; found {shorten(value)}")
    return value


def _is_flat(record: dict[str, Any]) -> bool:
    return all(name in record for name in FLAT) and ("answers" in record or "answer_start" in record)
