"""Items of a task, from labelled examples, from pairs of texts, or made from plain text."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lmlab.data.readers.examples import Answer, Example
from lmlab.data.readers.labelled import read_labelled
from lmlab.parsing import load_json
from lmlab.prompting.templates import Template

PASSAGE = 30
"""Minimum words of a passage made from plain text."""
CHOICES = 5
"""Words to choose from in a cloze."""


class PromptItem(NamedTuple):
    """One question to the model, with its correct answer."""

    fields: dict[str, str]
    candidates: tuple[str, ...]  # to choose from; empty if the model writes the answer
    answer: Any  # the number of the correct candidate, or the correct texts
    example: Example | None = None  # its source, for fine-tuned runs

    @property
    def content(self) -> tuple[str, ...]:
        """The texts of the item without its answer, with white space normalised: equal for equal items."""
        choices = self.example.choices if self.example is not None else ()
        return tuple(" ".join(text.split()) for text in (self.fields["a"], self.fields["b"], *choices))

    @property
    def shown(self) -> str:
        """The correct answer, as shown in an example."""
        return str(self.candidates[self.answer] if self.candidates else self.answer[0])


class PromptItems(NamedTuple):
    """Items to answer, and the pool from which examples are sampled."""

    asked: list[PromptItem]
    pool: list[PromptItem]


def read_items(template: Template, data: str | Path, *, test: str | Path | None = None, seed: int = 0) -> PromptItems:
    """Read the items of a file. Without held-out items, the items to answer are also the pool of examples."""
    path = Path(data).expanduser()
    if template.reads == "examples":
        return _from_examples(template, path, test)
    if not path.is_file():
        raise ValueError(f"{path} is not a file; give one {'of plain text' if template.makes else 'with pairs'}")
    if template.reads == "pairs":
        pool = [_pair(line, number, path) for number, line in enumerate(_lines(path), start=1) if line.strip()]
        held_out = None if test is None else [_pair(line, 0, Path(test)) for line in _lines(Path(test)) if line.strip()]
        return PromptItems(held_out or pool, pool)
    texts = list(_texts(path))
    make = _last_words if template.makes == "last word" else _clozes
    items = make(texts, random.Random(seed))
    if not items:
        raise ValueError(f"{path} has no passage of {PASSAGE} words or more to make items from, or too few words")
    return PromptItems(items, items)


def _from_examples(template: Template, path: Path, test: str | Path | None) -> PromptItems:
    labelled = read_labelled(path, test=test)
    train = labelled.train
    held_out = labelled.test or labelled.valid or train
    if any(example.label is None for example in held_out):  # GLUE's test sets come without
        held_out = labelled.valid or train
    names = sorted({str(example.label) for example in train if isinstance(example.label, str)})
    pool = [_item(template, example, names) for example in train]
    asked = pool if held_out is train else [_item(template, example, names) for example in held_out]
    return PromptItems(asked, pool)


def _item(template: Template, example: Example, names: Sequence[str]) -> PromptItem:
    a = " ".join(example.a) if isinstance(example.a, tuple) else example.a
    fields = {"a": a, "b": example.b or ""}
    if template.kind == "write":
        labels = example.label if isinstance(example.label, tuple) else (str(example.label),)
        right = tuple(each.text if isinstance(each, Answer) else str(each) for each in labels)
        return PromptItem(fields, (), right or ("",), example)
    if example.choices:
        return PromptItem(fields, example.choices, int(example.label), example)
    if not names or not isinstance(example.label, str):
        raise ValueError("the answers to choose from are classes or choices; these examples have none of them")
    words = tuple(map(template.word_for, names))
    if len(set(words)) < len(words):
        raise ValueError(
            f"the labels {', '.join(names)} need different words, but have {', '.join(words)}; correct [labels]"
        )
    return PromptItem(fields, words, names.index(example.label), example)


def _pair(line: str, number: int, path: Path) -> PromptItem:
    source, tab, target = line.partition("\t")
    if not tab:
        raise ValueError(f"{path}, line {number}: no tab between the two texts")
    return PromptItem({"a": source.strip(), "b": ""}, (), (target.strip(),))


def _last_words(texts: Iterable[str], dice: random.Random) -> list[PromptItem]:
    """Passages without their last word, as in LAMBADA (Paperno et al. 2016)."""
    found = []
    for text in texts:
        if (cut := re.fullmatch(r"(?s)(.*\S)\s+(\w[\w'’-]*)[^\w\s]*\s*", text)) is not None:
            found.append(PromptItem({"a": cut[1], "b": ""}, (), (cut[2],)))
    return found


def _clozes(texts: Iterable[str], dice: random.Random) -> list[PromptItem]:
    """Passages with a word removed, and other words of the same text to choose from (Hill et al. 2016)."""
    passages = [text for text in texts if len(text.split()) >= 8]
    counts = Counter(word for text in passages for word in re.findall(r"\b[^\W\d_]{4,}\b", text))
    ranked = [word for word, _ in counts.most_common()]
    position = {word: number for number, word in enumerate(ranked)}
    found = []
    for text in passages:
        words = [each for each in re.finditer(r"\b[^\W\d_]{4,}\b", text) if each.start() > len(text) // 2]
        if not words:
            continue
        removed = dice.choice(words)
        near = [
            word for word in ranked[max(0, position[removed[0]] - 20) : position[removed[0]] + 21] if word != removed[0]
        ]
        if len(near) < CHOICES - 1:
            continue
        choices = [removed[0], *dice.sample(near, CHOICES - 1)]
        dice.shuffle(choices)
        before, after = text[: removed.start()].rstrip(), text[removed.end() :]
        found.append(
            PromptItem({"a": before, "b": ""}, tuple(f"{word}{after}" for word in choices), choices.index(removed[0]))
        )
    return found


def _texts(path: Path) -> Iterable[str]:
    """The passages of a file: the texts of JSON lines, or a few sentences of plain text each."""
    if path.suffix == ".jsonl":
        for number, line in enumerate(_lines(path), start=1):
            try:
                yield str(load_json(line)["text"])
            except (ValueError, KeyError, TypeError):
                raise ValueError(f'{path}, line {number}: no JSON object with a "text"') from None
        return
    for paragraph in re.split(r"\n\s*\n", "\n".join(_lines(path))):
        passage: list[str] = []
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())):
            passage.append(sentence)
            if sum(len(each.split()) for each in passage) >= PASSAGE:
                yield " ".join(passage)
                passage = []


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # JSON may hold other ends of lines, such as U+2028
        return lines if lines[-1] else lines[:-1]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from None
