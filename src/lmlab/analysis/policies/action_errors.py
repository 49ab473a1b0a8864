"""How well a policy predicts the actions of held-out episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lmlab.analysis.view import Viewed
from lmlab.data.corpora.episodes import EpisodeSplit
from lmlab.data.loaders.episode_windows import cut_windows, read_windows
from lmlab.decoding.actor import Actor
from lmlab.metrics.metric import Direction, Floats, SummedMetric, divide
from lmlab.metrics.statistics import Estimate, estimate
from lmlab.pages.views import Table

BATCH = 64


class MeanError(SummedMetric):
    """The mean of the errors of single actions; an episode is a unit of its interval."""

    name = "action_error"
    better: Direction = "lower"
    bounds = (0.0, float("inf"))

    def statistics(self, predicted: Sequence[Sequence[float]], true: Sequence[Any]) -> Floats:
        return np.array([[sum(each), len(each)] for each in predicted], np.float64)

    def value(self, totals: Floats) -> Floats:
        return divide(totals[..., 0], totals[..., 1], empty=float("nan"))


@dataclass(frozen=True)
class ActionErrors(Viewed):
    """The error of the actions that a run predicts, beside that of always the same action."""

    run: str
    discrete: bool
    episodes: int
    actions: int
    action_error: Estimate
    baseline_error: Estimate

    @property
    def title(self) -> str:  # type: ignore[override]
        return "Prediction of actions"

    def lead(self) -> str:
        kind = "are wrong" if self.discrete else "is the mean squared error (actions from -1 to 1)"
        value = f"{self.action_error.value:.1%}" if self.discrete else f"{self.action_error.value:.4f}"
        return f"{value} {'of the predicted actions ' if self.discrete else ''}{kind}: {self.run}"

    def table(self) -> Table:
        rows = [("predicted", *self.action_error[:3]), ("always the same action", *self.baseline_error[:3])]
        how = ".1%" if self.discrete else ".4f"
        return Table(("action", "error", "from (95%)", "to"), rows, formats=("", how, how, how))

    def notes(self) -> Sequence[str]:
        return [
            f"{self.actions:,} actions in {self.episodes:,} episodes; the model is given the return that each episode "
            "reached. How well it acts is shown by lmlab act."
        ]


def measure_actions(
    actor: Actor, data: EpisodeSplit, *, run: str, progress: Callable[[int, int], None] | None = None
) -> ActionErrors:
    """Return the errors of the actions in episodes, with 95% intervals over episodes."""
    errors = predict_errors(actor, data, progress=progress)
    discrete = actor.processor.discrete
    mean = data.actions.mean(0)
    usual = np.eye(len(mean), dtype=np.float32)[mean.argmax()] if discrete else mean
    same = (data.actions != usual).any(1) if discrete else ((data.actions - usual) ** 2).mean(1)
    by_episode = [
        [each[start : start + length].tolist() for start, length in zip(data.starts, data.lengths, strict=True)]
        for each in (errors, same.astype(np.float64))
    ]
    numbers = list(range(len(data.starts)))
    found, baseline = (estimate(MeanError(), each, numbers) for each in by_episode)
    return ActionErrors(run, discrete, len(numbers), data.size, found, baseline)


def predict_errors(actor: Actor, data: EpisodeSplit, *, progress: Callable[[int, int], None] | None = None) -> Floats:
    """The error of each action [N]: 0 or 1 of a discrete one, the squared error of a continuous one."""
    model: Any = actor.model
    windows = cut_windows(data, window=model.window)
    errors = np.zeros(data.size, np.float64)
    for begin in range(0, len(windows), BATCH):
        chosen = windows[begin : begin + BATCH]
        raw = read_windows(data, chosen)
        inputs = {name: torch.from_numpy(value).to(model.device) for name, value in raw._asdict().items()}
        with torch.inference_mode():
            scores = model.scores(model(**inputs).hidden).float().cpu().numpy()
        for row, (start, length, _) in enumerate(chosen.tolist()):
            found, taken = scores[row, :length], raw.actions[row, :length]
            if actor.processor.discrete:
                errors[start : start + length] = found.argmax(-1) != taken.argmax(-1)
            else:
                errors[start : start + length] = ((found - taken) ** 2).mean(-1)
        if progress is not None:
            progress(min(begin + BATCH, len(windows)), len(windows))
    return errors
