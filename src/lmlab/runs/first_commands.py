"""Commands to try with a trained model, with prompts from its own validation text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from lmlab.data.corpora.corpus import Corpus
from lmlab.models import find
from lmlab.models.descriptions import DESCRIPTIONS
from lmlab.objectives import TASKS, load_objective

WORDS = 4
LONGEST = 32
"""Characters of a prompt, at most; half of them for a text without spaces."""
BEGINNING = 200
"""Tokens of the training text from which a prompt is taken if no text was held out."""


BACKWARD_COMMANDS = ("lmlab score {run} FILE", "lmlab embed {run} FILE -o out.npy")
"""Commands for a model that predicts the previous token, which cannot continue a text."""


def next_commands(kind: str, corpus: Corpus, objective: Mapping[str, Any]) -> tuple[str, ...]:
    """Commands to try with a model that was trained by an objective, in the language of its text.

    {run} is its folder.
    """
    if objective["kind"] in TASKS:
        commands: tuple[str, ...] = load_objective(objective["kind"]).example_commands(pair=bool(objective.get("pair")))
        return commands
    if objective.get("backwards"):
        return BACKWARD_COMMANDS
    if corpus.sequence_tokenizer is not None:
        return corpus.sequence_tokenizer.examples()
    commands = DESCRIPTIONS[find(kind).does[0]].commands
    if not any("{prompt}" in command or "{masked}" in command for command in commands):
        return commands
    prompt = first_words(_beginning(corpus))
    before = prompt.rpartition(" ")[0]
    fillings = {
        "{prompt}": shlex.quote(prompt),
        "{masked}": shlex.quote(f"{before} [MASK]" if before else f"{prompt}[MASK]"),
    }
    for name, value in fillings.items():
        commands = tuple(command.replace(name, value) for command in commands)
    return commands


def _beginning(corpus: Corpus) -> str:
    if corpus.valid is not None:
        return next((text for text in corpus.valid.texts() if isinstance(text, str) and text.strip()), "")
    return corpus.text_tokenizer.decode(corpus.train.as_text().tokens[1:BEGINNING].tolist())


def first_words(text: str) -> str:
    """A few words from the beginning of a text, in one line: of the first line that has several, if there is one."""
    lines = [words for line in text[:5000].splitlines() if (words := _readable(line))]
    words = next((each for each in lines if len(each) >= WORDS), lines[0] if lines else [])
    if len(words) == 1 and len(words[0]) > LONGEST // 2:
        return words[0][: LONGEST // 2]  # a language without spaces
    while len(words) > 1 and len(" ".join(words[:WORDS])) > LONGEST:
        words = words[:WORDS][:-1]
    return " ".join(words[:WORDS])[:LONGEST]


def _readable(line: str) -> list[str]:
    """The words of a line, without what a terminal would not show."""
    return "".join(sign if sign.isprintable() else " " for sign in line).split()
