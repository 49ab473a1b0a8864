"""Several processes that train together: they exchange counts, decisions and gradients by gloo, or NCCL on GPUs.

Small values are exchanged as JSON, never as pickle, which the functions of torch for Python objects use.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import FileStore, PrefixStore, Store
from torch.nn.parallel import DistributedDataParallel

from lmlab.training.distributed.checking import check_versions
from lmlab.training.distributed.world import ALONE, LostProcessError, World

T = TypeVar("T")
SMALL = 2048
"""Bytes of a value that are exchanged in one step; longer values need a second one."""
LENGTH = 8
"""Bytes that hold the length of a value."""
PATIENCE = timedelta(days=1)
"""How long a process waits for another one: process 0 alone prepares data. A process that has ended is noticed at
once."""
MEETING = "LMLAB_MEETING"
"""Environment variable with the file by which the processes of one machine find each other (`launching.py`)."""
THREADS = "LMLAB_THREADS"
"""Environment variable with the number of threads of each process."""
PR_SET_PDEATHSIG = 1
FAILED = "lmlab/first-has-failed"
SOON = timedelta(seconds=3)
"""How long a process waits to see whether the first one has the same error."""


class Group(World):
    """All processes that torchrun has started; DDP averages their gradients."""

    def __init__(self, *, local_rank: int | None = None) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.local_rank = self.rank if local_rank is None else local_rank
        self.gradient_scale = float(self.size)

    def gather(self, value: T) -> list[T]:
        data = json.dumps(value, default=float).encode()
        box = _pack(data[: SMALL - LENGTH], len(data), size=SMALL)
        boxes = [torch.empty_like(box) for _ in range(self.size)]
        dist.all_gather(boxes, box)
        lengths = [int.from_bytes(bytes(each[:LENGTH].tolist()), "little") for each in boxes]
        if max(lengths) > SMALL - LENGTH:
            box = _pack(data, len(data), size=LENGTH + max(lengths))
            boxes = [torch.empty_like(box) for _ in range(self.size)]
            dist.all_gather(boxes, box)
        texts = (each[LENGTH : LENGTH + length].numpy().tobytes() for each, length in zip(boxes, lengths, strict=True))
        return [json.loads(text) for text in texts]

    def broadcast(self, value: T) -> T:
        return self.gather(value if self.writes else cast(T, None))[0]

    def gather_tensors(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        shapes = self.gather({name: _describe(each) for name, each in tensors.items()})
        device = next(iter(tensors.values())).device if tensors else torch.device("cpu")
        everyone = []
        for rank, described in enumerate(shapes):
            own = rank == self.rank
            found = {
                name: tensors[name].detach().clone() if own else _blank(shape, kind, device)
                for name, (shape, kind) in described.items()
            }
            self.broadcast_tensors(found.values(), rank)
            everyone.append(found)
        return everyone

    def collect(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        shapes = self.gather({name: _describe(each) for name, each in tensors.items()})
        found = dict(tensors)
        for rank, described in enumerate(shapes[1:], start=1):
            if self.writes:
                received = {name: _blank(shape, kind, torch.device("cpu")) for name, (shape, kind) in described.items()}
                self.receive(received.values(), rank)
                found |= received
            elif rank == self.rank:
                self.send((each.detach().cpu() for each in tensors.values()), 0)
        return found

    def send(self, tensors: Iterable[Tensor], to: int) -> None:
        for each in tensors:
            dist.send(_bytes(each), to)

    def receive(self, tensors: Iterable[Tensor], sender: int) -> None:
        for each in tensors:
            dist.recv(_bytes(each), sender)

    def swap(self, tensors: Sequence[Tensor], other: int) -> list[Tensor]:
        theirs = [torch.empty_like(each) for each in tensors]
        sending = [dist.P2POp(dist.isend, _bytes(each), other) for each in tensors]
        receiving = [dist.P2POp(dist.irecv, _bytes(each), other) for each in theirs]
        pairs = zip(sending, receiving, strict=True)
        both = [each for pair in pairs for each in (pair if self.rank < other else pair[::-1])]
        for work in dist.batch_isend_irecv(both) if both else ():
            work.wait()
        return theirs

    def broadcast_tensors(self, tensors: Iterable[Tensor], sender: int) -> None:
        for each in tensors:
            dist.broadcast(_bytes(each), sender)

    def wrap(self, module: nn.Module) -> nn.Module:
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return module
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
        with warnings.catch_warnings():  # recent versions of torch have another name for broadcast_buffers
            warnings.simplefilter("ignore", FutureWarning)
            return DistributedDataParallel(
                module, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )

    def accumulating(self, wrapped: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last or not isinstance(wrapped, DistributedDataParallel) else wrapped.no_sync()

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()


def connect(*, parallel: str = "ddp", device: str = "auto") -> World:
    """The world of this process: of all processes that torchrun has started, or of one if it has started none."""
    if parallel not in ("ddp", "fsdp"):
        raise ValueError(f"--parallel {parallel}: give ddp or fsdp")
    environment = os.environ
    size = int(environment.get("WORLD_SIZE", "1"))
    if size == 1 or not {"RANK", "LOCAL_RANK"} <= environment.keys():
        if parallel != "ddp":
            raise ValueError(f"--parallel {parallel} divides the weights among processes: give --processes N, too")
        return ALONE
    if not dist.is_available():
        raise ValueError("this build of torch has no torch.distributed; train in one process")
    local_rank, local_size = int(environment["LOCAL_RANK"]), int(environment.get("LOCAL_WORLD_SIZE", size))
    if not dist.is_initialized():
        _share_machine(local_rank, local_size, device)
        uses_gpu = device != "cpu" and torch.cuda.is_available()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if uses_gpu else "gloo",
            store=_meeting(size),
            rank=int(environment["RANK"]),
            world_size=size,
            timeout=PATIENCE,
        )
        check_versions(Group(local_rank=local_rank))
    if parallel == "fsdp":
        from lmlab.training.distributed.sharding import ShardedGroup

        return ShardedGroup(local_rank=local_rank)
    return Group(local_rank=local_rank)


def was_restarted() -> bool:
    """Whether torchrun has started this process again, after one of the run had ended."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def report_failure() -> None:
    """Tell the other processes that the first one has failed and says why."""
    if dist.is_available() and dist.is_initialized():
        with suppress(RuntimeError):
            _default_store().set(FAILED, "yes")


