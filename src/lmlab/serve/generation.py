"""The texts of one request while the engine generates them.

The engine runs in its own thread. It sends pieces of output (`OutputPiece`) to a `PieceQueue` in the event loop of the
web server, and `Generation` adds them to the choices of the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple

from lmlab.serve.engine.outbox import Outbox
from lmlab.serve.engine.sequence import GeneratedSequence, OutputPiece
from lmlab.serve.errors import APIError
from lmlab.serve.planning import GenerationPlan
from lmlab.serve.responses import CompletionChoice, PromptScores, best, format_prompt_scores

MOST_UNREAD = 2**15
"""Pieces that may wait for a slow client; at this number its sequences are cancelled."""
MOST_AT_ONCE = 64
"""Maximum number of pieces that are sent to a client together."""


class PieceQueue:
    """The output of a request's sequences: filled from the engine's thread, read in the event loop of the request."""

    def __init__(self, outbox: Outbox) -> None:
        self.sequences: list[GeneratedSequence] = []
        self._outbox, self._loop = outbox, asyncio.get_running_loop()
        self._pieces: asyncio.Queue[tuple[int, OutputPiece]] = asyncio.Queue()

    def send(self, number: int, piece: OutputPiece) -> None:
        """Send a piece of the sequence with this number through the outbox; called in the engine's thread."""
        put = partial(self._put, number, piece)
        self._outbox.put(self._loop, put, urgent=piece.token is None or bool(piece.finish))

    def _put(self, number: int, piece: OutputPiece) -> None:
        while piece.error and not self._pieces.empty():  # an error is sent before everything else
            self._pieces.get_nowait()
        self._pieces.put_nowait((number, piece))
        if self._pieces.qsize() == MOST_UNREAD:
            self.cancel()

    async def receive(self) -> list[tuple[int, OutputPiece]]:
        """Wait for the next piece; return it with those that are there already, each with its sequence's number."""
        received = [await self._pieces.get()]
        while not self._pieces.empty() and len(received) < MOST_AT_ONCE:
            received.append(self._pieces.get_nowait())
        return received

    def cancel(self) -> None:
        """Cancel all sequences of the request."""
        for sequence in self.sequences:
            sequence.cancel()


class Delta(NamedTuple):
    """The new part of a choice, in the format of /v1/completions, with the number of its sequence."""

    number: int
    choice: dict[str, Any]


class Generation:
    """The choices of a request, one for each sequence, to which pieces are added as they arrive."""

    def __init__(self, plan: GenerationPlan, queue: PieceQueue) -> None:
        self.plan, self.queue = plan, queue
        self._choices = [CompletionChoice(plan, prompt) for prompt in plan.prompts for _ in range(plan.best_of)]
        self._prompt_scores: dict[int, PromptScores] = {}  # by the number of the prompt
        self._held_back: dict[
            int, list[tuple[int, OutputPiece]]
        ] = {}  # pieces that wait for the scores of their prompt

    async def deltas(self) -> AsyncIterator[list[Delta]]:
        """Add pieces to the choices until all sequences have ended; yields the new parts."""
        unfinished = len(self._choices)
        while unfinished:
            ready: list[Delta] = []
            for number, piece in await self.queue.receive():
                _check(piece)
                for each, released in await self._in_order(number, piece):
                    ready.append(self._add(each, released))
                    unfinished -= bool(released.finish)
            if ready:
                yield ready

    async def _in_order(self, number: int, piece: OutputPiece) -> list[tuple[int, OutputPiece]]:
        """The pieces that can be added now: those of a scored prompt are held back until its scores are there.

        The scores of a prompt are sent with its first sequence, and the other sequences may be faster.
        """
        prompt = number // self.plan.best_of
        if piece.prompt is not None:
            text = self.plan.prompts[prompt]
            scores = await asyncio.to_thread(format_prompt_scores, self.plan, text, piece.prompt)
            self._prompt_scores[prompt] = scores
            return [(number, piece), *self._held_back.pop(prompt, [])]
        if self.plan.prompt_top is not None and prompt not in self._prompt_scores:
            self._held_back.setdefault(prompt, []).append((number, piece))
            return []
        return [(number, piece)]

    def _add(self, number: int, piece: OutputPiece) -> Delta:
        choice = self._choices[number]
        choice.prompt_scores = self._prompt_scores.get(number // self.plan.best_of)
        delta = choice.add(piece)
        if piece.prompt is not None and self.plan.prompt_logprobs is not None:
            delta["prompt_logprobs"] = choice.prompt_logprobs()
        return Delta(number, delta)

    async def choices(self) -> list[dict[str, Any]]:
        """Wait for the end of all sequences; the `n` best choices of each prompt."""
        async for _ in self.deltas():
            pass
        found: list[dict[str, Any]] = []
        for first in range(0, len(self._choices), self.plan.best_of):
            group = best(self._choices[first : first + self.plan.best_of], self.plan.n)
            found += [choice.whole(len(found) + position) for position, choice in enumerate(group)]
        return found

    def usage(self) -> dict[str, int]:
        """The field `usage`: the number of tokens read and generated so far."""
        read = sum(len(prompt.ids) for prompt in self.plan.prompts)
        generated = sum(len(choice.ids) for choice in self._choices)
        return {"prompt_tokens": read, "completion_tokens": generated, "total_tokens": read + generated}


def _check(piece: OutputPiece) -> None:
    """Raise the error of a sequence that has failed or was cancelled."""
    if piece.error:
        raise APIError(piece.error, status=503 if piece.finish == "cancelled" else 500)
    if piece.finish == "cancelled":
        raise APIError(f"the stream is read too slowly: {MOST_UNREAD} pieces wait to be sent", status=503)
