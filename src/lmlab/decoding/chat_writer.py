"""Chats: the next message of a conversation, by a model that was fine-tuned with a chat template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import tokenizers as hf

from lmlab.decoding.sampling import Sampling
from lmlab.decoding.writer import Writer
from lmlab.tokenizers.chat_template import ChatTemplate, ChatTemplateError, Messages
from lmlab.tokenizers.frames import NO_BOUNDARY, Frame

AS_IT_IS = Frame(templates=dict(NO_BOUNDARY))
"""Nothing is put around a prompt: the template writes every special token itself."""
FIRST, SECOND = "lmlabfirstmark", "lmlabsecondmark"


class EndOfTurn(NamedTuple):
    """By what a message of the assistant ends: tokens, or else strings."""

    tokens: frozenset[int]
    strings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChatWriter:
    """A model that continues texts, as one that answers the messages of a conversation."""

    plain: Writer
    """The model as one that continues any text."""
    template: ChatTemplate

    @cached_property
    def writer(self) -> Writer:
        """What continues a rendered conversation, and ends with the assistant's message."""
        return replace(self.plain, frame=AS_IT_IS, ends=self.end_of_turn.tokens)

    def encode(self, messages: str | Messages) -> list[int]:
        """The tokens of a conversation up to the assistant's next message, as `transformers` encodes them.

        A string is one message of the user.
        A ValueError is raised if they leave no room for an answer in the model's window.
        """
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        ids = self._encode(self.template.render(given))
        if not ids:
            raise ChatTemplateError("the chat template writes nothing for these messages")
        window = self.plain.model.window
        if window is not None and len(ids) >= window:
            raise ValueError(
                f"the conversation has {len(ids):,} tokens, and the model reads at most {window:,} with its answer: "
                "leave out earlier messages, or begin a new conversation"
            )
        return ids

    def room(self, ids: Sequence[int], tokens: int) -> int:
        """How many of `tokens` new tokens fit into the model's window after a conversation."""
        window = self.plain.model.window
        return tokens if window is None else min(tokens, window - len(ids))

    def stream(
        self,
        messages: str | Messages,
        *,
        sampling: Sampling,
        tokens: int,
        samples: int = 1,
        stop: str | Sequence[str] = (),
    ) -> Iterator[list[str]]:
        """The assistant's next message piece by piece as the tokens come: each time one string per sample.

        It ends where the model ends the message, before a `stop` string, after `tokens` tokens, or where the window is
        full.
        """
        ids = self.encode(messages)
        stops = [*([stop] if isinstance(stop, str) else stop), *self.end_of_turn.strings]
        room = self.room(ids, tokens)
        return self.writer.stream(ids, sampling=sampling, tokens=room, samples=samples, stop=stops)

    def reply(
        self,
        messages: str | Messages,
        *,
        sampling: Sampling,
        tokens: int,
        samples: int = 1,
        stop: str | Sequence[str] = (),
    ) -> list[str]:
        """The assistant's next message, `samples` times."""
        texts = [""] * samples
        for pieces in self.stream(messages, sampling=sampling, tokens=tokens, samples=samples, stop=stop):
            texts = [text + piece for text, piece in zip(texts, pieces, strict=True)]
        return texts

    @cached_property
    def end_of_turn(self) -> EndOfTurn:
        """What the template writes after a message of the assistant: the first added token there, and `eos_token`.

        Where it writes no such token, a message ends before the text that leads to the next one.
        """
        names = [name for role, name in self.template.special_tokens.items() if role == "eos_token"]
        own = {token for name in names if (token := self._engine.token_to_id(name)) is not None}
        added = self._engine.get_added_tokens_decoder()
        between = self._between()
        after = next((token for token in self._encode(between) if token in added), None)
        if after is not None:
            return EndOfTurn(frozenset({*own, after}))
        lead = between.rstrip()
        return EndOfTurn(frozenset(own), (lead,) if lead else ())

    def _between(self) -> str:
        """What the template writes between a message of the assistant and the next one; nothing where it fails."""
        messages = [("user", "Hello"), ("assistant", FIRST), ("user", SECOND)]
        try:
            text = self.template.render(
                [{"role": role, "content": content} for role, content in messages], add_generation_prompt=False
            )
        except ChatTemplateError:
            return ""
        return text.partition(FIRST)[2].partition(SECOND)[0]

    @cached_property
    def _engine(self) -> hf.Tokenizer:
        """The tokenizer, for which the names of special tokens in a text are those tokens."""
        engine = hf.Tokenizer.from_str(self.plain.tokenizer.engine.to_str())
        engine.encode_special_tokens = False
        return engine

    def _encode(self, text: str) -> list[int]:
        try:
            ids: list[int] = self._engine.encode(text, add_special_tokens=False).ids
        except (UnicodeEncodeError, TypeError):
            raise ChatTemplateError(
                "the messages contain half of a surrogate pair, which is not Unicode text; leave that character out"
            ) from None
        return ids
