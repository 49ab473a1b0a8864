"""The settings of a training run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from lmlab.config import Config
from lmlab.costs.countries import find_grid
from lmlab.training.budget import parse_budget
from lmlab.units import parse_bytes

FIXED = (
    *("seed", "batch", "window", "accumulate", "micro_batches", "exact"),
    *("order", "optimizer", "evaluation_tokens"),
)
"""Settings that cannot be changed in a run that has begun: they determine the order of the data, the state of the
optimizer, and the text on which the best weights were selected."""


class TrainConfig(Config):
    """How a model is trained; the defaults of a system replace these."""

    budget: str = Field(
        "5min", description="training budget: time (90s, 10min), tokens (5Mtokens), steps, epochs or flops (2e13flops)"
    )
    seed: int = Field(0, ge=0, description="random seed")
    batch: int = Field(32, ge=1, description="batch size: sequences (rows) per batch")
    window: int | None = Field(
        None, ge=1, description="sequence length: tokens per row; by default the model's own window, or 64"
    )
    accumulate: int = Field(
        1, ge=1, description="gradient accumulation: batches whose gradients are summed for one step"
    )
    micro_batches: int | None = Field(
        None,
        ge=1,
        description="parts into which the rows of each batch are divided, for several processes or to save memory; by "
        "default one for each process that the run starts with",
    )
    exact: bool = Field(
        False,
        description="sum gradients in a fixed order, with one thread per process, so that the weights are the same "
        "bits for any number of processes",
    )
    order: Literal["auto", "shuffled", "streams", "varied"] = Field(
        "auto",
        description="shuffled windows, or contiguous streams with carried state (truncated BPTT), or the same in "
        "segments of varied length around the window; auto: by model",
    )
    optimizer: Literal["adamw", "adam", "sgd", "adagrad"] = Field(
        "adamw", description="optimizer; adagrad changes only the rows of a table that a batch has (word2vec)"
    )
    rate: float = Field(1e-3, gt=0, description="peak learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of sgd")
    beta1: float = Field(0.9, ge=0, lt=1, description="of adam and adamw: decay of the running mean of gradients")
    beta2: float = Field(
        0.99, ge=0, lt=1, description="of adam and adamw: decay of the running mean of squared gradients"
    )
    average: int | None = Field(
        None,
        ge=1,
        description="averaged weights (NT-ASGD, with sgd): once validation is no better than this many "
        "validations ago, the mean of all later weights is validated and saved",
    )
    decay: float = Field(0.0, ge=0, description="weight decay, on weight matrices only (not on biases and norms)")
    layer_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="layer-wise learning-rate decay (discriminative rates): each layer's fraction of the rate above it",
    )
    unfreeze: int | None = Field(
        None, ge=1, description="gradual unfreezing: steps after which one more layer is trained, from the top down"
    )
    clip: float | None = Field(
        1.0, gt=0, description="gradient clipping: largest norm of the gradient; none for no clipping"
    )
    schedule: Literal["constant", "cosine", "linear", "inverse-sqrt", "plateau", "slanted", "step_decay"] = Field(
        "cosine",
        description="schedule: learning-rate decay after warm-up; slanted: ULMFiT's triangle, a short rise and a long "
        "fall without warm-up; step_decay: the full rate for some epochs, then multiplied by a factor in each",
    )
    warmup: int = Field(
        0, ge=0, description="warm-up: steps in which the learning rate rises from zero; at most a tenth of the budget"
    )
    floor: float = Field(
        0.1, ge=0, le=1, description="final learning rate of cosine and linear, as a fraction of the peak"
    )
    plateau_factor: float = Field(
        0.25, gt=0, lt=1, description="of plateau: factor for the learning rate when the validation loss stops falling"
    )
    plateau_patience: int = Field(
        1, ge=1, description="of plateau: validations without improvement before the rate is reduced"
    )
    step_decay_epochs: int = Field(4, ge=0, description="of step_decay: epochs at the full learning rate")
    step_decay_factor: float = Field(
        0.5, gt=0, lt=1, description="of step_decay: factor for the learning rate in each epoch after these"
    )
    evaluations: int = Field(
        10,
        ge=1,
        description="number of validations in the run, evenly spaced; with a time budget, fewer of them and on fewer "
        "tokens where all would take more than about half the time of training",
    )
    evaluate_every: int | None = Field(
        None, ge=1, description="steps between validations, instead of train.evaluations"
    )
    evaluation_tokens: int = Field(
        32768, ge=1, description="validation tokens used each time; where there are no tokens, images …"
    )
    watch: str = Field("loss", description="metric that selects the best weights: loss, accuracy, bleu …")
    patience: int | None = Field(
        None, ge=1, description="early stopping: validations without improvement before training ends"
    )
    keep: int = Field(0, ge=0, description="checkpoints to keep, one per validation, for lmlab average")
    log_every: int = Field(10, ge=1, description="steps between lines of metrics.jsonl")
    save_seconds: float = Field(60.0, ge=0, description="seconds between checkpoints (0: after every step)")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        description="numeric precision of matrix products; weights, norms and losses are fp32. auto: bf16 on a GPU "
        "that has it, and on a CPU that has it for gpt2, llama and bert from a million parameters on; else fp32",
    )
    memory: str | None = Field(
        None,
        description="of ngram: count on disk with this much memory (512M, 2G), so that the text may be of any length, "
        "and store n-grams in 3 to 8 bytes each; by default all is in memory, and exact",
    )
    compile: bool = Field(False, description="use torch.compile; if that fails, training continues without it")
    country: str | None = Field(
        None,
        description="country of the electricity, for CO2e (SE, DE …); by default LMLAB_COUNTRY, or the world average",
    )
    tensorboard: bool = Field(False, description="also write TensorBoard events (extra: lmlab[track])")

    @property
    def moments(self) -> int:
        """How many numbers the optimizer keeps for each weight."""
        return {"sgd": int(self.momentum > 0), "adagrad": 1}.get(self.optimizer, 2)

    def streams(self, *, stateful: bool) -> bool:
        """Whether text is read in contiguous streams; by default if the model is stateful."""
        return self.order in ("streams", "varied") or (self.order == "auto" and stateful)

    @field_validator("budget", mode="before")
    @classmethod
    def _budget_is_understood(cls, text: str) -> str:
        parse_budget(text)
        return text

    @field_validator("memory")
    @classmethod
    def _memory_is_understood(cls, text: str | None) -> str | None:
        if text is not None:
            parse_bytes(text)
        return text

    @field_validator("country")
    @classmethod
    def _country_is_known(cls, name: str | None) -> str | None:
        if name is not None:
            find_grid(name)
        return name
