"""What the terminal shows of preparation and training: bars where there is a screen, lines where there is none."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from lmlab.cli.console import Console
from lmlab.runs.jobs import RunPlan
from lmlab.training.progress import TrainingProgress
from lmlab.units import read_speed

if TYPE_CHECKING:
    from lmlab.runs.jobs import Reporter


class TrainingDisplay:
    """Draws the progress bars of training on standard error; `several` runs are named by their folders."""

    def __init__(self, *, several: bool = False) -> None:
        self.several = several
        self.console = Console(file=sys.stderr, highlight=False)
        self.bars = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.stages: dict[str, TaskID] = {}
        self.task: TaskID | None = None
        self.last: dict[str, Any] = {}

    def __enter__(self) -> TrainingDisplay:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def stage(self, name: str, done: int, total: int) -> None:
        if name not in self.stages:
            self.stages[name] = self.bars.add_task(name, total=max(total, 1), detail="")
        self.bars.update(self.stages[name], completed=done, total=max(total, 1))

    def begin(self, plan: RunPlan) -> None:
        corpus, recipe = plan.corpus, plan.recipe
        size = f"{plan.parameters:,} parameters, " if plan.parameters is not None else ""
        held = ", ".join(
            f"{name} {split.describe()}"
            for name, split in (("train", corpus.train), ("valid", corpus.valid), ("test", corpus.test))
            if split is not None
        )
        tokenizer = corpus.tokenizer
        cut = "" if tokenizer is None else f"tokenizer {tokenizer.spec} ({tokenizer.vocabulary:,} types); "
        name = plan.path.name if self.several else recipe.kind
        self.console.print(f"{name}: {size}{cut}{held}", markup=False)
        for found in corpus.checked:
            self.console.print(f"  {found}", markup=False, soft_wrap=True)
        self.task = self.bars.add_task(f"train {escape(name)}", total=1.0, detail="")

    def log(self, line: dict[str, Any], progress: TrainingProgress) -> None:
        assert self.task is not None
        self.last |= {key: value for key, value in line.items() if value is not None}
        fraction = 1.0 if progress.ended else progress.fraction
        left = f"  {_clock(progress.seconds * (1 - fraction) / fraction)} left" if 0 < fraction < 1 else ""
        detail = _detail(self.last) + left
        self.bars.update(self.task, completed=fraction, detail=detail)
        if not self.console.is_terminal and "valid_loss" in line:
            self.console.print(f"step {line['step']}  {detail}", soft_wrap=True)
            self.last = {}  # so that no line repeats an earlier one


def _detail(values: dict[str, Any]) -> str:
    parts = []
    if "loss" in values:
        chance = f" (chance {values['chance']:.3f})" if "chance" in values else ""
        parts.append(f"loss {values['loss']:.3f}{chance}")
    if "bits_per_byte" in values:
        parts.append(f"{values['bits_per_byte']:.3f} bits/byte")
    if "valid_bits_per_byte" in values:
        parts.append(f"valid {values['valid_bits_per_byte']:.3f} bits/byte")
    elif "valid_loss" in values:
        chance = f" (chance {values['valid_chance']:.3f})" if "valid_chance" in values else ""
        parts.append(f"valid loss {values['valid_loss']:.3f}{chance}")
    for name in ("accuracy", "pair_accuracy", "match_accuracy", "detection_accuracy", "bleu"):
        if (value := values.get(f"valid_{name}", values.get(name))) is not None:
            parts.append(f"{name.replace('_', ' ')} " + (f"{value:.1f}" if name == "bleu" else f"{value:.1%}"))
    if "rate" in values:
        parts.append(f"rate {values['rate']:.2g}")
    if (speed := read_speed(values)) is not None:
        parts.append(f"{speed[1]:,.0f} {speed[0]}/s")
    parts.append(f"{values['cost']['joules'] / 3600:.2g} Wh")
    return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"


def catch_interrupts() -> Callable[[], bool]:
    """Whether somebody has asked to stop: work is to finish its step and save then; a second time ends it at once."""
    caught: list[int] = []

    def catch(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)

    signal.signal(signal.SIGINT, catch)
    signal.signal(signal.SIGTERM, catch)
    return lambda: bool(caught)


class Stopping:
    """Passes on what a run reports; where somebody wants to stop while the text is prepared, that ends it."""

    def __init__(self, display: Reporter, interrupted: Callable[[], bool]) -> None:
        self.display, self.interrupted = display, interrupted
        self.begin, self.log = display.begin, display.log

    def stage(self, name: str, done: int, total: int) -> None:
        if self.interrupted():
            raise KeyboardInterrupt("Interrupted while the text was being prepared: nothing was written.")
        self.display.stage(name, done, total)
