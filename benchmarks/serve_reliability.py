"""How reliable the server is: clients, overload, cancellation, slow readers, limits, made-up requests, shutdown.

    python benchmarks/serve_reliability.py TEXT [--quick] [--only clients overload …]

A tiny GPT-2 with random weights and an n-gram of TEXT are served by `lmlab serve` in a process of its own. `--quick`
takes a twentieth of everything, to see that the script runs. One line is printed for each figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from servers import (
    Process,
    client,
    completion_request,
    in_turn,
    lmlab_server,
    milliseconds,
    percentile,
    stream,
    train_run,
)

BODY = {"model": "counts", "prompt": "The", "max_tokens": 16, "logit_bias": {"0": -100}}
JSON = {"Content-Type": "application/json"}


def say(name: str, **figures: object) -> None:
    print(
        f"| {name} | " + ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in figures.items()) + " |",
        flush=True,
    )


def clients(runs: list[Path], scale: float) -> None:
    """Streaming clients held at once, and memory after many requests after each other."""
    count, sequential = int(1000 * scale), int(10_000 * scale)
    with lmlab_server(runs, "--max-queue", "2048") as server:

        async def hold() -> list[Any]:
            return await in_turn([stream(server.address, BODY) for _ in range(count)], at_once=count)

        found = asyncio.run(hold())
        good = [each for each in found if not isinstance(each, BaseException) and each.good]
        say(
            "clients held",
            clients=count,
            errors=count - len(good),
            first_token_p50_p99=milliseconds([each.first for each in good]),
            memory=f"{server.memory():.0f} MB",
        )
        with httpx.Client(base_url=server.address, timeout=60) as web:
            memory = []
            for number in range(sequential):
                web.post("/v1/completions", json={**BODY, "max_tokens": 2, "seed": number}).raise_for_status()
                if number in (sequential // 10, sequential - 1):
                    memory.append(server.memory())
        say("sequential", requests=sequential, memory_growth=f"{100 * (memory[1] / memory[0] - 1):.1f}%")


def overload(runs: list[Path], scale: float) -> None:
    """Ten times as many as there is room for: the others are refused at once."""
    rows, queue = 8, 8
    with lmlab_server(runs[:1], "--max-batch", str(rows), "--max-queue", str(queue)) as server:
        request = completion_request({**BODY, "model": "tiny", "max_tokens": 100})

        async def burst(count: int) -> list[tuple[int, float, bool]]:
            parts = urlsplit(server.address)
            held = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(count)]

            async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, float, bool]:
                """Without a client's own work, which would be the greater part of what is measured."""
                began = time.perf_counter()
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                taken = time.perf_counter() - began
                writer.close()
                return int(head.split()[1]), taken, b"\r\nretry-after:" in head.lower()

            return list(await asyncio.gather(*(one(*each) for each in held)))

        unloaded = [seconds for _ in range(3) for _, seconds, _ in asyncio.run(burst(rows + queue))]
        found = asyncio.run(burst(10 * (rows + queue)))
        refused = [seconds for status, seconds, after in found if status == 429 and after]
        admitted = [seconds for status, seconds, _ in found if status == 200]
        say(
            "overload",
            statuses=dict(Counter(status for status, _, _ in found)),
            refused_p50_p99=milliseconds(refused),
            admitted_p99=f"{percentile(admitted, 0.99) / percentile(unloaded, 0.99):.2f} x unloaded",
        )


def cancellation(runs: list[Path], scale: float) -> None:
    """Hang-ups in the middle of a stream: how long until the row is free."""
    count = int(1000 * scale)
    with lmlab_server(runs, "--max-tokens", "1000000") as server:
        body = {**BODY, "model": "tiny", "max_tokens": 10**6, "stream": True}
        taken = []
        with httpx.Client(base_url=server.address, timeout=60) as web:
            for _ in range(count):
                with web.stream("POST", "/v1/completions", json=body) as answer:
                    next(answer.iter_lines())
                began = time.perf_counter()
                while _gauge(web, "num_requests_running") > 0 and time.perf_counter() - began < 10:
                    pass
                taken.append(time.perf_counter() - began)
            left = _gauge(web, "num_requests_running") + _gauge(web, "num_requests_waiting")
        say("cancellation", hang_ups=count, stopped_after_p50_p99=milliseconds(taken), rows_left=int(left))


