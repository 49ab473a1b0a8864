"""Several systems of a comparison that are trained at the same time, each in a process with its share of the threads.

The processes write runs and records into the folder of the comparison, as one process does, so that a comparison may be
resumed with another number of them.
"""

from __future__ import annotations

import multiprocessing
import queue
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from lmlab.comparison.plan import Conditions, PlannedRun, plan
from lmlab.comparison.runner import Interruption, Unwatched, Watcher, prepare_corpora, read_tests, train_planned
from lmlab.training.progress import TrainingProgress

MOST = 64
"""Processes, at most."""
MOMENT = 0.1
"""Seconds between two looks at what the processes report."""
Outcome = str | None
"""Why a run has failed; None if it has not."""


class Shared(NamedTuple):
    """What every process is given."""

    conditions: Conditions
    folder: Path
    threads: int
    events: Queue[Any]
    stop: Event


SHARED: list[Shared] = []
"""In a process that trains: what it was given."""


def check_processes(processes: int) -> None:
    """Raise a ValueError if a number of processes is not allowed."""
    if not 1 <= processes <= MOST:
        raise ValueError(f"processes = {processes}: give a number from 1 to {MOST}")


def train_side_by_side(
    planned_runs: Sequence[PlannedRun],
    conditions: Conditions,
    folder: Path,
    *,
    processes: int,
    watcher: Watcher,
    interrupted: Callable[[], bool],
) -> dict[str, str]:
    """Train and score runs that have no record yet; return why some failed, by name. An Interruption if it stops."""
    import torch

    check_processes(processes)
    context = multiprocessing.get_context("spawn")
    events: Queue[Any] = context.Queue()
    stop, threads = context.Event(), max(1, torch.get_num_threads() // processes)
    shared = Shared(conditions, folder, threads, events, stop)
    by_name = {planned.name: planned for planned in planned_runs}
    with ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(shared,)) as pool:
        running: dict[Future[Outcome], str] = {pool.submit(_train, name): name for name in by_name}
        pending = set(running)
        while pending:
            pending = wait(pending, timeout=MOMENT).not_done
            _relay(events, by_name, watcher)
            if interrupted() and not stop.is_set():
                stop.set()  # runs that have begun finish their step and save
                pool.shutdown(wait=False, cancel_futures=True)
    _relay(events, by_name, watcher)
    if stop.is_set():
        raise Interruption
    try:
        found = {name: future.result() for future, name in running.items()}
    except BrokenProcessPool:
        raise ValueError(
            "a process that trained a system was ended: it may have been out of memory. The same command resumes the "
            "comparison; give fewer --processes"
        ) from None
    return {name: reason for name, reason in found.items() if reason is not None}


def _relay(events: Queue[Any], by_name: Mapping[str, PlannedRun], watcher: Watcher) -> None:
    """Tell the watcher what the processes have reported."""
    while True:
        try:
            name, doing, line, progress = events.get(timeout=0.01)
        except queue.Empty:
            return
        if doing is not None:
            watcher.begin(by_name[name], doing)
        else:
            watcher.log(by_name[name], line, TrainingProgress.model_validate(progress))


def _begin(shared: Shared) -> None:
    """Prepare a process: its share of the threads; the first process decides when to stop, and it ends with that."""
    import torch

    from lmlab.training.distributed.group import end_with_parent

    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(shared.threads)
    SHARED.append(shared)


class _Telling(Unwatched):
    """A watcher that tells the first process."""

    def __init__(self, events: Queue[Any]) -> None:
        self.events = events

    def begin(self, planned: PlannedRun, doing: str) -> None:
        self.events.put((planned.name, doing, None, None))

    def log(self, planned: PlannedRun, line: dict[str, Any], progress: TrainingProgress) -> None:
        self.events.put((planned.name, None, line, progress.model_dump()))


def _train(name: str) -> Outcome:
    """Train and score one run in this process; its record is in the folder then."""
    (shared,) = SHARED
    corpora = prepare_corpora(shared.conditions, Unwatched())  # from the cache
    planned = next(each for each in plan(shared.conditions, corpora)[0] if each.name == name)
    corpus, tests = corpora[shared.conditions.tokenizers[planned.system]], read_tests(shared.conditions, corpora)
    try:
        train_planned(
            planned,
            shared.conditions,
            corpus,
            tests,
            folder=shared.folder,
            watcher=_Telling(shared.events),
            interrupted=shared.stop.is_set,
        )
    except Interruption:
        return None
    except Exception as error:
        return str(error).strip() or type(error).__name__
    return None
