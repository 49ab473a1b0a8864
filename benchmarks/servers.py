"""What the benchmarks of the server share: servers in processes of their own, their memory, many clients at once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx


class Process(NamedTuple):
    """A server that is running."""

    address: str
    pid: int
    popen: subprocess.Popen[Any]

    def memory(self) -> float:
        """Resident memory in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found[1]) / 1024 if found else 0.0


@contextmanager
def lmlab_server(runs: Sequence[Path], *options: str, threads: int = 1) -> Iterator[Process]:
    """`lmlab serve` on a free port."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "lmlab", "serve", *map(str, runs), "--port", "0", *options]
    popen = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert popen.stderr is not None
    address = ""
    for line in popen.stderr:
        if found := re.search(r"http://\S+", line):
            address = found[0]
            break
    if not address:
        raise SystemExit("lmlab serve did not start")
    try:
        yield Process(address, popen.pid, popen)
    finally:
        popen.terminate()
        popen.wait(30)


def wait_until_well(address: str, process: subprocess.Popen[Any], *, seconds: float = 180) -> None:
    """Wait for /health; a RuntimeError where the process ends or takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{address}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"{address} did not come up")


def client(address: str, *, connections: int = 2000, timeout: float = 600) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    return httpx.AsyncClient(base_url=address, timeout=timeout, limits=limits)


class Streamed(NamedTuple):
    """What one streaming client saw."""

    first: float  # seconds to the first token
    whole: float
    tokens: int
    good: bool


def completion_request(asked: dict[str, Any], *, keep: bool = True) -> bytes:
    """A request as it goes over the wire; where it is not to be kept, the connection ends with the answer."""
    body = json.dumps(asked).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += "" if keep else "Connection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def stream(address: str, asked: dict[str, Any]) -> Streamed:
    """A streamed completion, read to its end: without a client's own work, which would take the server's cores."""
    parts = urlsplit(address)
    began, first, read = time.perf_counter(), 0.0, []
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(completion_request({**asked, "stream": True}, keep=False))
    while part := await reader.read(2**16):
        read.append(part)
        if not first and b"data: {" in part:
            first = time.perf_counter() - began
    writer.close()
    whole = b"".join(read)
    ended = b'"finish_reason":"' in whole  # transformers sends no [DONE]
    good = whole.startswith(b"HTTP/1.1 200 ") and ended and b'data: {"error"' not in whole
    return Streamed(first, time.perf_counter() - began, whole.count(b"data: {"), good)


def percentile(values: Sequence[float], fraction: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else float("nan")


def milliseconds(values: Sequence[float]) -> str:
    return f"{1000 * statistics.median(values):.0f} / {1000 * percentile(values, 0.99):.0f} ms"


def train_run(folder: Path, text: Path, model: str, *settings: str) -> Path:
    """A run with random weights (one step) or counts."""
    command = [sys.executable, "-m", "lmlab", "train", model, str(text), "-o", str(folder), *settings]
    if model != "ngram":
        command += ["--budget", "1steps"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder


async def in_turn(work: Sequence[Any], *, at_once: int) -> list[Any]:
    """Coroutines, several at once; what they give, or what they raise."""
    gate = asyncio.Semaphore(at_once)

    async def one(each: Any) -> Any:
        async with gate:
            return await each

    return await asyncio.gather(*map(one, work), return_exceptions=True)
