"""One engine for each run: a thread that owns the model and generates all sequences together, step by step.

Each iteration admits waiting sequences, reads some pieces of their prompts (prefill.py), and makes one step of the
batch (batch.py). A request gives the same bytes whatever else is going on: prompts are read one by one, in pieces at
fixed positions, and the rows of a batch do not influence each other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from lmlab.decoding.chain_rule import score_next
from lmlab.decoding.generate import length_after_reread
from lmlab.decoding.sampling import sample_each
from lmlab.layers.kernels.linear import prepare
from lmlab.models.abilities import PredictsNext, State
from lmlab.serve.batch import BatchState, RunningBatch, fewest_rows, state_usage
from lmlab.serve.errors import ClosedError, NotANumberError, OverloadedError, internal_error, log_error
from lmlab.serve.metrics import Metrics
from lmlab.serve.outbox import Outbox, delay_for
from lmlab.serve.prefill import piece_size, prefill, score_prompt
from lmlab.serve.prefix_cache import PREFIX_BYTES, Prefilled, PrefixCache
from lmlab.serve.sequence import Finish, GeneratedSequence, Piece

PREFILL_TOKENS = 256
"""Tokens of prompts that are read between two steps of the batch."""

T = TypeVar("T")


class Prefill(NamedTuple):
    """A sequence whose prompt is being read: the generator yields after each piece."""

    sequence: GeneratedSequence
    work: Generator[int, None, Prefilled | None]


class Engine:
    """Generates sequences with a model that predicts the next token, and runs other jobs with it, all in one thread."""

    def __init__(
        self,
        model: object,
        *,
        name: str = "the model",
        rows: int = 32,
        queue: int = 1024,
        prefix_bytes: int = PREFIX_BYTES,
        writer: PredictsNext | None = None,
        threads: int | None = None,
    ) -> None:
        self.model, self.writer, self.name = model, writer, name
        self.rows, self.queue = rows, queue
        self.threads = threads
        """Threads of the computation; None for PyTorch's default."""
        self.metrics, self.outbox = Metrics(name), Outbox()
        piece = 1 if writer is None else piece_size(writer)
        self.prefix_cache = PrefixCache(piece, capacity=prefix_bytes, metrics=self.metrics)
        self._waiting: deque[GeneratedSequence] = deque()
        self._jobs: deque[tuple[Callable[[Callable[[], None]], Any], Future[Any]]] = deque()
        self._prefills: deque[Prefill] = deque()
        self._joining: list[tuple[GeneratedSequence, State]] = []
        self._batch: RunningBatch | None = None  # made in the engine's thread
        self._reserved = 0  # places in the queue for requests whose sequences are not made yet
        self._wake = threading.Condition()
        self._closing = self._aborting = False
        self._closed_because = ""
        self.ready = threading.Event()
        self.failed: BaseException | None = None
        self._step_error: Exception | None = None  # raised by an iteration that ran during a job
        self.metrics.watch(
            num_requests_running=lambda: len(self._running),
            num_requests_waiting=lambda: len(self._waiting),
            kv_cache_usage_perc=self._state_usage,
            prefix_cache_bytes=lambda: self.prefix_cache.bytes,
        )
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    # Methods for other threads

    def submit(self, sequences: Sequence[GeneratedSequence], *, reserved: int = 0) -> None:
        """Queue sequences, all or none: an `OverloadedError` if the queue has no room for them.

        `reserved` is the number of places that were reserved for them, by `reserve`.
        """
        with self._wake:
            self._check_open()
            if self._taken - reserved + len(sequences) > self.queue:
                self._drop_cancelled()
            if self._taken - reserved + len(sequences) > self.queue:
                raise OverloadedError
            self._waiting.extend(sequences)
            self._wake.notify()

    @property
    def is_full(self) -> bool:
        """Whether a new sequence would be refused; answered immediately, whatever the engine is doing."""
        if self._taken < self.queue:
            return False
        with self._wake:
            self._drop_cancelled()
            return self._taken >= self.queue

    @property
    def _taken(self) -> int:
        """Places in the queue that are taken or reserved."""
        return len(self._waiting) + self._reserved

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Reserve a place in the queue while a request is checked and its sequences are made.

        An `OverloadedError` at once if there is none, so that a refusal costs almost nothing.
        """
        with self._wake:
            self._check_open()
        if self.is_full:
            raise OverloadedError
        with self._wake:
            self._reserved += 1
        try:
            yield
        finally:
            with self._wake:
                self._reserved -= 1

    def call(self, function: Callable[[Callable[[], None]], T]) -> Future[T]:
        """Run a job with the model in the engine's thread; it gets a function `pause` to call now and then.

        Each call of `pause` lets the running sequences make a step.
        """
        future: Future[T] = Future()
        with self._wake:
            self._check_open()
            if len(self._jobs) >= self.queue:
                raise OverloadedError
            self._jobs.append((function, future))
            self._wake.notify()
        return future

    def _drop_cancelled(self) -> None:
        """Remove cancelled sequences from the queue."""
        gone = [each for each in self._waiting if each.cancelled]
        self._waiting = deque(each for each in self._waiting if not each.cancelled)
        for each in gone:
            self._finish(each, "cancelled")

    @property
    def _running(self) -> list[GeneratedSequence]:
        return [] if self._batch is None else self._batch.sequences

    def _state_usage(self) -> float:
        return state_usage(self.writer, [len(each.context) - 1 for each in self._running], rows=self.rows)

    @property
    def load(self) -> int:
        """The number of sequences that are running or waiting."""
        return len(self._waiting) + len(self._prefills) + len(self._running) + len(self._joining)

    def stop(self, why: str = "the server is shutting down") -> None:
        """Accept nothing more; accepted sequences are finished."""
        with self._wake:
            self._closing, self._closed_because = True, why
            self._wake.notify()

    def close(self, *, within: float = 0.0) -> None:
        """Accept nothing more, and abort what is not finished after `within` seconds."""
        self.stop()
        self._thread.join(within)
        self.abort()
        self._thread.join(10.0)

    def abort(self) -> None:
        """End all sequences at the next step."""
        with self._wake:
            self._closing = self._aborting = True
            self._wake.notify()

    def _check_open(self) -> None:
        if self.failed is not None:
            raise ClosedError(internal_error(self.failed).message)
        if self._closing:
            raise ClosedError(self._closed_because)

    # The engine's own thread

    @torch.inference_mode()
    def _run(self) -> None:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            if self.writer is not None:
                prepare(self.writer)
                state = BatchState(self.writer, fewest=fewest_rows(self.writer, most=self.rows))
                self._batch = RunningBatch(state)
            self.ready.set()
            while self._wait():
                self._run_job()
                self._iterate()
        except BaseException as error:
            self.failed = error
            self.ready.set()
            log_error(error, f"the engine of {self.name} has ended")
        finally:
            self._closing = True
            self._end_all("error" if self.failed else "cancelled")

    def _wait(self) -> bool:
        """Sleep until there is something to do; False when it is time to end."""
        with self._wake:
            while not (self._waiting or self._jobs or self._prefills or self._running or self._joining):
                if self._closing:
                    return False
                self._wake.wait()
            return not self._aborting

    def _run_job(self) -> None:
        """Run one of the other jobs, if there is one."""
        with self._wake:
            if not self._jobs:
                return
            function, future = self._jobs.popleft()
        if not future.set_running_or_notify_cancel():
            return
        self.outbox.deliver()  # the job may take a while
        try:
            future.set_result(function(self._pause))
        except Exception as error:
            future.set_exception(error)
        if self._step_error is not None:
            raise self._step_error

    def _pause(self) -> None:
        """Let the sequences make a step; an error of theirs ends the engine after the job, which gets a ClosedError."""
        if self._step_error is None:
            try:
                self._iterate()
            except Exception as error:
                self._step_error = error
        if self._step_error is not None:
            raise ClosedError(internal_error(self._step_error).message)

    def _iterate(self) -> None:
        """Remove cancelled sequences, admit waiting ones, read some of their prompts, make one step of the batch."""
        batch = self._batch
        if batch is None:
            return
        cancelled = [row for row, each in enumerate(batch.sequences) if each.cancelled]
        for row in cancelled:
            self._finish(batch.sequences[row], "cancelled")
        batch.leave(cancelled)
        self._admit()
        self._read_prompts()
        if self._joining:
            batch.join(self._joining)
            self._joining = []
        if len(batch):
            self._step(batch)
        self.outbox.deliver(after=delay_for(len(batch)))

    def _admit(self) -> None:
        """Begin to read the prompts of the sequences that wait longest, while there are free rows."""
        while len(self._running) + len(self._prefills) + len(self._joining) < self.rows:
            with self._wake:
                if not self._waiting:
                    return
                sequence = self._waiting.popleft()
            self.metrics.queue_time.observe(time.monotonic() - sequence.arrived)
            self.metrics.prompt_tokens.inc(len(sequence.prompt))
            self._prefills.append(Prefill(sequence, self._prefill(sequence)))

    def _prefill(self, sequence: GeneratedSequence) -> Generator[int, None, Prefilled | None]:
        """Score the prompt if asked for, and read it if tokens are to be generated."""
        assert self.writer is not None
        if sequence.prompt_top is not None:
            scores = yield from score_prompt(
                self.writer,
                sequence.prompt,
                self.prefix_cache,
                top=sequence.prompt_top,
                opening=sequence.opening,
                unknown=sequence.unknown,
            )
            sequence.send(Piece(prompt=scores))
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
                    self._finish(sequence, "cancelled")
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
        assert self.writer is not None
        if prefilled is None:
            self._finish(sequence, "length")
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
        """Drop a full window and read its last half again, like `decoding.generate.Reader`."""
        assert self.writer is not None
        sequence.context = sequence.context[-length_after_reread(window) :]
        no_cache = PrefixCache(self.prefix_cache.piece, capacity=0)
        self._prefills.append(Prefill(sequence, prefill(self.writer, sequence.context, no_cache)))

    def _step(self, batch: RunningBatch) -> None:
        """Generate the next token of each sequence of the batch; those that have ended leave it."""
        assert self.writer is not None
        self._add_tokens(batch.sequences, batch.step())
        batch.advance()
        gone, window = [], self.writer.window
        for row, sequence in enumerate(batch.sequences):
            if sequence.finish:
                gone.append(row)
            elif window is not None and len(sequence.context) > window:
                self._reread(sequence, window)
                gone.append(row)
        batch.leave(gone)

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
                self._count(sequence)
        self.outbox.deliver(after=delay_for(len(sequences)))

    def _fail(self, sequence: GeneratedSequence, error: Exception) -> None:
        """End a sequence with an internal error."""
        log_error(error, self.name)
        self._finish(sequence, "error", internal_error(error).message)

    def _finish(self, sequence: GeneratedSequence, finish: Finish, error: str = "") -> None:
        sequence.end(finish, error)
        self._count(sequence)

    def _count(self, sequence: GeneratedSequence) -> None:
        seconds = time.monotonic() - sequence.arrived
        self.metrics.finished(sequence.finish, seconds=seconds, prompt=len(sequence.prompt), written=sequence.written)

    def _end_all(self, finish: Finish) -> None:
        """End all sequences and jobs that are not finished."""
        with self._wake:
            waiting, self._waiting = self._waiting, deque()
            jobs, self._jobs = self._jobs, deque()
        others = [each.sequence for each in self._prefills] + [each for each, _ in self._joining]
        why = "the server is shutting down" if self.failed is None else internal_error(self.failed).message
        try:
            for sequence in {*waiting, *others, *self._running}:
                if not sequence.finish:
                    sequence.end(finish, why)
        finally:
            self.outbox.deliver()
            for _, future in jobs:
                future.cancel()
