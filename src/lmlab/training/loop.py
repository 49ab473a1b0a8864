"""The training loop: one function, the same for pre-training and fine-tuning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from pydantic import BaseModel
from torch import Tensor

from lmlab.config import suggest
from lmlab.costs.countries import find_grid
from lmlab.costs.parameters import count_parameters
from lmlab.data.loaders import Loader
from lmlab.models.model import Model, State, detach_state
from lmlab.objectives.objective import Batch, Loss, Objective
from lmlab.training.ahead import Ahead, make_batch
from lmlab.training.budget import parse_budget
from lmlab.training.costs import Cost, Meter, price_tag
from lmlab.training.optimizers import create_optimizer, learning_rate
from lmlab.training.settings import TrainConfig


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


class Evaluation(NamedTuple):
    """What validation gives: nats per prediction, and what else was measured (losses apart, the more the better)."""

    loss: float
    measures: dict[str, float]

    def cost(self, watch: str) -> float:
        """What early stopping and the choice of the best weights look at: the lower, the better."""
        if watch == "loss":
            return self.loss
        if watch not in self.measures:
            raise ValueError(f"train.watch = {watch!r}{suggest(watch, ['loss', *self.measures])}")
        return self.measures[watch] if watch.endswith("_loss") else -self.measures[watch]


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
        start = model.start(loader.batch_size) if model.carries else None
        progress, state = keeper.load(model, optimizer, start) or (progress, state)
    step = _Step(model, objective, loader, config, optimizer)
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
    tokens_per_step = loader.tokens_per_step * config.accumulate
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


@dataclass(frozen=True)
class Taken:
    """What one step came to."""

    loss: float  # nats per prediction
    count: int  # predictions
    tokens: int  # read
    gradient: float  # norm
    measures: dict[str, tuple[float, int]]


class _Step:
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


def choose_device(name: str) -> torch.device:
    """The device called `name`; auto takes the best there is."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used here: {reason}; try --device cpu") from None
    return device


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Dropout off and no gradients, then back to training."""
    model.eval()
    with torch.inference_mode():
        yield
    model.train()


def mean_loss(model: Model, objective: Objective, loader: Loader, *, steps: int) -> Evaluation:
    """The loss per prediction, and the measures, over the first `steps` batches; state carried where the model does.

    The blanks are the same each time, and so are the random numbers of a model that draws some: what training draws
    does not depend on whether it was watched.
    """
    total, count = 0.0, 0
    measures: dict[str, tuple[float, int]] = {}
    state: State = None
    with evaluating(model), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for step in range(steps):
            batch = make_batch(objective, loader, step, seed=0).to(model.device)
            if not model.carries or loader.restarts(step):
                state = None
            loss, state = objective.loss(model, batch, state)
            total, count = total + float(loss.total), count + loss.count
            measures = add_measures(measures, sums(loss))
    return Evaluation(total / max(1, count), means(measures))


def sums(loss: Loss) -> dict[str, tuple[float, int]]:
    """The measures of a loss, and its further terms, as plain numbers."""
    terms = {f"{name}_loss": (float(term.total.detach()), term.count) for name, term in loss.terms.items()}
    return terms | {name: (float(total), count) for name, (total, count) in loss.measures.items()}


def add_measures(
    some: dict[str, tuple[float, int]], more: dict[str, tuple[float, int]]
) -> dict[str, tuple[float, int]]:
    """Sums and counts by name, added up."""
    both = {
        name: (total + some.get(name, (0.0, 0))[0], n + some.get(name, (0.0, 0))[1])
        for name, (total, n) in more.items()
    }
    return {**some, **both}


def means(measures: dict[str, tuple[float, int]]) -> dict[str, float]:
    """Each sum over its count."""
    return {name: total / max(1, count) for name, (total, count) in measures.items()}
