"""What the speed benchmarks share: contestants take turns in one process, and medians are compared."""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from lmlab.layers.kernels.training_linear import cached_casts

INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "asimd", "bf16")

BF16 = ", bf16"
"""Ends the names of contestants under autocast."""
_clock = time.perf_counter


def make_parser(description: str | None, *, repeats: int, rows: Iterable[str] = ()) -> argparse.ArgumentParser:
    """The command line of a script, with the options that all have, and --rows where it has several `rows`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help="rounds over all contestants")
    parser.add_argument("--threads", type=int, default=2)
    if names := list(rows):
        parser.add_argument("--rows", nargs="+", choices=names, default=names, help="some of the rows; all by default")
    parser.add_argument(
        "--processor",
        action="store_true",
        help="processor seconds (with --threads 1), not the clock: for a busy machine",
    )
    return parser


def choose_clock(options: argparse.Namespace) -> None:
    """Measure processor seconds from now on, if the options say so."""
    global _clock
    _clock = time.process_time if options.processor else time.perf_counter


def processor() -> str:
    """The CPU's name and those of its instruction sets that matter for products."""
    path = Path("/proc/cpuinfo")
    fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line) if path.is_file() else {}
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    flags = [name for name in INSTRUCTIONS if name in fields.get("flags", "").split()]
    return f"{fields.get('model name', platform.machine())} ({' '.join(flags)}), torch {torch.__version__}"


def matrix_limit(dtype: torch.dtype = torch.float32) -> float:
    """FLOP/s of a product of two 1024 x 1024 matrices, the best of several."""
    a, b = torch.randn(1024, 1024).to(dtype), torch.randn(1024, 1024).to(dtype)
    return 2 * 1024**3 / min(seconds(lambda: torch.mm(a, b)) for _ in range(20))


def stepper(
    model: nn.Module, loss: Callable[[], Tensor], *, fused: bool, decay: float, half: bool = False
) -> Callable[[], None]:
    """A training step: gradients, clipping at 1, AdamW; with `half` the loss is computed under autocast in bf16."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=decay, fused=fused or None)

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half), cached_casts():
            value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def half_steps(
    losses: Mapping[str, tuple[nn.Module, Callable[[], Tensor]]], *, decay: float
) -> dict[str, Callable[[], None]]:
    """The same steps in bf16 with the fused AdamW, on the same models; none where the CPU has no bf16."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return {}
    return {
        f"{name}{BF16}": stepper(model, loss, fused=True, decay=decay, half=True)
        for name, (model, loss) in losses.items()
        if "fused" in name or name == "lmlab"
    }


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
    begin = _clock()
    run()
    return _clock() - begin


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
