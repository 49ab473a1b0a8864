"""A benchmark of a few seconds, from which the time of a whole run on this machine is estimated."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import torch

from lmlab.costs.design import Design
from lmlab.costs.estimate import Speed, needed_memory
from lmlab.data.corpora.synthetic import synthetic_pairs, synthetic_text, synthetic_tokenizer
from lmlab.data.loaders.loader import Loader
from lmlab.models import find, frame_of
from lmlab.models.model import Model
from lmlab.objectives import create_objective, load_objective
from lmlab.objectives.objective import Objective
from lmlab.training.devices import keep_buffers
from lmlab.training.energy_meter import Cost
from lmlab.training.evaluation import Validator
from lmlab.training.learner import Learner
from lmlab.training.settings import TrainConfig
from lmlab.training.trainer import Trainer

SECONDS = 4.0
"""How long the benchmark trains after its warm-up; longer if that were fewer than LEAST_STEPS."""
LEAST_STEPS = 3
VALIDATION_SECONDS = 1.0
VALIDATION_ROWS = 16
"""Rows of a batch of validation."""
TEXT = 200_000
"""Tokens of synthetic text, at least."""
LONGEST_STEP = 10.0
"""Seconds that one step of the benchmark may take; a model that needs more gets fewer rows."""
ROOM = 0.7
"""The fraction of the memory of the machine that the benchmark may use."""


def measure_speed(model: Model, design: Design, config: TrainConfig, *, moments: int) -> tuple[Speed, int]:
    """The speed and the energy of training on this machine, and the batch size with which they were measured.

    First a large matrix product, for the peak of the machine; then some steps of the trainer with the objective and
    batch size of the system (smaller if that would take too long or too much memory), on synthetic text.
    """
    device = model.device
    keep_buffers()
    peak = matrix_rate(device)
    rows = affordable_rows(design, wanted=config.batch, peak=peak, memory=machine_memory(device), moments=moments)
    objective, text = synthetic_task(model, design, tokens=max(TEXT, 4 * rows * design.window), seed=config.seed)
    streams = config.streams(stateful=model.stateful)
    loader = objective.loader(text, batch=rows, window=design.window, seed=config.seed, streams=streams)
    learner = Learner(model, objective)
    warm = Trainer(learner, loader, config.model_copy(update={"budget": "2steps"})).run()
    seconds = max(SECONDS, LEAST_STEPS * warm.seconds / 2)
    progress = Trainer(learner, loader, config.model_copy(update={"budget": f"{seconds}s", "log_every": 10})).run()
    cost = Cost(*progress.cost)
    units = loader.units_per_step
    counted = units.get("targets", units["tokens"]) / units["tokens"]
    held_out = objective.loader(text, batch=min(rows, VALIDATION_ROWS), window=design.window, seed=0, streams=streams)
    speed = Speed(
        machine=machine_name(device),
        tokens_per_second=counted * progress.tokens / progress.seconds,
        validation_tokens_per_second=_validation_rate(learner, held_out),
        watts=cost.joules / cost.seconds,
        peak=peak,
        memory=machine_memory(device),
        method=progress.energy_method,
    )
    return speed, rows


def synthetic_task(model: Model, design: Design, *, tokens: int, seed: int) -> tuple[Objective, Any]:
    """The objective of a system, and synthetic data for it: documents, or pairs for a translator."""
    if not design.vocabulary:
        raise ValueError(f"{design.name} reads no text, and the benchmark needs text; compute its cost instead")
    if "text" not in find(design.name).reads:
        raise ValueError(f"{design.name} learns from recordings, and the benchmark has text; leave out the benchmark")
    settings = find(design.name).objective
    specials = load_objective(settings["kind"]).specials
    tokenizer = synthetic_tokenizer(design.vocabulary, specials=specials)
    objective = create_objective(settings, tokenizer, frame_of(model, tokenizer))
    if settings["kind"] != "seq2seq":
        return objective, synthetic_text(tokenizer, tokens=tokens, seed=seed, specials=specials)
    source = getattr(model.config, "source_vocabulary", None)
    mean, longest = design.mean_window, design.window
    return objective, synthetic_pairs(
        tokenizer, source_vocabulary=source, tokens=tokens, mean=mean, longest=longest, seed=seed
    )


def _validation_rate(learner: Learner, loader: Loader) -> float:
    """Validation tokens per second."""
    Validator(learner, loader, steps=1)()
    steps, start = 0, time.perf_counter()
    while steps == 0 or time.perf_counter() - start < VALIDATION_SECONDS:
        Validator(learner, loader, steps=4)()
        steps += 4
    return steps * loader.units_per_step["tokens"] / (time.perf_counter() - start)


def matrix_rate(device: torch.device, *, size: int = 1024, repetitions: int = 5) -> float:
    """The highest FLOP/s of a product of two large square matrices in single precision."""
    a, b = torch.randn(2, size, size, device=device).unbind()
    best = float("inf")
    for _ in range(repetitions + 1):
        _wait(device)
        start = time.perf_counter()
        torch.mm(a, b)
        _wait(device)
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best


def affordable_rows(design: Design, *, wanted: int, peak: float, memory: float, moments: int) -> int:
    """The largest batch size, up to `wanted`, for which this machine has the memory and the time."""
    rows = wanted
    while True:
        seconds = design.training_flops * rows * design.window / (0.5 * peak)
        needed = needed_memory(design, batch=rows, devices=1, moments=moments, half=False)["single"].total
        if needed <= ROOM * memory and (seconds <= LONGEST_STEP or rows == 1):
            return rows
        if rows == 1:
            raise ValueError(
                f"{design.name} {design.size} needs about {needed / 1e9:.1f} GB to train, and this machine has "
                f"{memory / 1e9:.1f}; choose other --hardware, such as a100"
            )
        rows //= 2


def machine_name(device: torch.device) -> str:
    """The name of the processor or GPU of this machine."""
    if device.type == "cuda":
        return f"this machine ({torch.cuda.get_device_name(device)})"
    return f"this machine ({torch.get_num_threads()} threads of {_processor()})"


def machine_memory(device: torch.device) -> float:
    """The memory of a device in bytes."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return 8e9


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
