"""The training loop: one function, the same for pre-training and fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from lmlab.costs.countries import find_grid
from lmlab.costs.parameters import count_parameters
from lmlab.data.loaders.loader import Loader
from lmlab.models.abilities import PredictsNext, State
from lmlab.training.budget import parse_budget
from lmlab.training.energy_meter import Cost, Meter, price_tag
from lmlab.training.evaluation import Evaluate, Evaluation, term_name
from lmlab.training.learner import Learner
from lmlab.training.optimizers import learning_rate
from lmlab.training.progress import Progress
from lmlab.training.settings import TrainConfig
from lmlab.training.step import Step, StepResult
from lmlab.training.weight_average import plateaued
from lmlab.units import PER_SECOND, bits_per_byte, main_unit

VALIDATION_SHARE = 0.5
"""The time that all validations of a budget in time may take, relative to that of training."""

ROUNDING = 1e-9
"""An epoch has begun with the step that is so near to its first, whatever the division gave."""


class Keeper(Protocol):
    """What the loop needs of a run directory."""

    def load(self, step: Step, start: State) -> tuple[Progress, State] | None:
        """Restore the last checkpoint; None where there is none."""

    def save(self, step: Step, state: State, progress: Progress) -> None:
        """Write a checkpoint from which training goes on exactly."""

    def save_best(self, learner: Learner) -> None:
        """Write the weights that users will load."""

    def keep(self, learner: Learner, progress: Progress) -> None:
        """Set the weights of a validation aside, to be averaged later, if that is wanted."""

    def log(self, line: dict[str, Any], progress: Progress) -> None:
        """Append a line to the metrics."""

    def due(self) -> bool:
        """True when it is time for a checkpoint."""


class NotFiniteError(ValueError):
    """The loss or its gradient is no longer a number."""


def train(
    learner: Learner,
    loader: Loader,
    config: TrainConfig,
    *,
    planned: Planned | None = None,
    evaluate: Evaluate | None = None,
    bytes_per_token: tuple[float, float] | None = None,
    keeper: Keeper | None = None,
    on_log: Callable[[dict[str, Any], Progress], None] | None = None,
    on_begin: Callable[[Progress], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Progress:
    """Train until the budget is spent, validation stands still, or `interrupted` says so.

    Where training has ended already, and the settings do not let it go on, nothing is done or written; otherwise
    `on_begin` is told where it begins.

    `planned` are the steps, where they were planned already to see whether the settings are right (`plan_steps`);
    `evaluate` gives the validation loss in nats per prediction, and metrics; `bytes_per_token` of the training and the
    validation text turn losses into bits per byte; `keeper` writes checkpoints and metrics and restores them.
    """
    planned = planned or plan_steps(learner, loader, config)
    step = Step(learner, loader, config)
    try:
        return _take_steps(
            step,
            planned,
            evaluate=evaluate,
            bytes_per_token=bytes_per_token,
            keeper=keeper,
            on_log=on_log,
            on_begin=on_begin,
            interrupted=interrupted,
        )
    finally:
        step.close()
        learner.eval()


def _take_steps(
    step: Step,
    planned: Planned,
    *,
    evaluate: Evaluate | None,
    bytes_per_token: tuple[float, float] | None,
    keeper: Keeper | None,
    on_log: Callable[[dict[str, Any], Progress], None] | None,
    on_begin: Callable[[Progress], None] | None,
    interrupted: Callable[[], bool],
) -> Progress:
    """As `train`, which ends what `step` has begun."""
    budget, learner, loader, config = parse_budget(step.config.budget), step.learner, step.loader, step.config
    last_step, flops_per_step = planned
    steps_per_epoch = loader.steps_per_epoch / config.accumulate
    progress, state = Progress(), None
    if keeper is not None:
        stateful = learner.model.stateful
        start = cast(PredictsNext, learner.model).start(loader.batch_size) if stateful else None
        progress, state = keeper.load(step, start) or (progress, state)
    meter, grid = Meter(learner.device), find_grid(config.country)
    progress.energy_method = meter.method
    waits = learner.device.type != "cpu"  # there reading a number waits for all work: only a line of metrics does it
    unread: list[StepResult] = []

    def spend(*, training: bool) -> float:
        cost = meter.lap()
        progress.cost = Cost(*progress.cost).plus(cost)
        if training:
            progress.training_cost = Cost(*progress.training_cost).plus(cost)
            progress.seconds += cost.seconds
        return cost.seconds

    def read() -> None:
        """Take what the steps since the last time came to into the progress."""
        weights = learner.objective.loss_weights
        main = next(iter(weights))
        for number, taken in enumerate(unread, start=progress.step - len(unread) + 1):
            total = check_finite(float(taken.sums[main]), "loss", number, keeper)
            progress.gradient = check_finite(float(taken.gradient), "gradient", number, keeper)
            progress.loss_sum += total
            progress.loss_count += taken.counts[main]
            sums = {
                term_name(name, weights): (taken.sums[name], taken.counts[name]) for name in weights if name != main
            }
            for name, (part, count) in {**sums, **taken.watched}.items():
                before = progress.measures.get(name, (0.0, 0))
                progress.measures[name] = (before[0] + float(part), before[1] + count)
        unread.clear()

    def log(values: dict[str, Any]) -> None:
        cost = Cost(*progress.cost)
        unit = main_unit(progress.units)
        rate = progress.units.get(unit, 0) / progress.seconds if progress.seconds else 0.0
        alone = Cost(*progress.training_cost).joules  # validation and checkpoints left out
        so_far = {**cost._asdict(), "training_joules": alone, "grams": grid.grams(cost.joules)}
        so_far[unit + PER_SECOND] = rate
        line = {"step": progress.step, **progress.units, "flops": progress.flops, **values, "cost": so_far}
        if keeper is not None:
            keeper.log(line, progress)
        if on_log is not None:
            on_log(line, progress)

    def bits(nats: float, *, valid: bool) -> float | None:
        return bits_per_byte(nats, bytes_per_token[valid]) if bytes_per_token is not None else None

    def share() -> float:
        """How much of the budget is spent, 0 to 1."""
        return budget.share(step=progress.step, seconds=progress.seconds, steps=last_step)

    def spent() -> bool:
        return budget.is_spent(step=progress.step, seconds=progress.seconds, steps=last_step)

    bounded = last_step is None and config.evaluate_every is None

    def affordable() -> bool:
        """Whether a validation before the final one leaves all of them within their share of the time.

        Only a budget in time asks: the results of any other must not depend on the clock.
        """
        total, last = progress.validation_seconds
        so_far, in_all = VALIDATION_SHARE * progress.seconds, VALIDATION_SHARE * budget.amount
        return not bounded or not total or (total + last <= so_far and total + 2 * last <= in_all)

    def validate() -> None:
        if evaluate is None:
            return
        spend(training=True)
        progress.evaluations += 1
        with step.average.in_place():
            found, likelihood, better = judge(evaluate)
        if config.average is not None:
            if not step.average.begun and plateaued(found.loss, progress.losses, validations=config.average):
                step.average.begin()
            progress.losses.append(found.loss)
        took = spend(training=False)
        progress.validation_seconds = (progress.validation_seconds[0] + took, took)
        values = {f"valid_{name}": value for name, value in found.values.items()}
        log({"valid_loss": progress.valid, "valid_bits_per_byte": likelihood, **values, "best": better})

    def judge(evaluate: Evaluate) -> tuple[Evaluation, float | None, bool]:
        """Validate, and keep the weights where they are the best so far: what was found, in bits, and whether so."""
        found = evaluate(progress.evaluation_batches, seconds=VALIDATION_SHARE / 2 * budget.amount if bounded else None)
        if bounded:
            progress.evaluation_batches = dict(found.batches)
        progress.valid = check_finite(found.loss, "validation loss", progress.step, keeper)
        likelihood = bits(found.values.get("nats", found.loss), valid=True)
        better = found.improves(progress.best, progress.best_measures, watch=config.watch)
        if better:
            progress.best, progress.best_measures, progress.best_step = found.loss, dict(found.values), progress.step
            progress.best_bits = likelihood
            progress.stale = progress.plateau_stale = 0
            if keeper is not None:
                keeper.save_best(learner)
        else:
            progress.stale += 1
            progress.plateau_stale += 1
            if progress.plateau_stale >= config.plateau_patience:
                progress.plateau *= config.plateau_factor
                progress.plateau_stale = 0
        if keeper is not None:
            keeper.keep(learner, progress)
        return found, likelihood, better

    def save() -> None:
        if keeper is not None:
            read()
            check_finite(_largest(learner.parameters()), "size of the weights", progress.step, keeper)
            keeper.save(step, state, progress)

    if not spent() and (progress.ended == "budget" or not _stands_still(progress, config)):
        progress.ended = ""  # the budget or the patience was raised
    if progress.ended:
        return progress
    if last_step is not None and progress.step and spent():
        raise ValueError(f"a budget of {config.budget} is spent already, at step {progress.step}; give a larger one")
    if on_begin is not None:
        on_begin(progress)
    learner.train()
    while not progress.ended and not interrupted():
        epoch = math.floor(progress.step / steps_per_epoch + ROUNDING)
        rate = learning_rate(config, step=progress.step, progress=share(), plateau=progress.plateau, epoch=epoch)
        taken, state = step(progress.step, rate, state)
        unread.append(taken)
        progress.step += 1
        progress.units = {name: progress.units.get(name, 0) + count for name, count in taken.units.items()}
        progress.flops += flops_per_step
        if not waits:
            read()
        spend(training=True)
        progress.share = min(1.0, share())
        done = spent()
        if progress.step % config.log_every == 0 or done:
            read()
            mean = progress.loss_sum / max(1, progress.loss_count)
            found = {name: total / max(1, count) for name, (total, count) in progress.measures.items()}
            nats = found.get("nats", mean)  # the plain loss, where training minimises a smoothed one
            line = {"loss": mean, "bits_per_byte": bits(nats, valid=False), **found}
            progress.loss_sum, progress.loss_count, progress.measures = 0.0, 0, {}
            log({**line, "rate": rate, "gradient": progress.gradient})
        every = config.evaluate_every
        due = progress.step % every == 0 if every else share() * config.evaluations >= progress.evaluations + 1
        if done or (due and affordable()):
            validate()
            if _stands_still(progress, config):
                progress.ended = "early"
        elif due:
            progress.evaluations += 1
        if done:
            progress.ended = "budget"
        if keeper is not None and keeper.due() and not progress.ended:
            save()
            spend(training=False)
    read()
    if keeper is not None and progress.ended and evaluate is None:
        keeper.save_best(learner)
    if keeper is not None and progress.ended:
        tag = price_tag(
            Cost(*progress.cost),
            parameters=count_parameters(learner),
            flops=progress.flops,
            method=meter.method,
            grid=grid,
        )
        tag["cost"]["training_joules"] = Cost(*progress.training_cost).joules
        keeper.log({"step": progress.step, **progress.units, **tag}, progress)
    save()
    return progress


def _stands_still(progress: Progress, config: TrainConfig) -> bool:
    """Whether validation has not got better for as long as the settings allow."""
    return config.patience is not None and progress.stale >= config.patience


class Planned(NamedTuple):
    """What a budget pays for."""

    steps: int | None  # None if only the clock can tell
    flops_per_step: float


def plan_steps(learner: Learner, loader: Loader, config: TrainConfig) -> Planned:
    """The steps that the budget pays for, of which the loader is told."""
    heads = dict(learner.heads.items())
    flops_per_step = learner.objective.step_flops(learner.model, heads, loader) * config.accumulate
    steps = parse_budget(config.budget).steps(
        units_per_step={name: count * config.accumulate for name, count in loader.units_per_step.items()},
        steps_per_epoch=loader.steps_per_epoch / config.accumulate,
        flops_per_step=flops_per_step,
    )
    loader.plan(None if steps is None else steps * config.accumulate)
    return Planned(steps, flops_per_step)


def check_finite(value: float, what: str, step: int, keeper: Keeper | None) -> float:
    """The value; a NotFiniteError where it is no number."""
    if math.isfinite(value):
        return value
    kept = "; the last good checkpoint is kept, go on from it with --resume and" if keeper is not None else ": try"
    raise NotFiniteError(f"the {what} became {value} at step {step}{kept} a lower --set train.rate (or more warm-up)")


def _largest(parameters: Iterable[Tensor]) -> float:
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
