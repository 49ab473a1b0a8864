"""How a task is put as a text to be continued: a TOML file."""

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
    """A task as a text: what stands before an answer, what the answers are, and how they are told apart."""

    kind: Literal["choose", "write"] = Field(
        description="choose: the answer of which the model is surest; write: what it writes is compared"
    )
    reads: Literal["examples", "text", "pairs"] = Field(
        "examples", description="labelled examples; plain text, from which items are made; or lines with a tab"
    )
    makes: Literal["", "last word", "cloze"] = Field("", description="what is made of plain text")
    prompt: str = Field(min_length=1, description="what stands before the answer; {a} and {b} are the texts")
    answer: str = Field(" {answer}", description="the answer as it follows the prompt, with the space before it")
    separator: str = Field("\n\n", description="what stands between an example and the next")
    labels: dict[str, str] = Field(default={}, description="the word for each label of the data")
    normalise: Normalise = Field(
        "prior",
        description="sum: log P(answer); length: per token; prior: less log P(answer) after `prior` alone",
    )
    prior: str = Field("", description="a prompt that says nothing but what kind of answer comes")
    tokens: int = Field(16, ge=1, le=1024, description="tokens of an answer that is written, at most")
    stop: list[str] = Field(default=["\n"], description="strings before which an answer ends")
    first_word: bool = Field(False, description="only the first word of what is written counts")
    bleu: bool = Field(False, description="also tell the BLEU of what is written")

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
            raise ValueError("answer must say where the answer stands: {answer}")
        if (self.reads == "text") != bool(self.makes):
            raise ValueError('makes = "last word" or "cloze" goes with reads = "text"')
        return self

    def asks(self, fields: dict[str, str]) -> str:
        """The prompt of an item, without examples."""
        return self.prompt.format(**{name: fields.get(name, "") for name in FIELDS})

    def answers(self, answer: str) -> str:
        """An answer as it follows a prompt."""
        return self.answer.replace("{answer}", answer)

    def word_for(self, label: str) -> str:
        """The word for a label of the data."""
        return self.labels.get(label, label.replace("_", " "))


FOLDER = Path(__file__).with_name("builtin")
BUILTIN = {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def find_template(name: str) -> Template:
    """A built-in template by its name, or that of a TOML file."""
    if name in BUILTIN:
        return build(Template, read_toml(BUILTIN[name]), where=name)
    path = Path(name).expanduser()
    if not path.suffix and not path.exists():
        raise ValueError(f"unknown task {name!r}{suggest(name, BUILTIN)}; or give a TOML file")
    return build(Template, read_toml(path), where=path.name)
