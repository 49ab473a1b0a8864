"""The training loop: one function, the same for pre-training and fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import torch
from pydantic import BaseModel
from torch import Tensor

from lmlab.costs.countries import find_grid
from lmlab.costs.parameters import count_parameters
from lmlab.data.batches.loaders import Loader
from lmlab.models.abilities import State
from lmlab.models.model import Model
from lmlab.objectives.objective import Objective
from lmlab.training.budget import parse_budget
from lmlab.training.costs import Cost, Meter, price_tag
from lmlab.training.evaluation import Evaluation, add_measures, means
from lmlab.training.optimizers import create_optimizer, learning_rate
from lmlab.training.settings import TrainConfig
from lmlab.training.step import Step


class Progress(BaseModel):
    """Where a run stands: all of it is written with a checkpoint and read back on resuming."""

    step: int = 0
    tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0  # of training: what a budget in time counts; validation and checkpoints are left out
    cost: tuple[float, ...] = (0.0, 0.0, 0.0)  # of everything: wall seconds, CPU seconds, joules, GPU seconds
    energy_method: str = ""
    loss_sum: float = 0.0  # nats since the last line of metrics
    loss_count: int = 0
    measures: dict[str, tuple[float, int]] = {}  # sums and counts since then
    evaluations: int = 0
    best: float | None = None  # nats per prediction on validation text, of the best weights
    best_measures: dict[str, float] = {}
    best_step: int = 0
    stale: int = 0  # validations since the best one
    plateau: float = 1.0
    plateau_stale: int = 0
    share: float = 0.0  # of the budget that is spent
    valid: float | None = None
    ended: str = ""  # "", "budget" or "early"
    metrics_bytes: int = 0


class Keeper(Protocol):
    """What the loop needs of a run directory."""

    def load(self, model: Model, optimizer: torch.optim.Optimizer, start: State) -> tuple[Progress, State] | None:
        """Restore the last checkpoint; None where there is none."""

    def save(self, model: Model, optimizer: torch.optim.Optimizer, state: State, progress: Progress) -> None:
        """Write a checkpoint from which training goes on exactly."""

    def save_best(self, model: Model) -> None:
        """Write the weights that users will load."""

    def keep(self, model: Model, progress: Progress) -> None:
        """Set the weights of a validation aside, to be averaged later, if that is wanted."""

    def log(self, line: dict[str, Any], progress: Progress) -> None:
        """Append a line to the metrics."""

    def due(self) -> bool:
        """True when it is time for a checkpoint."""


class NotFiniteError(ValueError):
    """The loss or its gradient is no longer a number."""


def train(
    model: Model,
    objective: Objective,
    loader: Loader,
    config: TrainConfig,
    *,
    evaluate: Callable[[], Evaluation] | None = None,
    bytes_per_token: tuple[float, float] | None = None,
    keeper: Keeper | None = None,
    on_log: Callable[[dict[str, Any], Progress], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Progress:
    """Train until the budget is spent, validation stands still, or `interrupted` says so.

    `evaluate` gives the validation loss in nats per prediction; `bytes_per_token` of the training and the validation
    text turn losses into bits per byte; `keeper` writes checkpoints and metrics and restores them.
    """
    optimizer = create_optimizer(model, config)
    budget = parse_budget(config.budget)
    last_step, flops_per_step = plan_steps(model, objective, loader, config)
    progress, state = Progress(), None
    if keeper is not None:
        start = cast(Any, model).start(loader.batch_size) if model.carries else None
        progress, state = keeper.load(model, optimizer, start) or (progress, state)
    step = Step(model, objective, loader, config, optimizer)
    meter, grid = Meter(model.device), find_grid(config.country)
    progress.energy_method = meter.method

    def spend(*, training: bool) -> Cost:
        cost = meter.lap()
        progress.cost = Cost(*progress.cost).plus(cost)
        progress.seconds += cost.seconds if training else 0.0
        return cost

    def log(values: dict[str, Any]) -> None:
        cost = Cost(*progress.cost)
        rate = progress.tokens / progress.seconds if progress.seconds else 0.0
        so_far = {**cost._asdict(), "grams": grid.grams(cost.joules), "tokens_per_second": rate}
        line = {"step": progress.step, "tokens": progress.tokens, "flops": progress.flops, **values, "cost": so_far}
        if keeper is not None:
            keeper.log(line, progress)
        if on_log is not None:
            on_log(line, progress)

    def bits(nats: float, *, valid: bool) -> float | None:
        return nats / math.log(2) / bytes_per_token[valid] if bytes_per_token is not None else None

    def share() -> float:
        """How much of the budget is spent, 0 to 1."""
        return progress.seconds / budget.amount if last_step is None else progress.step / last_step

    def spent() -> bool:
        """Whether the budget does not pay for another step (in time: one of average length)."""
        if last_step is not None:
            return progress.step >= last_step
        return progress.seconds * (1 + 1 / max(1, progress.step)) > budget.amount

    def validate() -> None:
        if evaluate is None:
            return
        spend(training=True)
        progress.evaluations += 1
        found = evaluate()
        progress.valid = _check(found.loss, "validation loss", progress.step, keeper)
        better = progress.best is None or found.cost(config.watch) < Evaluation(
            progress.best, progress.best_measures
        ).cost(config.watch)
        if better:
            progress.best, progress.best_measures, progress.best_step = found.loss, found.measures, progress.step
            progress.stale = progress.plateau_stale = 0
            if keeper is not None:
                keeper.save_best(model)
        else:
            progress.stale += 1
            progress.plateau_stale += 1
            if progress.plateau_stale >= config.plateau_patience:
                progress.plateau *= config.plateau_factor
                progress.plateau_stale = 0
        if keeper is not None:
            keeper.keep(model, progress)
        spend(training=False)
        measures = {f"valid_{name}": value for name, value in found.measures.items()}
        likelihood = bits(progress.valid, valid=True)
        log({"valid_loss": progress.valid, "valid_bits_per_byte": likelihood, **measures, "best": better})

    def save() -> None:
        if keeper is not None:
            _check(_largest(step.parameters), "size of the weights", progress.step, keeper)
            keeper.save(model, optimizer, state, progress)

    if progress.ended == "budget" and not spent():
        progress.ended = ""  # the budget was raised
    finished = bool(progress.ended)
    model.train()
    while not progress.ended and not interrupted():
        rate = learning_rate(config, step=progress.step, progress=share(), plateau=progress.plateau)
        taken, state = step(progress.step, rate, state)
        _check(taken.loss, "loss", progress.step + 1, keeper)
        _check(taken.gradient, "gradient", progress.step + 1, keeper)
        progress.step += 1
        progress.tokens += taken.tokens
        progress.flops += flops_per_step
        progress.loss_sum += taken.loss * taken.count
        progress.loss_count += taken.count
        progress.measures = add_measures(progress.measures, taken.measures)
        spend(training=True)
        progress.share = min(1.0, share())
        done = spent()
        if progress.step % config.log_every == 0 or done:
            mean = progress.loss_sum / progress.loss_count
            found = means(progress.measures)
            nats = found.get("nats", mean)  # the plain loss, where training minimises a smoothed one
            line = {"loss": mean, "bits_per_byte": bits(nats, valid=False), **found}
            progress.loss_sum, progress.loss_count, progress.measures = 0.0, 0, {}
            log({**line, "rate": rate, "gradient": taken.gradient})
        every = config.evaluate_every
        if done or (progress.step % every == 0 if every else share() * config.evaluations >= progress.evaluations + 1):
            validate()
            if config.patience is not None and progress.stale >= config.patience:
                progress.ended = "early"
        if done:
            progress.ended = "budget"
        if keeper is not None and keeper.due() and not progress.ended:
            save()
            spend(training=False)
    if keeper is not None and progress.ended and evaluate is None:
        keeper.save_best(model)
    if keeper is not None and progress.ended and not finished:
        tag = price_tag(
            Cost(*progress.cost),
            parameters=count_parameters(model),
            flops=progress.flops,
            method=meter.method,
            grid=grid,
        )
        keeper.log({"step": progress.step, "tokens": progress.tokens, **tag}, progress)
    save()
    step.close()
    model.eval()
    return progress


def plan_steps(model: Model, objective: Objective, loader: Loader, config: TrainConfig) -> tuple[int | None, float]:
    """The number of steps that the budget pays for (None if only the clock can tell) and the FLOPs of one.

    The backward pass is counted as twice the forward pass.
    """
    tokens_per_step = loader.units_per_step["tokens"] * config.accumulate
    flops_per_step = 3 * objective.flops(model, loader) * config.accumulate
    steps = parse_budget(config.budget).steps(
        tokens_per_step=tokens_per_step,
        steps_per_epoch=loader.steps_per_epoch / config.accumulate,
        flops_per_step=flops_per_step,
    )
    return steps, flops_per_step


def _check(value: float, what: str, step: int, keeper: Keeper | None) -> float:
    if math.isfinite(value):
        return value
    kept = "; the last good checkpoint is kept, go on from it with --resume and" if keeper is not None else ": try"
    raise NotFiniteError(f"the {what} became {value} at step {step}{kept} a lower --set train.rate (or more warm-up)")


def _largest(parameters: Sequence[Tensor]) -> float:
    """The largest weight; no number, if one of them is none."""
    with torch.no_grad():
        return max((float(parameter.abs().max()) for parameter in parameters), key=lambda x: (math.isnan(x), x))


def choose_device(name: str) -> torch.device:
    """The device called `name`; auto takes the best there is."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name.partition(":")[0] not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device {name!r} is not known; give auto, cpu, cuda (or cuda:1 …) or mps")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used here: {reason}; try --device cpu") from None
    return device
