"""One step of training: batches, gradients, and the update of the weights."""

from __future__ import annotations

import math
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from lmlab.data.batches.loaders import Loader
from lmlab.models.abilities import State
from lmlab.models.model import Model, detach_state
from lmlab.objectives.objective import Batch, Loss, Objective
from lmlab.training.ahead import Ahead
from lmlab.training.evaluation import add_measures, sums
from lmlab.training.settings import TrainConfig


@dataclass(frozen=True)
class Taken:
    """What one step came to."""

    loss: float  # nats per prediction
    count: int  # predictions
    tokens: int  # read
    gradient: float  # norm
    measures: dict[str, tuple[float, int]]


class Step:
    """One update of the weights, with the precision, compilation and accumulation that the settings ask for."""

    def __init__(
        self,
        model: Model,
        objective: Objective,
        loader: Loader,
        config: TrainConfig,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self.model, self.objective, self.loader, self.config, self.optimizer = (
            model,
            objective,
            loader,
            config,
            optimizer,
        )
        self.ahead = Ahead(objective, loader, seed=config.seed)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.device = model.device
        self.dtype = choose_dtype(config.precision, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.unproven = config.compile
        self.close = self.ahead.close
        if config.compile:
            model.compile()

    def __call__(self, step: int, rate: float, state: State) -> tuple[Taken, State]:
        """Give what the step came to, and the state after it."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        total, count, tokens = 0.0, 0, 0
        measures: dict[str, tuple[float, int]] = {}
        scale = 1.0 / self.config.accumulate
        for part in range(self.config.accumulate):
            place = step * self.config.accumulate + part
            if not self.model.carries or self.loader.restarts(place):
                state = None
            batch = self.ahead.batch(place).to(self.device)
            loss, state = self._backward(batch, state, scale)
            total, count, tokens = total + float(loss.total.detach()), count + loss.count, tokens + batch.tokens
            measures = add_measures(measures, sums(loss))
        self.scaler.unscale_(self.optimizer)
        limit = self.config.clip if self.config.clip is not None else math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, limit))
        if math.isfinite(norm) or self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        gradient = norm if not self.scaler.is_enabled() else 0.0
        return Taken(total / max(1, count), count, tokens, gradient, measures), detach_state(state)

    def _backward(self, batch: Batch, state: State, scale: float) -> tuple[Loss, State]:
        if not self.unproven:
            return self._forward_backward(batch, state, scale)
        random = torch.get_rng_state()
        self.unproven = False
        try:
            return self._forward_backward(batch, state, scale)
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            warnings.warn(f"torch.compile failed ({reason}); going on without it", stacklevel=2)
            self.model._compiled_call_impl = None
            self.optimizer.zero_grad(set_to_none=True)
            torch.set_rng_state(random)
            return self._forward_backward(batch, state, scale)

    def _forward_backward(self, batch: Batch, state: State, scale: float) -> tuple[Loss, State]:
        with self._autocast():
            loss, state = self.objective.loss(self.model, batch, state)
        self.scaler.scale(loss.mean * scale).backward()  # type: ignore[no-untyped-call]
        return loss, state

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.dtype is None else torch.autocast(self.device.type, dtype=self.dtype)


def choose_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """The type for autocast, or None for plain fp32."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else None
    if precision == "fp16" and device.type == "cpu":
        raise ValueError("train.precision = 'fp16' needs a GPU; on a CPU use fp32 or bf16")
    return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
