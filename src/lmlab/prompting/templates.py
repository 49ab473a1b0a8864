"""Prompt templates: a TOML file says how a task becomes a text to continue."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from lmlab.config import Config, build, read_toml, suggest

Normalise = Literal["sum", "length", "prior"]
NORMALISATIONS: tuple[Normalise, ...] = ("sum", "length", "prior")
FIELDS = ("a", "b")


class Template(Config):
    """A task as a text: the prompt, the answers, and how answers are compared."""

    kind: Literal["choose", "write"] = Field(
        description="choose: take the most probable answer; write: compare the text that the model writes"
    )
    reads: Literal["examples", "text", "pairs"] = Field(
        "examples", description="labelled examples; plain text, from which items are made; or lines with a tab"
    )
    makes: Literal["", "last word", "cloze"] = Field("", description="items to make from plain text")
    prompt: str = Field(min_length=1, description="text before the answer; {a} and {b} are the texts")
    answer: str = Field(" {answer}", description="the answer as it follows the prompt, with the space before it")
    separator: str = Field("\n\n", description="text between examples")
    labels: dict[str, str] = Field(default={}, description="the word for each label of the data")
    normalise: Normalise = Field(
        "prior",
        description="sum: log P(answer); length: per token; prior: less log P(answer) after `prior` only",
    )
    prior: str = Field("", description="a prompt without the item, for the answer's prior")
    tokens: int = Field(16, ge=1, le=1024, description="maximum tokens of a written answer")
    stop: list[str] = Field(default=["\n"], description="strings before which an answer ends")
    first_word: bool = Field(False, description="use only the first word that the model writes")
    bleu: bool = Field(False, description="also compute BLEU")

    @field_validator("prompt", "prior")
    @classmethod
    def _fields_are_known(cls, text: str) -> str:
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        except ValueError as error:
            raise ValueError(f"{error}; write {{{{ for a brace itself") from None
        if unknown := [name for name in names if name not in FIELDS]:
            raise ValueError(f"{{{unknown[0]}}} is not known; the texts of an example are {{a}} and {{b}}")
        return text

    @model_validator(mode="after")
    def _consistent(self) -> Template:
        if "{answer}" not in self.answer:
            raise ValueError("answer must contain {answer}")
        if (self.reads == "text") != bool(self.makes):
            raise ValueError('makes = "last word" or "cloze" goes with reads = "text"')
        return self

    def asks(self, fields: dict[str, str]) -> str:
        """The prompt of an item, without examples."""
        return self.prompt.format(**{name: fields.get(name, "") for name in FIELDS})

    def answers(self, answer: str) -> str:
        """An answer as text after a prompt."""
        return self.answer.replace("{answer}", answer)

    def word_for(self, label: str) -> str:
        """The word for a label of the data."""
        return self.labels.get(label, label.replace("_", " "))


FOLDER = Path(__file__).with_name("builtin")
BUILTIN = {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def find_template(name: str) -> Template:
    """Find a built-in template by name, or read one from a TOML file."""
    if name in BUILTIN:
        return build(Template, read_toml(BUILTIN[name]), where=name)
    path = Path(name).expanduser()
    if not path.suffix and not path.exists():
        raise ValueError(f"unknown task {name!r}{suggest(name, BUILTIN)}; or give a TOML file")
    return build(Template, read_toml(path), where=path.name)
