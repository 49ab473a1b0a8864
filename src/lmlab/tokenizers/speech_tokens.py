"""The special tokens of speech models: language, task, and the times of a window.

A target is `<|startoftranscript|> <|en|> <|transcribe|> <|notimestamps|> text <|endoftext|>`, or without the last of
these marks `<|0.00|> text <|2.50|> <|2.50|> text …` (Radford et al. 2022, figure 1). Models of English alone have no
language and task. A model that was trained on other data has none of these marks: its targets are plain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lmlab.config import suggest
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.tokenizer import Tokenizer

START, PLAIN = "<|startoftranscript|>", "<|notimestamps|>"
SILENCE = ("<|nospeech|>", "<|nocaptions|>")
TASKS = ("transcribe", "translate")
LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
TIME_STEP = 0.02
"""Seconds from one time token to the next: one position of the encoder."""
TIMES = 1501
"""Time tokens: 0.00, 0.02, … 30.00 seconds."""
ENGLISH_VOCABULARY = 51_864
"""Tokens of the published models of English alone; the multilingual ones have more."""


@dataclass(frozen=True, kw_only=True)
class SpeechTokens:
    """The ids of the marks that a model's targets have; None and empty where it has none."""

    end: int
    start: int
    plain: int | None = None
    silence: int | None = None
    tasks: Mapping[str, int] = field(default_factory=dict)
    languages: Mapping[str, int] = field(default_factory=dict)
    first_time: int | None = None
    """The token of 0.00 seconds; those of later times follow it."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, frame: Frame, *, vocabulary: int) -> SpeechTokens:
        """The marks of a model with `vocabulary` tokens, by the names of its tokenizer and the slots of its frame."""
        known = tokenizer.engine.get_vocab()
        end = int(frame.row(b=[])["tokens"][-1])
        if START not in known or PLAIN not in known:
            return cls(end=end, start=int(frame.row()["tokens"][0]))
        multilingual = frame.has("language", "tokens")
        tasks = {name: known[f"<|{name}|>"] for name in TASKS if f"<|{name}|>" in known}
        codes = {found[1]: token for text, token in known.items() if (found := LANGUAGE.fullmatch(text))}
        return cls(
            end=end,
            start=known[START],
            plain=known[PLAIN],
            silence=next((known[name] for name in SILENCE if name in known), None),
            tasks=tasks if multilingual else {},
            languages=dict(sorted(codes.items(), key=lambda item: item[1])) if multilingual else {},
            first_time=known[PLAIN] + 1 if vocabulary > known[PLAIN] + 1 else None,
        )

    def prompt(self, *, language: str | None, task: str | None, times: bool) -> list[int]:
        """The tokens with which a target begins; a ValueError for a language or task that the model does not have."""
        prompt = [self.start]
        for name, value, known in (("language", language, self.languages), ("task", task, self.tasks)):
            if value is not None and value not in known:
                plain = {"language": "en", "task": "transcribe"}[name]
                if not known and value == plain:
                    continue
                if not known:
                    raise ValueError(f"{name} = {value!r}: this model has no choice of {name}; leave it out")
                raise ValueError(f"unknown {name} {value!r}{suggest(value, known)}")
            if known and value is not None:
                prompt.append(known[value])
        if times and self.first_time is None:
            raise ValueError("this model was trained without time tokens, so it writes no timestamps; leave them out")
        return prompt if times or self.plain is None else [*prompt, self.plain]


def speech_frame(tokenizer: Tokenizer, *, multilingual: bool, language: str = "en") -> Frame:
    """The frame of a published model: its marks around the text."""
    known = tokenizer.engine.get_vocab()
    names = {"start": START, "language": f"<|{language}|>", "task": "<|transcribe|>", "plain": PLAIN}
    if not multilingual:
        names = {name: names[name] for name in ("start", "plain")}
    if missing := [text for text in names.values() if text not in known]:
        raise ValueError(f"the tokenizer has no token {missing[0]}, so it is not that of a Whisper")
    specials = {**{name: known[text] for name, text in names.items()}, "boundary": tokenizer.boundary}
    return Frame(templates={"tokens": f"{' '.join(names)} b boundary"}, specials={"tokens": specials})
