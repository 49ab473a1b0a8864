"""How far a training run is."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, model_validator

RENAMED = {"measures": "metric_sums", "best_measures": "best_metrics", "share": "fraction"}
"""Old names of fields in `progress.json`, and what they are called now."""


class TrainingProgress(BaseModel):
    """How far a training run is: written with each checkpoint as `progress.json`, and read back on resuming."""

    step: int = 0
    units: dict[str, int] = {}  # read so far: tokens, examples …
    flops: float = 0.0
    seconds: float = 0.0  # of training, without validation and checkpoints: what a budget in time counts
    cost: tuple[float, ...] = (0.0, 0.0, 0.0)  # in all: seconds, CPU seconds, joules, GPU seconds
    training_cost: tuple[float, ...] = (0.0, 0.0, 0.0)  # the same, without validation and checkpoints
    energy_method: str = ""
    loss_sum: float = 0.0  # nats since the last line of metrics
    loss_count: int = 0
    metric_sums: dict[str, tuple[float, int]] = {}  # with their counts, since then
    gradient: float = 0.0  # norm, at the last step
    evaluations: int = 0  # validations that were due, including those left out to save time (budget in time)
    evaluation_batches: dict[str, int] = {}  # read in each, by language, if a budget in time limits them
    validation_seconds: tuple[float, float] = (0.0, 0.0)  # of all validations so far, and of the last one
    best: float | None = None  # nats per prediction on validation text, of the best weights
    best_metrics: dict[str, float] = {}
    best_bits: float | None = None  # per byte, if the loss is the likelihood of the text
    best_step: int = 0
    losses: list[float] = []  # of all validations, if they decide when averaging begins
    stale: int = 0  # validations since the best one
    plateau: float = 1.0  # factor of the learning rate
    plateau_stale: int = 0
    fraction: float = 0.0  # of the budget, spent so far
    valid: float | None = None  # loss of the last validation
    ended: str = ""  # "", "budget" or "early"
    metrics_bytes: int = 0  # size of metrics.jsonl at this checkpoint
    metrics_sha256: str = ""  # of these bytes

    @property
    def tokens(self) -> int:
        """Tokens read so far."""
        return self.units.get("tokens", 0)

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, values: Any) -> Any:
        """Checkpoints before 0.3 count only tokens; before 0.6, some fields had other names."""
        if not isinstance(values, dict):
            return values
        values = {RENAMED.get(name, name): value for name, value in values.items()}
        if "tokens" in values:
            values["units"] = {"tokens": values.pop("tokens")}
        return values
