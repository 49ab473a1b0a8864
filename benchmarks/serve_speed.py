"""Tokens per second of the server: against `transformers serve` with the same weights, and our own offline batch.

    pip install --no-deps --target extra accelerate psutil
    python benchmarks/serve_speed.py TEXT --extra extra [--rows small medium] [--clients 1 8 32] [--threads 2]

GPT-2 with random weights. Prompts of about 32 tokens are continued by 128, greedily, each client one request after
another. `transformers serve`, which needs accelerate besides, runs with and without its continuous batching. Printed
for each number of clients: new tokens per second over all clients (median over the repeats, in which the servers take
turns), and the time to the first token; then the fraction of what one offline batch of as many texts reaches, and how
long each server takes to start.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch

import lmlab
from lmlab.decoding.generate import generate
from lmlab.decoding.sampling import Sampler, Sampling
from servers import lmlab_server, stream, train_run, wait_until_well
from timing import make_parser

ROWS = {"small": (4, 256, 4, 256), "medium": (6, 384, 6, 256)}  # layers, width, heads, window
PROMPT, NEW = 32, 128
PEERS = {"plain": "transformers", "continuous": "transformers, continuous"}


def make_runs(folder: Path, text: Path, row: str) -> tuple[Path, Path]:
    """The same weights as a run of lmlab and as a checkpoint of transformers."""
    layers, width, heads, window = ROWS[row]
    settings = {"layers": layers, "width": width, "heads": heads, "window": window}
    sets = [part for name, value in settings.items() for part in ("--set", f"model.{name}={value}")]
    ours = train_run(folder / row, text, "gpt2", "--tokenizer", "bpe:8192", *sets)
    theirs = folder / f"{row}-hf"
    command = [sys.executable, "-m", "lmlab", "convert", str(ours), str(theirs), "--to", "huggingface"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return ours, theirs


@contextmanager
def transformers_server(folder: Path, *, batching: bool, threads: int, extra: Path | None) -> Iterator[str]:
    """`transformers serve` of one checkpoint on a free port; packages that it needs besides may be in a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(folder), "--device", "cpu"]
    command += ["--host", "127.0.0.1", "--port", str(port)] + ["--continuous-batching"] * batching
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    if extra is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(extra), os.environ.get("PYTHONPATH"))))
    said = folder.with_suffix(".log")
    with said.open("wb") as log:
        popen = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    try:
        wait_until_well(f"http://127.0.0.1:{port}", popen)
        yield f"http://127.0.0.1:{port}"
    finally:
        popen.terminate()
        popen.wait(30)


async def load(address: str, body: dict[str, Any], prompts: list[str], *, clients: int) -> tuple[float, float]:
    """New tokens per second of several clients, each with two requests; and the median time to the first token."""

    async def one(number: int) -> list[Any]:
        return [await stream(address, {**body, "prompt": prompts[(2 * number + k) % len(prompts)]}) for k in range(2)]

    began = time.perf_counter()
    found = [each for many in await asyncio.gather(*map(one, range(clients))) for each in many]
    taken = time.perf_counter() - began
    if not all(each.good for each in found):
        raise RuntimeError(f"{address} did not answer {sum(not each.good for each in found)} of {len(found)} requests")
    return len(found) * NEW / taken, statistics.median(each.first for each in found)


def offline(run: Path, prompts: list[str], *, rows: int) -> float:
    """New tokens per second of one batch."""
    lm = lmlab.load(run)
    ids = [lm.text_tokenizer.encode(prompt)[:PROMPT] for prompt in prompts[:rows]]
    shortest = min(map(len, ids))
    batch = torch.tensor([[lm.text_tokenizer.boundary, *each[:shortest]] for each in ids])
    pick = Sampler(Sampling(temperature=0.0))
    for _ in generate(lm.writer.model, batch, tokens=16, pick=pick):
        pass
    began = time.perf_counter()
    for _ in generate(lm.writer.model, batch, tokens=NEW, pick=pick):
        pass
    return rows * NEW / (time.perf_counter() - began)


