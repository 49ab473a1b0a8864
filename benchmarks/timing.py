"""What the speed benchmarks share: contestants take turns in one process, and medians are compared."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn


def make_parser(description: str | None, *, repeats: int, rows: Iterable[str] = ()) -> argparse.ArgumentParser:
    """The command line of a script, with the options that all have, and --rows where it has several `rows`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help="rounds over all contestants")
    parser.add_argument("--threads", type=int, default=2)
    if names := list(rows):
        parser.add_argument("--rows", nargs="+", choices=names, default=names, help="some of the rows; all by default")
    return parser


def matrix_limit() -> float:
    """FLOP/s of a product of two 1024 x 1024 matrices, the best of several."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 2 * 1024**3 / min(seconds(lambda: torch.mm(a, b)) for _ in range(20))


def stepper(model: nn.Module, loss: Callable[[], Tensor], *, fused: bool, decay: float) -> Callable[[], None]:
    """A training step: gradients, clipping at 1, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=decay, fused=fused or None)

    def step() -> None:
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def take_turns(
    contestants: Mapping[str, Callable[[], object]], *, repeats: int, calls: int = 1
) -> dict[str, list[float]]:
    """Seconds of each contestant in each round, the median of several calls; one call of each before is not timed."""
    for run in contestants.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            times[name].append(statistics.median(seconds(run) for _ in range(calls)))
    return times


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def print_rows(
    times: Mapping[str, list[float]],
    *,
    work: float,
    unit: str,
    peer: str,
    note: Callable[[str, float], str] | None = None,
) -> None:
    """A row for each contestant: units of work per second, the ratio to the peer, a note on it, and the range."""
    middle = {name: statistics.median(values) for name, values in times.items()}
    width = max(map(len, times)) + 2
    for name, values in times.items():
        cells = [f"{work / middle[name]:10.1f} {unit}/s", f"{middle[peer] / middle[name]:5.2f}x"]
        if note is not None:
            cells.append(note(name, middle[name]))
        cells.append(f"({min(values) * 1e3:.1f}-{max(values) * 1e3:.1f} ms)")
        print(f"  {name:{width}}{'   '.join(cells)}", flush=True)
