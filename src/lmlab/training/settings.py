"""The settings of a training run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from lmlab.config import Config
from lmlab.costs.countries import find_grid
from lmlab.training.budget import parse_budget

FIXED = ("seed", "batch", "window", "accumulate", "order", "optimizer", "evaluation_tokens")
"""Settings that cannot be changed in a run that has begun: they decide in which order the data come, what the optimizer
remembers, and on which text the best weights were found."""


class TrainConfig(Config):
    """How a model is trained; a system's own defaults (its TRAINING) go before these."""

    budget: str = Field("5min", description="time (90s, 10min), tokens (5Mtokens), steps, epochs or flops (2e13flops)")
    seed: int = Field(0, ge=0, description="start of every random number")
    batch: int = Field(32, ge=1, description="rows in a batch")
    window: int | None = Field(None, ge=1, description="tokens in a row; by default the model's own window, or 64")
    accumulate: int = Field(1, ge=1, description="batches whose gradients are summed for one step")
    order: Literal["auto", "shuffled", "streams"] = Field(
        "auto", description="shuffled windows, or contiguous streams with carried state; auto asks the model"
    )
    optimizer: Literal["adamw", "adam", "sgd"] = Field("adamw", description="the rule that updates the weights")
    rate: float = Field(1e-3, gt=0, description="peak learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="of sgd")
    beta1: float = Field(0.9, ge=0, lt=1, description="of adam: memory of the gradient")
    beta2: float = Field(0.99, ge=0, lt=1, description="of adam: memory of its square")
    decay: float = Field(0.0, ge=0, description="weight decay, on matrices only")
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="discriminative rates: each layer learns at this share of the rate above it"
    )
    unfreeze: int | None = Field(
        None, ge=1, description="gradual unfreezing: steps after which one more layer learns, from the top down"
    )
    clip: float | None = Field(1.0, gt=0, description="largest norm of the gradient; none to leave it alone")
    schedule: Literal["constant", "cosine", "linear", "inverse-sqrt", "plateau"] = Field(
        "cosine", description="the learning rate over the run, after warm-up"
    )
    warmup: int = Field(0, ge=0, description="steps over which the rate rises from zero; at most a tenth of the budget")
    floor: float = Field(0.1, ge=0, le=1, description="share of the peak rate at the end of cosine and linear")
    plateau_factor: float = Field(0.25, gt=0, lt=1, description="of plateau: what a standstill multiplies the rate by")
    plateau_patience: int = Field(1, ge=1, description="of plateau: evaluations without progress before it acts")
    evaluations: int = Field(
        10,
        ge=1,
        description="validations in the run, evenly spread; with a budget in time, fewer of them and on fewer tokens "
        "where all would take more than about half the time of training",
    )
    evaluate_every: int | None = Field(None, ge=1, description="steps between validations, in place of that number")
    evaluation_tokens: int = Field(32768, ge=1, description="validation tokens looked at each time")
    watch: str = Field("loss", description="what tells the best weights: the validation loss, or accuracy, bleu …")
    patience: int | None = Field(None, ge=1, description="stop early after so many validations without progress")
    keep: int = Field(0, ge=0, description="evaluation checkpoints kept for averaging (lmlab average)")
    log_every: int = Field(10, ge=1, description="steps between lines of metrics.jsonl")
    save_seconds: float = Field(60.0, ge=0, description="seconds between checkpoints (0: after every step)")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="of the forward pass; auto is bf16 on a GPU that has it"
    )
    compile: bool = Field(False, description="torch.compile the model; goes on without where that fails")
    country: str | None = Field(
        None, description="whose electricity, for CO2e (SE, DE, US …); by default LMLAB_COUNTRY, or the world's average"
    )
    tensorboard: bool = Field(False, description="also write TensorBoard events (extra: lmlab[track])")

    @field_validator("budget")
    @classmethod
    def _budget_is_understood(cls, text: str) -> str:
        parse_budget(text)
        return text

    @field_validator("country")
    @classmethod
    def _country_is_known(cls, name: str | None) -> str | None:
        if name is not None:
            find_grid(name)
        return name
