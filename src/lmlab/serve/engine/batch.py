"""The server's batch: the sequences that are generated together (continuous batching).

A sequence is admitted, its prompt is read in pieces (prefill.py), it joins the batch, gets one token at each step, and
leaves the batch when it ends. Others join and leave at any step, and do not change its bits (batch_state.py).
Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import NamedTuple

from torch import Tensor

from lmlab.decoding.chain_rule import score_next
from lmlab.decoding.generate import length_after_reread
from lmlab.decoding.sampling import sample_each
from lmlab.layers.kernels.linear import prepare
from lmlab.models.abilities import PredictsNext, State
from lmlab.serve.engine.batch_state import BatchState, fewest_rows, state_usage
from lmlab.serve.engine.outbox import Outbox, delay_for
from lmlab.serve.engine.prefill import prefill, score_prompt
from lmlab.serve.engine.prefix_cache import Prefilled, PrefixCache
from lmlab.serve.engine.sequence import Finish, GeneratedSequence, OutputPiece
from lmlab.serve.errors import NotANumberError, internal_error, log_error
from lmlab.serve.metrics import Metrics

PREFILL_TOKENS = 256
"""Tokens of prompts that are read between two steps of the batch."""


class Prefill(NamedTuple):
    """A sequence whose prompt is being read: the generator yields after each piece."""

    sequence: GeneratedSequence
    work: Generator[int, None, Prefilled | None]


class SequenceBatch:
    """Up to `rows` sequences of one model; all methods are for the engine's thread."""

    def __init__(
        self,
        writer: PredictsNext,
        *,
        name: str,
        rows: int,
        prefix_cache: PrefixCache,
        metrics: Metrics,
        outbox: Outbox,
    ) -> None:
        self.writer, self.name, self.rows = writer, name, rows
        self.prefix_cache, self.metrics, self.outbox = prefix_cache, metrics, outbox
        self.running: list[GeneratedSequence] = []
        self._next: list[int] = []  # the token that each running sequence reads in the next step
        self._state = BatchState(writer)
        self._prefills: deque[Prefill] = deque()
        self._joining: list[tuple[GeneratedSequence, State]] = []

    def prepare(self) -> None:
        """Prepare the weights for fast products, and find the minimum number of rows of a step."""
        prepare(self.writer)
        self._state = BatchState(self.writer, fewest=fewest_rows(self.writer, most=self.rows))

    @property
    def sequences(self) -> list[GeneratedSequence]:
        """All sequences that were admitted and have not left."""
        reading = [each.sequence for each in self._prefills]
        return [*reading, *(sequence for sequence, _ in self._joining), *self.running]

    @property
    def size(self) -> int:
        """The number of sequences that were admitted and have not left."""
        return len(self._prefills) + len(self._joining) + len(self.running)

    @property
    def state_usage(self) -> float:
        """The fraction of the room for states in use."""
        return state_usage(self.writer, [len(each.context) - 1 for each in self.running], rows=self.rows)

    def remove_cancelled(self) -> None:
        """Remove the running sequences that were cancelled."""
        cancelled = [row for row, each in enumerate(self.running) if each.cancelled]
        for row in cancelled:
            end_sequence(self.running[row], self.metrics, "cancelled")
        self._leave(cancelled)

    def admit(self, sequence: GeneratedSequence) -> None:
        """Begin to read the prompt of a sequence; there must be room for it."""
        self.metrics.queue_time.observe(time.monotonic() - sequence.arrived)
        self.metrics.prompt_tokens.inc(len(sequence.prompt))
        self._prefills.append(Prefill(sequence, self._prefill(sequence)))

    def advance(self) -> None:
        """Read some pieces of prompts, let sequences with a finished prompt join, and make one step of the batch."""
        self._read_prompts()
        if self._joining:
            self._join()
        if self.running:
            self._step()

    def _prefill(self, sequence: GeneratedSequence) -> Generator[int, None, Prefilled | None]:
        """Score the prompt if asked for, and read it if tokens are to be generated."""
        if sequence.prompt_top is not None:
            scores = yield from score_prompt(
                self.writer,
                sequence.prompt,
                self.prefix_cache,
                top=sequence.prompt_top,
                opening=sequence.opening,
                unknown=sequence.unknown,
            )
            sequence.send(OutputPiece(prompt=scores))
        if sequence.tokens == 0:
            return None
        return (yield from prefill(self.writer, sequence.prompt, self.prefix_cache))

    def _read_prompts(self) -> None:
        """Read some pieces of prompts; sequences whose prompt is finished get their first token."""
        done = 0
        while self._prefills and done < PREFILL_TOKENS:
            current = self._prefills[0]
            sequence = current.sequence
            try:
                if sequence.cancelled:
                    self._prefills.popleft()
                    end_sequence(sequence, self.metrics, "cancelled")
                    continue
                try:
                    done += next(current.work)
                except StopIteration as end:
                    self._prefills.popleft()
                    self._begin_writing(sequence, end.value)
            except Exception as error:  # of this one request, such as a token that the model does not have
                if self._prefills and self._prefills[0] is current:
                    self._prefills.popleft()
                if not sequence.finish:
                    self._fail(sequence, error)

    def _begin_writing(self, sequence: GeneratedSequence, prefilled: Prefilled | None) -> None:
        """Choose the first token after a prompt; then the sequence joins the batch, unless its window is full."""
        if prefilled is None:
            end_sequence(sequence, self.metrics, "length")
            return
        self._add_tokens([sequence], prefilled.logits)
        if sequence.finish:
            return
        window = self.writer.window
        if window is not None and len(sequence.context) - 1 >= window:
            self._reread(sequence, window)
        else:
            self._joining.append((sequence, prefilled.state))

    def _reread(self, sequence: GeneratedSequence, window: int) -> None:
        """Drop a full window and read its last half again, like `decoding.generate.StatefulReader`."""
        sequence.context = sequence.context[-length_after_reread(window) :]
        no_cache = PrefixCache(self.prefix_cache.piece, capacity=0)
        self._prefills.append(Prefill(sequence, prefill(self.writer, sequence.context, no_cache)))

    def _join(self) -> None:
        """Add sequences whose prompts were read, with their states."""
        self._state.join([state for _, state in self._joining])
        self.running += [sequence for sequence, _ in self._joining]
        self._next += [sequence.context[-1] for sequence, _ in self._joining]
        self._joining = []

    def _leave(self, rows: Sequence[int]) -> None:
        """Remove running sequences: those that have ended, were cancelled, or have a full window."""
        if rows:
            index = self._state.leave(rows)
            self.running = [self.running[row] for row in index]
            self._next = [self._next[row] for row in index]

    def _step(self) -> None:
        """Generate the next token of each running sequence; those that have ended leave the batch."""
        self._add_tokens(self.running, self._state.step(self._next))
        self._next = [sequence.context[-1] for sequence in self.running]
        gone, window = [], self.writer.window
        for row, sequence in enumerate(self.running):
            if sequence.finish:
                gone.append(row)
            elif window is not None and len(sequence.context) > window:
                self._reread(sequence, window)
                gone.append(row)
        self._leave(gone)

    def _add_tokens(self, sequences: Sequence[GeneratedSequence], logits: Tensor) -> None:
        """Choose the next token of each sequence by its logits [B, V] and send it; NaN or infinity end a sequence."""
        finite = logits.amax(-1).isfinite()  # NaN if one of them is
        if not finite.all():
            for row in (~finite).nonzero().flatten().tolist():
                self._fail(sequences[row], NotANumberError(self.name))
            sequences, logits = [each for each in sequences if not each.finish], logits[finite]
            if not sequences:
                return
        chosen = sample_each(logits, [each.sampler for each in sequences])
        now = time.monotonic()
        for row, (sequence, token) in enumerate(zip(sequences, chosen, strict=True)):
            scored = None
            if sequence.top is not None:
                (scored,) = score_next(logits[row : row + 1], [token], top=sequence.top)
            first = sequence.written == 0
            sequence.add(token, scored)
            self.metrics.generation_tokens.inc()
            if first:
                self.metrics.first_token.observe(now - sequence.arrived)
            else:
                self.metrics.between_tokens.observe(now - sequence.last_token_at)
            sequence.last_token_at = now
            if sequence.finish:
                count_sequence(sequence, self.metrics)
        self.outbox.deliver(after=delay_for(len(sequences)))

    def _fail(self, sequence: GeneratedSequence, error: Exception) -> None:
        """End a sequence with an internal error."""
        log_error(error, self.name)
        end_sequence(sequence, self.metrics, "error", internal_error(error).message)


def end_sequence(sequence: GeneratedSequence, metrics: Metrics, finish: Finish, error: str = "") -> None:
    """End a sequence without another token, and count it."""
    sequence.end(finish, error)
    count_sequence(sequence, metrics)


def count_sequence(sequence: GeneratedSequence, metrics: Metrics) -> None:
    """Count a sequence that has ended in the metrics."""
    seconds = time.monotonic() - sequence.arrived
    metrics.finished(sequence.finish, seconds=seconds, prompt=len(sequence.prompt), written=sequence.written)
