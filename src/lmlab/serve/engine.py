"""One engine for each run: a thread that owns the model and continues all texts together, step by step.

Texts join and leave at every step. Prompts are read alone, a few pieces between two steps, and then join. The same
request gives the same bytes whatever else is going on: see company.py and reading.py for why.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from lmlab.decoding.sampling import draw_each
from lmlab.layers.kernels.linear import prepare
from lmlab.models.abilities import PredictsNext, State
from lmlab.serve.batch import Company, fewest_rows, room_in_use
from lmlab.serve.errors import ClosedError, NotANumberError, OverloadedError, internal_error, log_error
from lmlab.serve.metrics import Metrics
from lmlab.serve.outbox import Post, patience_for
from lmlab.serve.prefill import PREFIX_BYTES, Prefixes, Read, next_of, piece_of, read_prompt, score_prompt, surprisals
from lmlab.serve.sequence import Continuation, Piece

READ = 256
"""Tokens of prompts that are read between two steps of those that are being written."""

T = TypeVar("T")


class Engine:
    """Continues texts with a model that predicts the next token, and does other work with it, all in one thread."""

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
        """Of the computation; as many as PyTorch has by itself where it is None."""
        self.metrics, self.post = Metrics(name), Post()
        self.prefixes = Prefixes(1 if writer is None else piece_of(writer), room=prefix_bytes, metrics=self.metrics)
        self._inbox: deque[Continuation] = deque()
        self._jobs: deque[tuple[Callable[[Callable[[], None]], Any], Future[Any]]] = deque()
        self._reading: deque[tuple[Continuation, Generator[int, None, Read | None]]] = deque()
        self._running: list[Continuation] = []
        self._joining: list[tuple[Continuation, State]] = []
        self._tokens: list[int] = []  # the next to be read, of each that is running
        self._company: Company | None = None
        self._promised = 0  # places in the queue for requests whose texts are not made yet
        self._wake = threading.Condition()
        self._closing = self._cutting = False
        self._why = ""
        self.ready = threading.Event()
        self.failed: BaseException | None = None
        self._broken: Exception | None = None  # what a step raised while a job let the texts go on
        self.metrics.watch(
            num_requests_running=lambda: len(self._running),
            num_requests_waiting=lambda: len(self._inbox),
            kv_cache_usage_perc=lambda: room_in_use(writer, [len(text.held) - 1 for text in self._running], rows=rows),
            prefix_cache_bytes=lambda: self.prefixes.bytes,
        )
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    # What other threads call

    def submit(self, texts: Sequence[Continuation], *, kept: int = 0) -> None:
        """Take texts to continue, all or none: an `OverloadedError` where the queue has no room for them.

        `kept` says how many places were kept for them, by `place`.
        """
        with self._wake:
            self._check_open()
            if self._taken - kept + len(texts) > self.queue:
                self._drop_cancelled()
            if self._taken - kept + len(texts) > self.queue:
                raise OverloadedError
            self._inbox.extend(texts)
            self._wake.notify()

    @property
    def is_full(self) -> bool:
        """Whether a text that came now would be refused; told at once, whatever the engine is doing."""
        if self._taken < self.queue:
            return False
        with self._wake:
            self._drop_cancelled()
            return self._taken >= self.queue

    @property
    def _taken(self) -> int:
        """Places in the queue that are taken, or kept for requests that are being read."""
        return len(self._inbox) + self._promised

    @contextmanager
    def place(self) -> Iterator[None]:
        """Keep a place in the queue while a request is read and its texts are made: an `OverloadedError` at once where
        there is none, so that who is refused costs nearly nothing."""
        with self._wake:
            self._check_open()
        if self.is_full:
            raise OverloadedError
        with self._wake:
            self._promised += 1
        try:
            yield
        finally:
            with self._wake:
                self._promised -= 1

    def call(self, function: Callable[[Callable[[], None]], T]) -> Future[T]:
        """Do something with the model in its thread; the function is given one to call now and then.

        That lets the texts go on which are being written meanwhile.
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
        """Give the places of those that were cancelled while they waited to others."""
        gone = [text for text in self._inbox if text.cancelled]
        self._inbox = deque(text for text in self._inbox if not text.cancelled)
        for text in gone:
            self._finish(text, "cancelled")

    @property
    def load(self) -> int:
        """How many texts are being written or wait."""
        return len(self._inbox) + len(self._reading) + len(self._running) + len(self._joining)

    def stop(self, why: str = "the server is shutting down") -> None:
        """Take nothing more; what was taken goes on."""
        with self._wake:
            self._closing, self._why = True, why
            self._wake.notify()

    def close(self, *, within: float = 0.0) -> None:
        """Take nothing more; what is not finished `within` so many seconds is cut off."""
        self.stop()
        self._thread.join(within)
        self.cut()
        self._thread.join(10.0)

    def cut(self) -> None:
        """Cut off what is not finished, at the next step."""
        with self._wake:
            self._closing = self._cutting = True
            self._wake.notify()

    def _check_open(self) -> None:
        if self.failed is not None:
            raise ClosedError(internal_error(self.failed).message)
        if self._closing:
            raise ClosedError(self._why)

    # The engine's own thread

    @torch.inference_mode()
    def _run(self) -> None:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            if self.writer is not None:
                prepare(self.writer)
                self._company = Company(self.writer, fewest=fewest_rows(self.writer, most=self.rows))
            self.ready.set()
            while self._wait():
                self._work()
                self._turn()
        except BaseException as error:
            self.failed = error
            self.ready.set()
            log_error(error, f"the engine of {self.name} has ended")
        finally:
            self._closing = True
            self._cut("error" if self.failed else "cancelled")

    def _wait(self) -> bool:
        """Sleep until there is something to do; False when it is time to end."""
        with self._wake:
            while not (self._inbox or self._jobs or self._reading or self._running or self._joining):
                if self._closing:
                    return False
                self._wake.wait()
            return not self._cutting

    def _work(self) -> None:
        """Do one of the other jobs, if there is one."""
        with self._wake:
            if not self._jobs:
                return
            function, future = self._jobs.popleft()
        if not future.set_running_or_notify_cancel():
            return
        self.post.deliver()  # it may take a while
        try:
            future.set_result(function(self._pause))
        except Exception as error:
            future.set_exception(error)
        if self._broken is not None:
            raise self._broken

    def _pause(self) -> None:
        """Let the texts go on meanwhile; an error of theirs is none of the job's, and ends the engine after it."""
        if self._broken is None:
            try:
                self._turn()
            except Exception as error:
                self._broken = error
        if self._broken is not None:
            raise ClosedError(internal_error(self._broken).message)

    def _turn(self) -> None:
        """One step: let cancelled texts leave, read some of the prompts, write one token of each text."""
        if self.writer is None:
            return
        cancelled = [number for number, text in enumerate(self._running) if text.cancelled]
        for number in cancelled:
            self._finish(self._running[number], "cancelled")
        self._leave(cancelled)
        self._admit()
        self._read()
        if self._joining:
            assert self._company is not None
            self._company.join([state for _, state in self._joining])
            self._running += [text for text, _ in self._joining]
            self._tokens += [text.held[-1] for text, _ in self._joining]
            self._joining = []
        if self._running:
            self._step()
        self.post.deliver(after=patience_for(len(self._running)))

    def _admit(self) -> None:
        """Begin to read the prompts of those that wait longest, as far as there are rows for them."""
        while len(self._running) + len(self._reading) + len(self._joining) < self.rows:
            with self._wake:
                if not self._inbox:
                    return
                text = self._inbox.popleft()
            text.began = time.monotonic()
            self.metrics.queue_time.observe(text.began - text.arrived)
            self.metrics.prompt_tokens.inc(len(text.prompt))
            self._reading.append((text, self._begin(text)))

    def _begin(self, text: Continuation) -> Generator[int, None, Read | None]:
        """Score the prompt where that is asked for, and read it where something is to be written."""
        assert self.writer is not None
        if text.prompt_top is not None:
            asked = text.prompt_top, self.prefixes, text.unknown
            scored = yield from score_prompt(self.writer, text.prompt, *asked)
            if text.opening is not None:
                scored = (yield from score_prompt(self.writer, [text.opening, text.prompt[0]], *asked)) + scored
            text.tell(Piece(prompt=scored))
        if text.tokens == 0:
            return None
        return (yield from read_prompt(self.writer, text.prompt, self.prefixes))

    def _read(self) -> None:
        """Read some pieces of prompts; those that are through get their first token."""
        done = 0
        while self._reading and done < READ:
            text, reading = self._reading[0]
            if text.cancelled:
                self._reading.popleft()
                self._finish(text, "cancelled")
                continue
            try:
                count, read = next_of(reading)
                if count is not None:
                    done += count
                    continue
                self._reading.popleft()
                if read is None:
                    self._finish(text, "length")
                else:
                    self._write([text], read.logits)
                    self._go_on(text, read.state)
            except Exception as error:  # of this one request, such as a token that the model does not have
                if self._reading and self._reading[0][0] is text:
                    self._reading.popleft()
                if not text.finish:
                    self._fail(text, error)

    def _go_on(self, text: Continuation, state: State) -> None:
        """Let a text join the others, unless it has ended or its window is full."""
        if text.finish:
            return
        assert self.writer is not None
        window = self.writer.window
        if window is not None and min(len(text.held) - 1, window) == window:
            self._reread(text, window)
        else:
            self._joining.append((text, state))

    def _reread(self, text: Continuation, window: int) -> None:
        """A full window is forgotten and its last half read again, as `decoding.generate.Reader` does it."""
        assert self.writer is not None
        text.held = text.held[-max(window // 2, 1) :]
        self._reading.append((text, read_prompt(self.writer, text.held, Prefixes(self.prefixes.piece, room=0))))

    def _step(self) -> None:
        assert self._company is not None
        assert self.writer is not None
        logits = self._company.step(self._tokens)
        self._write(self._running, logits)
        self._tokens = [text.held[-1] for text in self._running]
        gone, window = [], self.writer.window
        for number, text in enumerate(self._running):
            if text.finish:
                gone.append(number)
            elif window is not None and len(text.held) > window:
                self._reread(text, window)
                gone.append(number)
        self._leave(gone)

    def _write(self, texts: Sequence[Continuation], logits: Tensor) -> None:
        """Choose the next token of each text by its scores [B, V], and tell it; broken scores end a text."""
        numbers = logits.amax(-1).isfinite()  # NaN where one of them is
        if not numbers.all():
            for row in (~numbers).nonzero().flatten().tolist():
                self._fail(texts[row], NotANumberError(self.name))
            texts, logits = [text for text in texts if not text.finish], logits[numbers]
            if not texts:
                return
        chosen = draw_each(logits, [text.sampler for text in texts])
        now = time.monotonic()
        for number, (text, token) in enumerate(zip(texts, chosen, strict=True)):
            row = logits[number : number + 1]
            scored = None if text.top is None else surprisals(row, [token], text.top)[0]
            first = text.written == 0
            text.add(token, scored)
            self.metrics.generation_tokens.inc()
            if first:
                self.metrics.first_token.observe(now - text.arrived)
            else:
                self.metrics.between_tokens.observe(now - text.latest)
            text.latest = now
            if text.finish:
                self._count(text)
        self.post.deliver(after=patience_for(len(texts)))

    def _leave(self, gone: Sequence[int]) -> None:
        """Let some of those that are running leave: the ended, the cancelled, and those that read again."""
        if not gone:
            return
        assert self._company is not None
        index = self._company.leave(gone)
        self._running = [self._running[number] for number in index]
        self._tokens = [self._tokens[number] for number in index]

    def _fail(self, text: Continuation, error: Exception) -> None:
        """End a text by an error of ours."""
        log_error(error, self.name)
        self._finish(text, "error", internal_error(error).message)

    def _finish(self, text: Continuation, finish: Any, error: str = "") -> None:
        text.end(finish, error)
        self._count(text)

    def _count(self, text: Continuation) -> None:
        seconds = time.monotonic() - text.arrived
        self.metrics.finished(text.finish, seconds=seconds, prompt=len(text.prompt), written=text.written)

    def _cut(self, finish: Any) -> None:
        """End all that is not finished."""
        with self._wake:
            waiting, self._inbox = self._inbox, deque()
            jobs, self._jobs = self._jobs, deque()
        others = [text for text, _ in (*self._reading, *self._joining)]
        why = "the server is shutting down" if self.failed is None else internal_error(self.failed).message
        try:
            for text in {*waiting, *others, *self._running}:
                if not text.finish:
                    text.end(finish, why)
        finally:
            self.post.deliver()
            for _, future in jobs:
                future.cancel()
