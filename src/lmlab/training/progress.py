"""Where a training run stands."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, model_validator


class Progress(BaseModel):
    """All of it is written with a checkpoint and read back on resuming."""

    step: int = 0
    units: dict[str, int] = {}  # read so far: tokens, examples …
    flops: float = 0.0
    seconds: float = 0.0  # of training: what a budget in time counts; validation and checkpoints are left out
    cost: tuple[float, ...] = (0.0, 0.0, 0.0)  # of everything: wall seconds, CPU seconds, joules, GPU seconds
    training_cost: tuple[float, ...] = (0.0, 0.0, 0.0)  # the same, validation and checkpoints left out
    energy_method: str = ""
    loss_sum: float = 0.0  # nats since the last line of metrics
    loss_count: int = 0
    measures: dict[str, tuple[float, int]] = {}  # sums and counts since then
    gradient: float = 0.0  # norm, at the last step
    evaluations: int = 0  # that were due; of a budget in time, those left out to save time are counted too
    evaluation_batches: dict[str, int] = {}  # read in each, by language, where a budget in time allows only so many
    validation_seconds: tuple[float, float] = (0.0, 0.0)  # of all validations so far, and of the last one
    best: float | None = None  # nats per prediction on validation text, of the best weights
    best_measures: dict[str, float] = {}
    best_bits: float | None = None  # per byte, where the loss is the likelihood of the text
    best_step: int = 0
    losses: list[float] = []  # of all validations, where they decide when averaging begins
    stale: int = 0  # validations since the best one
    plateau: float = 1.0
    plateau_stale: int = 0
    share: float = 0.0  # of the budget that is spent
    valid: float | None = None
    ended: str = ""  # "", "budget" or "early"
    metrics_bytes: int = 0

    @property
    def tokens(self) -> int:
        """Tokens read so far."""
        return self.units.get("tokens", 0)

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, values: Any) -> Any:
        """Checkpoints before 0.3 count tokens alone."""
        if isinstance(values, dict) and "tokens" in values:
            values = {**values, "units": {"tokens": values["tokens"]}}
            del values["tokens"]
        return values