def slow(runs: list[Path], scale: float) -> None:
    """Clients that read a byte a second, and requests that are never sent to their end, beside quick ones."""
    readers, halves, quick = int(200 * scale), int(500 * scale), int(400 * scale)
    with lmlab_server(runs) as server:

        async def measure() -> list[float]:
            return [(await stream(server.address, BODY)).whole for _ in range(quick)]

        asyncio.run(measure())  # the first ones find the server cold
        before = asyncio.run(measure())
        slowly = [_reader(server) for _ in range(readers)]
        with httpx.Client(base_url=server.address, timeout=60) as web:
            while _gauge(web, "num_requests_running") + _gauge(web, "num_requests_waiting"):
                time.sleep(0.1)  # what they asked for is written; it only waits to be read
        end, done = time.monotonic() + 45, threading.Event()  # the server waits 10 s for a head, 30 s for a reader
        reading = threading.Thread(target=_read_slowly, args=(slowly, done))
        reading.start()
        half = [_half(server, number) for number in range(halves)]
        beside = asyncio.run(measure())
        time.sleep(max(0.0, end - time.monotonic()))
        done.set()
        reading.join()
        change = 100 * (percentile(beside, 0.99) / percentile(before, 0.99) - 1)
        say(
            "slow",
            readers=readers,
            half_sent=halves,
            others_p99=f"{change:+.0f}%",
            readers_dropped=sum(not _is_whole(each) for each in slowly),
            half_sent_dropped=sum(map(_is_closed, half)),
        )
        for each in (*slowly, *half):
            each.close()


