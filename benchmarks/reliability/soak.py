"""An hour of training, serving and the studio together: memory, open files and threads of each process stay flat.

A run trains on while a server and a studio over it answer requests: completions (whole and streamed, some of them
abandoned), embeddings, refused requests, views of the studio, and short trainings that the studio starts. Every few
seconds the memory, open files and threads of the three are written down. A straight line is fitted to each after the
first quarter, in which caches fill; what it gains over the rest must be less than 5%.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from benchmarks.reliability.families import small_recipe, write_texts
from benchmarks.reliability.figures import Figure, Scale, shorten
from benchmarks.reliability.kills import train
from benchmarks.reliability.processes import Child, import_everything, lmlab
from benchmarks.reliability.processes import run as run_child

TOKEN = "0123456789abcdef"
KINDS = ("gpt2", "ngram", "bert")
GROWTH = 0.05
"""Of memory, open files or threads, over the measured time."""
REFUSED: dict[str, Any] = {"prompt": {}}
"""A request that is to be refused."""
PAUSE = 0.05
"""Seconds between requests, so that training has its share of the processor."""


def soak(scale: Scale) -> Iterator[Figure]:
    """60 minutes; in the tests some seconds, of which only the answers are checked."""
    folder = scale.fresh("soak")
    seconds = float(os.environ.get("LMLAB_SOAK_SECONDS", scale.count(4, 3600)))
    texts = write_texts(folder)
    runs = folder / "runs"
    for kind in KINDS:
        done = run_child(lambda kind=kind: train(small_recipe(kind, texts), runs / kind), log=folder / "made.log")  # type: ignore[misc]
        assert done.status == 0, done.said()
    import_everything()
    words = ("lstm", texts / "en.txt", "-o", runs / "long", "--size", "tiny", "--budget", "100000000steps")
    settings = ("--set", "train.save_seconds=5", "--set", "train.evaluate_every=2000", "--documents", "blank")
    started = {
        "train": _start(folder, "train", *words, *settings),
        "serve": _start(folder, "serve", *(runs / kind for kind in KINDS), "--port", 0, "--prefix-cache", 4),
        "studio": _start(folder, "studio", runs, "--port", 0, "--training-text", texts / "en.txt"),
    }
    try:
        addresses = {name: _address(started[name]) for name in ("serve", "studio")}
        samples, counts, wrong = _load(addresses, started, seconds, scale, runs)
    finally:
        statuses = {name: process.kill(signal.SIGTERM) for name, process in started.items()}
    wrong += [
        f"{name} ended with {status}" for name, status in statuses.items() if status not in (0, 130, -signal.SIGTERM)
    ]
    (folder / "samples.json").write_text(json.dumps(samples))
    for name, series in samples.items():
        slopes = {what: _growth([each[what] for each in series]) for what in ("bytes", "files", "threads")}
        if not scale.quick:
            wrong += [f"{name}: {what} grew by {value:.1%}" for what, value in slopes.items() if value > GROWTH]
        grown = ", ".join(f"{what} {value:+.1%}" for what, value in slopes.items())
        yield Figure(f"soak: {name}", len(series), f"{len(series)} samples in {seconds / 60:.1f} minutes: {grown}")
    told = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    yield Figure("soak: requests", sum(counts.values()), told, shorten(dict.fromkeys(wrong)))


def _start(folder: Path, *words: object) -> Child:
    return lmlab(*words, log=folder / f"{words[0]}.log", environment={"OMP_NUM_THREADS": "1", "LMLAB_TOKEN": TOKEN})


def _address(process: Child) -> str:
    """Where a server answers, from what it prints."""
    while process.wait(0.1) is None:
        if found := re.search(r"http://[\w.]+:\d+", process.said()):
            return found[0]
    raise RuntimeError(process.said()[-500:])


def _load(
    addresses: dict[str, str], started: dict[str, Child], seconds: float, scale: Scale, runs: Path
) -> tuple[dict[str, list[dict[str, int]]], Counter[str], list[str]]:
    """Send requests for so long; the samples of each process, how often each request was answered, and what failed."""
    import httpx

    samples: dict[str, list[dict[str, int]]] = {name: [] for name in started}
    counts, wrong, random = Counter[str](), list[str](), scale.random("soak")
    headers = {"authorization": f"Bearer {TOKEN}"}
    clients = {name: httpx.Client(base_url=each, headers=headers, timeout=60) for name, each in addresses.items()}
    begin, jobs = time.monotonic(), 0
    every = max(seconds / 600, 0.5)
    while (now := time.monotonic() - begin) < seconds:
        if now >= every * max(map(len, samples.values())):
            for name, process in started.items():
                samples[name].append(_sample(process.pid))
        if now >= jobs * max(seconds / 60, 30):
            jobs += 1
            shutil.rmtree(runs / "short", ignore_errors=True)
            asked = {"models": ["lstm"], "name": "short", "budget": "20steps", "size": "tiny", "tokenizer": "words"}
            found = clients["studio"].post("/studio/api/jobs", json=asked)
            busy = found.status_code == 400 and "jobs are running" in found.text
            wrong += _check("studio: training", found, counts, refused=busy)
        name, path, body = _request(random)
        if body is not None and body.get("stream"):
            wrong += _stream(clients[name], path, body, counts, abandon=bool(random.getrandbits(1)))
        else:
            found = clients[name].get(path) if body is None else clients[name].post(path, json=body)
            wrong += _check(f"{name}: {path.rpartition('/')[2]}", found, counts, refused=body is REFUSED)
        time.sleep(PAUSE)
    for client in clients.values():
        client.close()
    return samples, counts, wrong


def _request(random: Random) -> tuple[str, str, dict[str, Any] | None]:
    """Who is asked, for what."""
    text, model = f"say {random.randrange(300)} and", random.choice(("gpt2", "ngram"))
    completion = {"model": model, "prompt": text, "max_tokens": 8, "seed": random.randrange(1000)}
    asked: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
        ("serve", "/v1/completions", completion),
        ("serve", "/v1/completions", {**completion, "n": 3, "logprobs": 2}),
        ("serve", "/v1/completions", {**completion, "stream": True}),
        ("serve", "/v1/completions", REFUSED),
        ("serve", "/v1/embeddings", {"model": "bert", "input": text}),
        ("serve", "/metrics", None),
        ("studio", "/studio/api/runs", None),
        ("studio", "/studio/api/curves?run=gpt2", None),
        ("studio", "/studio/api/next", {"runs": [model], "text": text}),
        ("studio", "/studio/api/surprisal", {"runs": ["gpt2"], "text": text}),
        ("studio", "/studio/api/attention", {"run": "gpt2", "text": text}),
        ("studio", "/studio/api/next", REFUSED),
    )
    return random.choice(asked)


def _check(name: str, response: Any, counts: Counter[str], *, refused: bool = False) -> list[str]:
    counts[f"{name}{' refused' * refused}"] += 1
    fits = 400 <= response.status_code < 500 if refused else response.status_code == 200
    return [] if fits else [f"{name}: {response.status_code} {response.text[:200]}"]


def _stream(client: Any, path: str, body: dict[str, Any], counts: Counter[str], *, abandon: bool) -> list[str]:
    """Read a stream to its end, or hang up after the first event."""
    with client.stream("POST", path, json=body) as response:
        if response.status_code != 200:
            return [f"stream: {response.status_code}"]
        for number, _ in enumerate(response.iter_lines()):
            if abandon and number:
                break
    counts[f"serve: streams {'abandoned' if abandon else 'read'}"] += 1
    return []


def _sample(pid: int) -> dict[str, int]:
    """Memory, open files and threads of a process."""
    try:
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        files = len(os.listdir(f"/proc/{pid}/fd"))
        return {"bytes": int(fields["VmRSS"].split()[0]) << 10, "files": files, "threads": int(fields["Threads"])}
    except (OSError, KeyError):
        raise RuntimeError(f"process {pid} has ended") from None


def _growth(series: list[int]) -> float:
    """What a straight line through the last three quarters gains, as a fraction of its start."""
    rest = np.array(series[len(series) // 4 :], dtype=np.float64)
    if len(rest) < 3:
        return 0.0
    slope, start = np.polyfit(np.arange(len(rest)), rest, 1)
    return float(slope * len(rest) / start)
