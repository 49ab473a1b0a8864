"""The record of a system, and what several records share: frames, sizes for a CPU, AdamW's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lmlab.messages import suggest

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class TaskDefaults:
    """How a system is fine-tuned on a task."""

    frame: Mapping[str, str]
    """Special tokens around one text or two, for each input: see tokenizers/frames.py."""
    pool: str = "last"
    """Which vector represents a whole text: cls (the first), last, mean or concat."""
    activation: str | None = None
    """Activation of the dense layer before a classifier's last layer; None: there is no such layer."""
    hidden: int | None = None
    """Width of that dense layer; None: as wide as its input."""
    bias: bool = True
    """Whether a classifier's last layer has a bias."""
    segment: int | None = None
    """For a stateful model: tokens of a long text read at once; gradients stop between segments."""
    training: Settings = field(default_factory=dict)
    """Settings of `train` that differ from the usual ones of fine-tuning."""


LEFT_TO_RIGHT = {"tokens": "boundary a"}
SENTENCES = {"tokens": "cls:0 a:0 sep:0 b:1 sep:1"}
SOURCE_AND_TARGET = {"source": "a boundary", "tokens": "start b boundary"}

LAST_VECTOR = TaskDefaults(frame={"tokens": "boundary a [boundary b] boundary"})
CLS_VECTOR = TaskDefaults(frame=SENTENCES, pool="cls", activation="tanh")
ENCODER_MEAN = TaskDefaults(frame={"source": "a boundary b boundary"}, pool="mean")

ADAMW: Settings = {"optimizer": "adamw", "schedule": "cosine", "batch": 16, "clip": 1.0, "decay": 0.01}
"""What most systems are trained with; each adds its learning rate."""


CPU_WINDOW = 256
"""The longest window of the sizes for a CPU; the published ones of masked models have 512."""
SHORTEST_WINDOW = 64
"""The shortest window for which rows are shorter at first."""
SHORT_FRACTION = 0.8
"""The fraction of the steps with short rows."""
SHORT_MASKING_RATE = 0.4
"""The fraction of the tokens of short rows that are masked; a detector of replaced tokens keeps its usual one."""


@dataclass(frozen=True)
class System:
    """One row of the lineage: what a system is, its presets, and the defaults that suit it."""

    name: str
    where: str  # "module:Class"
    year: int
    paper: str
    summary: str
    builds_on: tuple[str, ...] = ()
    """The systems that it comes from, the closest first: the edges of the family tree in the documentation."""
    does: tuple[str, ...] = ("next token", "vectors")
    """What it can do (names of abilities.ABILITIES), in its smallest size; the first is what it is known for."""
    trained_by: Literal["gradient", "counting"] = "gradient"
    sizes: Mapping[str, Settings] = field(default_factory=lambda: {"small": {}})
    """Presets of Config fields: those for a CPU, then those of the paper under the names that it gave them."""
    default_size: str = "small"
    """The preset that is used unless the user names another; it trains on a CPU."""
    objective: Settings = field(default_factory=lambda: {"kind": "causal"})
    short_rows: tuple[int, ...] = ()
    """Row lengths with which pre-training begins at a size for a CPU (objective.short)."""
    reads: tuple[str, ...] = ("text",)
    """The kinds of data that it learns from (lmlab.data.DATA); DATA without a kind is of the first."""
    tokenizer: str | None = "bpe:4096"
    """None for a model that reads no text."""
    frame: Mapping[str, str] = field(default_factory=lambda: LEFT_TO_RIGHT)
    """Special tokens around a text in pre-training, for each input: see tokenizers/frames.py."""
    training: Settings = field(default_factory=dict)
    """Settings of `train` in pre-training."""
    tuned_width: int | None = None
    """The width at which the learning rate was tuned; a wider network learns with smaller steps (runs/recipe.py)."""
    continued: Settings = field(default_factory=dict)
    """Settings of `train` that differ where it starts from the weights of a run, on other text."""
    task: TaskDefaults = LAST_VECTOR

    def objective_for(self, model: Settings, *, window: Any = None) -> Settings:
        """The settings of the objective for a size; at those for a CPU a masked model begins with short rows.

        With rows of the whole window a small one predicts little more than frequent tokens for long, because it must
        learn which vector stands for which position (benchmarks/masked_pretraining.py). Published sizes, whose window
        is longer, keep what was published. `window` is the length of the rows, if it is not that of the model.
        """
        longest = model.get("window")
        window = longest if window is None else window
        if not isinstance(longest, int) or not isinstance(window, int):
            return self.objective
        lengths = [length for length in self.short_rows if 2 * length <= window]
        if not lengths or window < SHORTEST_WINDOW or longest > CPU_WINDOW:
            return self.objective
        more = {"short_masking_rate": SHORT_MASKING_RATE} if self.objective["kind"] == "masked" else {}
        return {**self.objective, "short": lengths, "short_fraction": SHORT_FRACTION, **more}

    def preset(self, size: str | None = None) -> dict[str, Any]:
        """The settings of a size, or of the default one; a ValueError names the sizes that there are."""
        size = size or self.default_size
        if size not in self.sizes:
            raise ValueError(f"unknown size {size!r} of {self.name}{suggest(size, self.sizes)}")
        return dict(self.sizes[size])


TINY: Settings = {"width": 64, "heads": 2, "layers": 2, "window": 64, "dropout": 0.0}
SMALL: Settings = {"width": 128, "heads": 4, "layers": 4, "window": 128, "dropout": 0.0}
MEDIUM: Settings = {"width": 256, "heads": 8, "layers": 6, "window": 256, "dropout": 0.1}
XL_TINY: Settings = {"width": 64, "heads": 2, "layers": 2, "inner": 256, "memory": 64, "dropout": 0.0}
XL_SMALL: Settings = {"width": 128, "heads": 4, "layers": 4, "inner": 512, "memory": 128, "dropout": 0.0}
