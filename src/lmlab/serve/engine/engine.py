"""One engine for each run: a queue of sequences, and a thread that owns the model and generates them.

The thread admits waiting sequences to the batch (batch.py), which is where sequences are generated together, and runs
other jobs with the model between its steps. A request gives the same bytes whatever else is going on: prompts are read
one by one, in pieces at fixed positions, and the rows of a batch do not influence each other.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from lmlab.models.abilities import PredictsNext
from lmlab.serve.engine.batch import SequenceBatch, end_sequence
from lmlab.serve.engine.outbox import Outbox, delay_for
from lmlab.serve.engine.prefill import piece_size
from lmlab.serve.engine.prefix_cache import PREFIX_BYTES, PrefixCache
from lmlab.serve.engine.sequence import Finish, GeneratedSequence
from lmlab.serve.errors import ClosedError, OverloadedError, internal_error, log_error
from lmlab.serve.metrics import Metrics

T = TypeVar("T")


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
        self._batch: SequenceBatch | None = None
        if writer is not None:
            self._batch = SequenceBatch(
                writer,
                name=name,
                rows=rows,
                prefix_cache=self.prefix_cache,
                metrics=self.metrics,
                outbox=self.outbox,
            )
        self._reserved = 0  # places in the queue for requests whose sequences are not made yet
        self._wake = threading.Condition()
        self._closing = self._aborting = False
        self._closed_because = ""
        self.ready = threading.Event()
        self.failed: BaseException | None = None
        self._step_error: Exception | None = None  # raised by an iteration that ran during a job
        self.metrics.watch(
            num_requests_running=lambda: 0 if self._batch is None else len(self._batch.running),
            num_requests_waiting=lambda: len(self._waiting),
            kv_cache_usage_perc=lambda: 0.0 if self._batch is None else self._batch.state_usage,
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
            end_sequence(each, self.metrics, "cancelled")

    @property
    def load(self) -> int:
        """The number of sequences that are running or waiting."""
        return len(self._waiting) + (0 if self._batch is None else self._batch.size)

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
            if self._batch is not None:
                self._batch.prepare()
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
            while not (self._jobs or self.load):
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
        """Remove cancelled sequences, admit those that wait longest while there is room, advance the batch."""
        batch = self._batch
        if batch is None:
            return
        batch.remove_cancelled()
        while batch.size < self.rows and (sequence := self._next_waiting()) is not None:
            batch.admit(sequence)
        batch.advance()
        self.outbox.deliver(after=delay_for(len(batch.running)))

    def _next_waiting(self) -> GeneratedSequence | None:
        with self._wake:
            return self._waiting.popleft() if self._waiting else None

    def _end_all(self, finish: Finish) -> None:
        """End all sequences and jobs that are not finished."""
        with self._wake:
            waiting, self._waiting = self._waiting, deque()
            jobs, self._jobs = self._jobs, deque()
        admitted = [] if self._batch is None else self._batch.sequences
        why = "the server is shutting down" if self.failed is None else internal_error(self.failed).message
        try:
            for sequence in {*waiting, *admitted}:
                if not sequence.finish:
                    sequence.end(finish, why)
        finally:
            self.outbox.deliver()
            for _, future in jobs:
                future.cancel()
