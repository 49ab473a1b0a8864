"""Action prediction: predict each action of an episode from what is to be gained, the state, and the steps before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.episodes import EpisodeSplit
from lmlab.data.loaders.episode_windows import EpisodeLoader, EpisodeWindows
from lmlab.metrics.metric import Average, StreamingMetric
from lmlab.models.abilities import ChoosesActions, State, require
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch, Loss, PreTraining
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame


class ActionsConfig(Config):
    """The loss has no settings: it follows from the kind of the actions."""


class Actions(PreTraining):
    """−log P(a_t) of discrete actions; the mean of (a_t − â_t)² of continuous ones (Chen et al. 2021, section 3)."""

    Config: ClassVar[type[Config]] = ActionsConfig
    reads: ClassVar[tuple[str, ...]] = ("episodes",)
    default_for: ClassVar[tuple[str, ...]] = ("episodes",)
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = False
    loss_weights: ClassVar[Mapping[str, float]] = {"actions": 1.0}
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {"action_error": partial(Average, "lower")}
    """The fraction of wrong actions; of continuous ones the mean squared error."""

    def __init__(
        self, config: ActionsConfig | None = None, tokenizer: Tokenizer | None = None, frame: Frame | None = None
    ) -> None:
        self.config = config or ActionsConfig()

    @classmethod
    def needs(cls, config: object) -> tuple[type, ...]:
        return (ChoosesActions,)

    def loader(self, data: EpisodeSplit, *, batch: int, window: int, seed: int, streams: bool) -> EpisodeLoader:
        return EpisodeLoader(data, batch=batch, window=window, seed=seed)

    def batch(self, raw: EpisodeWindows, generator: np.random.Generator | None = None) -> Batch:
        """The windows; as labels which of their steps are no padding."""
        numbers = torch.get_default_dtype()
        given = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in raw._asdict().items()}
        inputs = {name: each.to(numbers) if each.is_floating_point() else each for name, each in given.items()}
        real = torch.arange(raw.states.shape[1]) < inputs["lengths"][:, None]
        count = int(raw.lengths.sum())
        return Batch(inputs, {"real": real}, {"actions": count}, {"actions": count})

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        chooser, real = require(model, ChoosesActions), batch.labels["real"]
        hidden: Tensor = model(**batch.inputs).hidden
        scores, taken = chooser.scores(hidden[real]), batch.inputs["actions"][real]
        if chooser.discrete:
            right = taken.argmax(-1)
            loss, errors = F.cross_entropy(scores, right, reduction="sum"), (scores.argmax(-1) != right).float()
        else:
            errors = (scores - taken).square().mean(-1)
            loss = errors.sum()
        return Loss({"actions": loss}, watched={"action_error": errors.detach()})

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        rows, steps = batch.inputs["states"].shape[:2]
        return PASSES * (rows * steps * model.body_flops(steps) + batch.counts["actions"] * model.head_flops())