def limits(runs: list[Path], scale: float) -> None:
    """Bodies and numbers that are too large."""
    with lmlab_server(runs) as server:
        before = server.memory()
        size = int(1e9 * scale)

        def endless() -> Iterator[bytes]:
            for _ in range(size // 65536):
                yield b" " * 65536

        status: Any = "closed"
        with suppress(httpx.TransportError):
            status = httpx.post(f"{server.address}/v1/completions", content=endless(), headers=JSON).status_code
        code = httpx.post(f"{server.address}/v1/completions", content=b" " * (2**20 + 1), headers=JSON).status_code
        say(
            "body",
            chunked=f"{size:,} bytes: {status}",
            known_length=code,
            memory=f"{server.memory() - before:+.1f} MB",
        )
        wrong = Counter(
            httpx.post(f"{server.address}/v1/completions", content=content, headers=JSON, timeout=60).status_code
            for content in _out_of_range()
        )
        say("out of range", answers=dict(wrong))


def fabricated_runs(runs: list[Path], scale: float) -> None:
    """Requests that schemathesis makes up from our own description of the API."""
    import hypothesis
    import schemathesis

    statuses: Counter[int] = Counter()
    with lmlab_server(runs) as server:
        schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
        operations = [(path, method) for path in schema for method in schema[path]]
        wanted = int(10_000 * scale)
        each = max(10, wanted // len(operations) // 2)
        modes = list(schemathesis.GenerationMode)
        while sum(statuses.values()) < wanted:  # a route without parameters has one case only, so again with the others
            for path, method, mode in ((*operation, mode) for operation in operations for mode in modes):

                @hypothesis.given(case=schema[path][method].as_strategy(generation_mode=mode))
                @hypothesis.settings(
                    max_examples=each,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(hypothesis.HealthCheck),
                )
                def check(case: Any) -> None:
                    statuses[case.call(base_url=server.address, timeout=120).status_code] += 1

                with suppress(hypothesis.errors.Unsatisfiable):
                    check()
    failed = sum(count for status, count in statuses.items() if status >= 500)
    say("made up", cases=sum(statuses.values()), server_errors=failed, answers=dict(sorted(statuses.items())))


def shutdown(runs: list[Path], scale: float) -> None:
    """SIGTERM while streams are open."""
    count = max(4, int(64 * scale))
    with lmlab_server(runs, "--max-tokens", "1000000") as server:
        body = {**BODY, "model": "tiny", "max_tokens": 10**6}

        async def hold() -> Counter[str]:
            ends: Counter[str] = Counter()

            async def one(web: httpx.AsyncClient) -> None:
                last = ""
                try:
                    async with web.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
                        async for line in answer.aiter_lines():
                            last = line or last
                except httpx.TransportError:
                    last = "cut off"
                reported = "error event" if '"error"' in last else "done" if last == "data: [DONE]" else "cut off"
                ends[reported] += 1

            async with client(server.address) as web:
                tasks = [asyncio.create_task(one(web)) for _ in range(count)]
                await asyncio.sleep(3)
                server.popen.send_signal(signal.SIGTERM)
                await asyncio.gather(*tasks)
            return ends

        began = time.perf_counter() + 3
        ends = asyncio.run(hold())
        code = server.popen.wait(30)
        say("shutdown", streams=count, ends=dict(ends), seconds=f"{time.perf_counter() - began:.1f}", code=code)


def _gauge(web: httpx.Client, name: str) -> float:
    lines = web.get("/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"lmlab:{name}{{"))


def _connect(server: Process) -> socket.socket:
    parts = urlsplit(server.address)
    return socket.create_connection((parts.hostname or "", parts.port or 0))


def _half(server: Process, number: int) -> socket.socket:
    connection = _connect(server)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    connection.sendall(head if number % 2 else head + b"Content-Length: 100\r\n\r\n{")
    return connection


def _reader(server: Process) -> socket.socket:
    connection = _connect(server)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    connection.sendall(
        completion_request({**BODY, "max_tokens": 4000, "stream": True})
    )  # more than the machine itself keeps
    connection.recv(1)
    return connection


def _read_slowly(connections: list[socket.socket], done: threading.Event) -> None:
    """A byte of each every second."""
    while not done.wait(1.0):
        for each in connections:
            with suppress(OSError):
                each.recv(1)


def _is_whole(connection: socket.socket) -> bool:
    """Whether the stream, read at last, comes to its end."""
    connection.settimeout(5.0)
    tail = b""
    with suppress(OSError):
        while (part := connection.recv(65536)) and b"[DONE]" not in tail:
            tail = (tail + part)[-65600:]
    return b"[DONE]" in tail


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        while part := connection.recv(65536):
            del part
        return True
    except TimeoutError:
        return False
    except OSError:
        return True


def _out_of_range() -> Iterator[bytes]:
    numbers: dict[str, list[Any]] = {
        "n": [0, -1, 10**9],
        "best_of": [0, 10**9],
        "max_tokens": [-1, 10**12],
        "logprobs": [-1, 6000],
        "temperature": [-0.1, 1e9],
        "top_p": [-1, 2],
        "presence_penalty": [-3, 3],
        "frequency_penalty": [-3, 3],
        "seed": [2**64],
        "min_p": [-1, 2],
        "repetition_penalty": [0, 1e9],
        "length_penalty": [-99, 99],
        "stop": ["", ["x"] * 100, "x" * 1000],
        "logit_bias": [{"1": 1e9}, {"a": 1}, {str(n): 0 for n in range(5000)}],
        "prompt": [["a"] * 1000, [2**40], [[1]] * 1000, 1.5],
    }
    for name, values in numbers.items():
        for value in values:
            yield json.dumps({**BODY, name: value}).encode()
    yield from (b"[" * 100_000, b'{"prompt": NaN}', b'{"temperature": Infinity}', b"", b"\xff")


FIGURES: dict[str, Callable[[list[Path], float], None]] = {
    "clients": clients,
    "overload": overload,
    "cancellation": cancellation,
    "slow": slow,
    "limits": limits,
    "made-up": fabricated_runs,
    "shutdown": shutdown,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a text of some hundred kilobytes")
    parser.add_argument("--quick", action="store_true", help="a twentieth of everything")
    parser.add_argument("--only", nargs="+", choices=list(FIGURES), default=list(FIGURES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = train_run(Path(folder) / "counts", arguments.text, "ngram", "--tokenizer", "bpe:500")
        tokenizer = str(counts / "tokenizer.json")
        tiny = train_run(Path(folder) / "tiny", arguments.text, "gpt2", "--size", "tiny", "--tokenizer", tokenizer)
        print("| what | figures |\n|---|---|")
        for name in arguments.only:
            FIGURES[name]([tiny, counts], 0.05 if arguments.quick else 1.0)


if __name__ == "__main__":
    main()
