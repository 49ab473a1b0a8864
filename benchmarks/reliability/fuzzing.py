"""Changed files are read, or refused with one of our errors; nothing else escapes, hangs, or takes much memory.

Each block of executions has its own seed, so that a block that kills the process can be repeated, and a long run
continued. The long version runs until every parser has had a million files, or for LMLAB_FUZZ_SECONDS;
LMLAB_FUZZ_READERS=config,recipe takes only these, so that several processes can share the work.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.reliability.figures import Figure, Scale, shorten
from benchmarks.reliability.mutation import change
from benchmarks.reliability.parsers import PARSERS, Parser, make_parser
from benchmarks.reliability.processes import Child

EXECUTIONS = 1_000_000
BLOCK = 20_000
SECONDS = 10
"""Of CPU time; after so long a reader hangs."""
MEMORY = 1 << 30
"""Bytes by which a block of executions may grow; a picture of 64 million pixels, which is read, takes most of them."""
CRASHES = Path(__file__).parents[2] / "tests" / "reliability" / "crashes"
"""Files on which a reader once failed, by parser."""
FREE_LINES = ("config", "recipe", "record", "template", "pairs")
"""Errors of settings have a line for each wrong setting, and those of pairs for each of the first wrong lines."""


def is_ours(error: BaseException, parser: str) -> bool:
    """Whether an error is a ValueError of ours, in one line of words."""
    kind = type(error)
    ours = kind is ValueError or (issubclass(kind, ValueError) and kind.__module__.startswith("lmlab"))
    return ours and bool(str(error)) and (parser in FREE_LINES or "\n" not in str(error))


def try_file(parser: Parser, name: str, data: bytes) -> str | None:
    """Read a file; returns what went wrong, or None."""
    try:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        parser.read(data)
    except BaseException as error:
        if not is_ours(error, name):
            return f"{type(error).__module__}.{type(error).__name__}: {error}"[:300]
        return ""
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def _hangs(number: int, frame: Any) -> None:
    raise SystemError(f"hangs for more than {SECONDS} seconds")


def run_block(
    name: str, parser: Parser, block: int, scale: Scale, *, size: int, trace: Path | None = None
) -> Counter[str]:
    """Read the changed files of a block, and count; failures are written into the folder `failures`.

    `trace` is a file that holds the file that is being read, for the case that the process dies.
    """
    random, counts = scale.random("fuzz", name, block), Counter[str]()
    signal.signal(signal.SIGPROF, _hangs)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    for number in range(size):
        seed = parser.seeds[random.randrange(len(parser.seeds))]
        data = change(seed, parser.seeds, random) if block or number >= len(parser.seeds) else parser.seeds[number]
        if trace is not None:
            trace.write_bytes(data)
        wrong = try_file(parser, name, data)
        counts["read" if wrong is None else "failed" if wrong else "refused"] += 1
        if wrong:
            _keep_failure(scale.folder / "failures", name, data, wrong)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
    if grown > MEMORY:
        counts["failed"] += 1
        _keep_failure(scale.folder / "failures", name, f"block {block}".encode(), f"grew by {grown >> 20} MB")
    return counts


def _keep_failure(folder: Path, name: str, data: bytes, wrong: str) -> None:
    """Keep one file for each kind of error of a parser."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    kind = hashlib.sha256("".join(sign for sign in wrong[:80] if not sign.isdigit()).encode()).hexdigest()[:12]
    if not (folder / name / f"{kind}.txt").exists():
        (folder / name / f"{kind}.bin").write_bytes(data)
        (folder / name / f"{kind}.txt").write_text(wrong)


def fuzzing(scale: Scale) -> Iterator[Figure]:
    """All parsers in turn, a block each, in forked processes; the counts are kept, so that a run can be continued."""
    warnings.simplefilter("ignore")
    kept = scale.folder / "fuzzing"
    kept.mkdir(exist_ok=True)
    chosen = [name for name in os.environ.get("LMLAB_FUZZ_READERS", ",".join(PARSERS)).split(",") if name]
    counts = {name: {} if scale.quick else _read_counts(kept / f"{name}.json") for name in chosen}
    wanted, size = scale.count(40, EXECUTIONS), scale.count(40, BLOCK)
    end = time.monotonic() + float(os.environ.get("LMLAB_FUZZ_SECONDS", "1e9"))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        parsers = {name: make_parser(name, Path(folder)) for name in chosen}
        while time.monotonic() < end and (left := [n for n in chosen if _done(counts[n]) < wanted]):
            for name in left:
                if time.monotonic() > end:
                    break
                own = counts[name]
                found = _forked(name, parsers[name], own.get("blocks", 0), scale, size)
                for key, value in {**found, "blocks": 1}.items():
                    own[key] = own.get(key, 0) + value
                (kept / f"{name}.json").write_text(json.dumps(own))
    failures = sorted((scale.folder / "failures").glob("*/*.txt"))
    for name, own in counts.items():
        wrong = [f"{each.parent.name}: {each.read_text()}" for each in failures if each.parent.name == name]
        yield Figure(
            f"fuzzing: {name}",
            _done(own),
            f"{_done(own):,} files: {own.get('read', 0):,} read, {own.get('refused', 0):,} refused",
            shorten(wrong),
        )


def _read_counts(path: Path) -> dict[str, int]:
    """How many files were read and refused before; nothing where a figure begins anew."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _done(counts: dict[str, int]) -> int:
    return sum(value for name, value in counts.items() if name != "blocks")


def _forked(name: str, parser: Parser, block: int, scale: Scale, size: int) -> dict[str, int]:
    """The counts of a block; if its process dies, it is repeated with a trace of the file that it read last."""
    result, trace, log = (scale.folder / "fuzzing" / f"{name}-{each}" for each in ("block", "last-file", "log"))
    for attempt in (None, trace):
        result.unlink(missing_ok=True)

        def work(attempt: Path | None = attempt) -> None:
            warnings.simplefilter("ignore")
            found = run_block(name, parser, block, scale, size=size, trace=attempt)
            result.write_text(json.dumps(found))

        status = Child(work, log=log).wait()
        if status == 0:
            return dict(json.loads(result.read_text()))
    said = log.read_text(errors="replace")[-200:]
    _keep_failure(
        scale.folder / "failures", name, trace.read_bytes(), f"the process ended with status {status}: {said}"
    )
    return {"failed": 1, "read": 0}


def crashes() -> list[tuple[str, Path]]:
    """The files on which a reader once failed, with the name of the parser."""
    return [(path.parent.name, path) for path in sorted(CRASHES.glob("*/*.bin"))]
