"""`--processes N`: torchrun starts this command N times on one machine, and all of them train one run.

The processes find each other by a file and talk over the loopback interface, so that nothing listens for other
machines. torchrun ends them all if one fails; they end by themselves if it is killed.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lmlab.training.distributed.group import MEETING, THREADS, count_cores

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
SAVING = 600
"""Seconds that processes have for finishing a step and saving, after a signal."""
MOST = 256
"""Processes on one machine, at most."""


class Ended(NamedTuple):
    """How the processes ended: the exit status, and what is to be said about it."""

    status: int
    message: str = ""


def was_started_by_torchrun() -> bool:
    """Whether this process is one of those that torchrun has started."""
    return {"RANK", "LOCAL_RANK", "WORLD_SIZE"} <= os.environ.keys()


def check_processes(processes: int) -> None:
    """Raise a ValueError if a number of processes cannot be started here."""
    if not 1 <= processes <= MOST:
        raise ValueError(f"--processes {processes}: give a number from 1 to {MOST}")
    if sys.platform == "win32":
        raise ValueError("--processes needs Linux or macOS; on Windows train in one process, or in WSL")


def launch(words: Sequence[str], *, processes: int) -> Ended:
    """Run `lmlab` with these words in several processes, and wait for all of them."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    check_processes(processes)
    logging.disable(logging.CRITICAL)  # errors are reported below, once
    folder = Path(tempfile.mkdtemp(prefix="lmlab-processes-"))
    os.environ |= {
        MEETING: str(folder / "meeting"),
        THREADS: os.environ.get("OMP_NUM_THREADS", str(max(1, count_cores() // processes))),
        "GLOO_SOCKET_IFNAME": LOOPBACK,
        "NCCL_SOCKET_IFNAME": LOOPBACK,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # it would listen on all interfaces
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=folder.name,
        rdzv_backend="c10d",
        rdzv_endpoint=str(folder / "rendezvous"),
        rdzv_configs={"store_type": "file"},
        local_addr="127.0.0.1",
        max_restarts=0,
        shutdown_timeout=SAVING,
        logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
    )
    try:
        elastic_launch(config, sys.executable)("-m", "lmlab", *words)
    except ChildFailedError as error:
        return _explain(error)
    except SignalException:  # the processes have finished their step and saved
        return Ended(130)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Ended(0)


def _explain(error: object) -> Ended:
    """The status of the process that failed first; a signal is explained, for the process could not do it."""
    rank, failure = error.get_first_failure()  # type: ignore[attr-defined]
    if failure.exitcode >= 0:
        return Ended(failure.exitcode)
    name = signal.Signals(-failure.exitcode).name
    hint = ": it may have been out of memory" if name == "SIGKILL" else ""
    return Ended(1, f"process {rank} was ended by {name}{hint}")