def first_has_failed() -> bool:
    """Whether the first process has failed, too, or does so soon; it shows the error then."""
    if not (dist.is_available() and dist.is_initialized()):
        return os.environ.get("LOCAL_RANK", "0") != "0"  # one for each machine, if no connection was made
    try:
        _default_store().wait([FAILED], SOON)
    except RuntimeError as error:
        return "connect" in str(error).lower()  # the first process had the store, and has ended
    return True


def _default_store() -> Store:
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def _share_machine(local_rank: int, local_size: int, device: str) -> None:
    """Give this process its share of the cores, and a GPU of its own; it ends with the process that has started it."""
    end_with_parent()
    threads = int(os.environ.get(THREADS, "0"))
    torch.set_num_threads(threads or max(1, count_cores() // local_size))
    if device != "cpu" and torch.cuda.is_available():
        if local_size > torch.cuda.device_count():
            raise ValueError(
                f"{local_size} processes on a machine with {torch.cuda.device_count()} GPUs: start one process for "
                "each, or train with --device cpu"
            )
        torch.cuda.set_device(local_rank)
    if device == "mps" or (device == "auto" and torch.backends.mps.is_available()):
        raise ValueError("several processes cannot share the GPU of a Mac: train with --device cpu, or in one process")


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _meeting(size: int) -> Store | None:
    """The store by which processes find each other: a file on one machine; None for that of torchrun.

    torchrun keeps its store when it starts processes again, with the addresses of those that have ended. On one machine
    each start has a part of its own; several machines do not count their starts alike.
    """
    path, restart = os.environ.get(MEETING), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if path is not None:
        return PrefixStore(restart, FileStore(path, size))
    if restart == "0" or os.environ.get("LOCAL_WORLD_SIZE") != str(size):
        return None
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", timeout=PATIENCE))
    return PrefixStore(restart, store)


def end_with_parent() -> None:
    """Ask Linux for SIGTERM when the process that has started this one ends, so that no process is left alone."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has ended before
            os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def connected(world: World) -> Iterator[None]:
    """A context in which a lost connection is a LostProcessError."""
    try:
        yield
    except RuntimeError as error:
        if world.size == 1 or not _is_lost(error):
            raise
        raise LostProcessError("another process of this run has ended") from error


def _is_lost(error: RuntimeError) -> bool:
    """Whether an error is that of a connection to another process."""
    said = str(error).lower()
    return isinstance(error, dist.DistError) or any(
        word in said for word in ("gloo", "nccl", "connection closed", "connection reset", "broken pipe")
    )


def _pack(data: bytes, length: int, *, size: int) -> Tensor:
    return torch.frombuffer(bytearray((length.to_bytes(LENGTH, "little") + data).ljust(size, b"\0")), dtype=torch.uint8)


def _describe(tensor: Tensor) -> tuple[list[int], str]:
    return list(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _blank(shape: Sequence[int], kind: str, device: torch.device) -> Tensor:
    return torch.empty(list(shape), dtype=getattr(torch, kind), device=device)


def _bytes(tensor: Tensor) -> Tensor:
    """A contiguous tensor as bytes in the same memory: gloo does not know all types."""
    assert tensor.is_contiguous(), "what is received must arrive in the tensor itself"
    return tensor.detach().reshape(-1).view(torch.uint8)