def first_token(run: Path, prompt: str) -> float:
    """Seconds that `lmlab generate` takes for one token."""
    command = [sys.executable, "-m", "lmlab", "generate", str(run), prompt, "--tokens", "1"]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def check_lengths(address: str, body: dict[str, Any], prompts: list[str]) -> None:
    """All texts are as long as the speed is computed for: none reaches the boundary before."""
    answer = httpx.post(f"{address}/v1/completions", json={**body, "prompt": prompts}, timeout=600).json()
    if answer["usage"]["completion_tokens"] != NEW * len(prompts):
        raise SystemExit("some texts end before their last token: train another model")


def make_prompts(run: Path, text: Path) -> list[str]:
    """Texts of about as many tokens as are wanted."""
    tokenizer = lmlab.load(run).text_tokenizer
    ids = tokenizer.encode(text.read_text(encoding="utf-8")[:40_000])
    return [tokenizer.decode(ids[start : start + PROMPT]) for start in range(0, 64 * PROMPT, PROMPT)]


def measure(row: str, folder: Path, arguments: Any) -> None:
    ours, theirs = make_runs(folder, arguments.text, row)
    prompts = make_prompts(ours, arguments.text)
    body = {"max_tokens": NEW, "temperature": 0}
    starts: dict[str, float] = {}
    with ExitStack() as stack:
        starts["lmlab generate, one token"] = first_token(ours, prompts[0])
        began = time.perf_counter()
        served = stack.enter_context(lmlab_server([ours], threads=arguments.threads))
        starts["lmlab"] = time.perf_counter() - began
        bodies = {"lmlab": (served.address, body)}
        check_lengths(served.address, body, prompts)
        for kind in arguments.against:
            name, began = PEERS[kind], time.perf_counter()
            try:
                settings = {"threads": arguments.threads, "extra": arguments.extra}
                address = stack.enter_context(transformers_server(theirs, batching=kind == "continuous", **settings))
            except RuntimeError as error:
                said = theirs.with_suffix(".log").read_text()[-1000:]
                print(f"{name}: {error}; it needs accelerate besides transformers\n{said}", flush=True)
                continue
            starts[name] = time.perf_counter() - began
            bodies[name] = (address, {**body, "model": str(theirs)})
        torch.set_num_threads(arguments.threads)
        for clients in arguments.clients:
            speeds: dict[str, list[tuple[float, float]]] = {name: [] for name in bodies}
            batches: list[float] = []
            for repeat in range(arguments.repeats + 1):
                for name, (address, asked) in bodies.items():
                    try:
                        found = asyncio.run(load(address, asked, prompts, clients=clients))
                    except (OSError, RuntimeError) as error:
                        print(f"{name}: {error!r}")
                        continue
                    if repeat:
                        speeds[name].append(found)
                batches.append(offline(ours, prompts, rows=clients))
            batch = statistics.median(batches[1:])
            base = statistics.median(speed for speed, _ in speeds["lmlab"])
            print(f"| {row} | {clients} | offline batch | {batch:.0f} | {base / batch:.0%} | |")
            for name, values in speeds.items():
                if values:
                    speed, first = (statistics.median(each) for each in zip(*values, strict=True))
                    print(
                        f"| {row} | {clients} | {name} | {speed:.0f} | {base / speed:.2f} x | {1000 * first:.0f} ms |"
                    )
    print(f"| {row} | start | " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in starts.items()) + " | | | |")


def main() -> None:
    parser = make_parser(__doc__, repeats=5, rows=ROWS)
    parser.add_argument("text", type=Path, help="a text of a megabyte")
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--extra", type=Path, help="a folder with what transformers serve needs besides")
    parser.add_argument(
        "--against", nargs="*", choices=list(PEERS), default=list(PEERS), help="servers of transformers"
    )
    arguments = parser.parse_args()
    print("| model | clients | server | new tokens/s | lmlab against it | first token |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for row in arguments.rows:
            measure(row, Path(folder), arguments)


if __name__ == "__main__":
    main()
